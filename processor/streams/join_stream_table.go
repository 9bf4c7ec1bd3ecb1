package streams

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// JoinTable joins each record of a stream with the value that a table has for its key at that moment; a record whose key has none is
// left out (upstream's KStream.join of a KTable). Records without key or value are dropped and counted. The topics of both must have equally
// many partitions; the stream repartitions when keys may have changed.
//
// With the option JoinGrace the record waits, and is joined with the table as it was at the record's time: the table must be versioned,
// with a history at least as long. What comes later than that is joined at once.
func JoinTable[K, V, R, W any](s *Stream[K, V], t *Table[K, R], join func(k K, v V, r R) W, opts ...Option) *Stream[K, W] {
	j := &lookup[K, V, R, W]{join: func(k K, v V, r Maybe[R]) W { return join(k, v, r.Value) }}
	return joinTable("JoinTable", s, t, j, opts)
}

// LeftJoinTable is [JoinTable] that leaves no record out (upstream's KStream.leftJoin of a KTable), not even one without a key (KIP-962).
// Records without a value are dropped and counted.
func LeftJoinTable[K, V, R, W any](s *Stream[K, V], t *Table[K, R], join func(k K, v V, r Maybe[R]) W, opts ...Option) *Stream[K, W] {
	return joinTable("LeftJoinTable", s, t, &lookup[K, V, R, W]{join: join, left: true}, opts)
}

func joinTable[K, V, R, W any](operation string, s *Stream[K, V], t *Table[K, R], j *lookup[K, V, R, W], opts []Option) *Stream[K, W] {
	b := s.b
	o := b.read(operation, opts, "JoinGrace")
	topic := o.named
	if topic == "" {
		topic = s.node.name
	}
	s = s.repartitionedAs(topic)
	prefix := "KSTREAM-JOIN-"
	if j.left {
		prefix = "KSTREAM-LEFTJOIN-"
	}
	node := b.nameOr(o.named, prefix)
	t.view.require()
	j.open = t.view.open
	if t.view.versioned {
		j.openAsOf = t.view.openAsOf
	}
	op, buffered := j.operator, []store.Spec(nil)
	if o.grace != nil {
		w := &waiting[K, V, W]{spec: store.Spec{Name: store.Name(node + "-Buffer"), Kind: store.KindKeyValue}, grace: *o.grace, join: j.operator}
		w.keys, w.values = s.keys, s.values
		w.check(b, node, t.view.versioned, t.view.history)
		op, buffered = w.operator, []store.Spec{w.spec}
		if o.named == "" {
			b.warn(string(w.spec.Name), "the buffer of JoinGrace is named by position; give the join a name with Named")
		}
	}
	out := newOutlet[Record[K, W]]()
	n := b.put(&graphNode{
		name: node, parents: []*graphNode{s.node}, add: addProcessor(node, supplier(op, out, nil), buffered, t.view.stores),
	})
	return &Stream[K, W]{b: b, node: n, out: out, keys: s.keys, values: natural[W]()}
}

// JoinGlobal joins each record of a stream with the value of a global table for the key that key makes of it; a record for which key has
// none, or the table no value, is left out (upstream's KStream.join of a GlobalKTable). Records without a value are dropped and counted.
// Nothing is repartitioned.
func JoinGlobal[K, V, G, R, W any](
	s *Stream[K, V], g *GlobalTable[G, R], key func(k K, v V) (G, bool), join func(k K, v V, r R) W, opts ...Option,
) *Stream[K, W] {
	j := &globalLookup[K, V, G, R, W]{key: key, join: func(k K, v V, r Maybe[R]) W { return join(k, v, r.Value) }}
	return joinGlobal("JoinGlobal", s, g, j, opts)
}

// LeftJoinGlobal is [JoinGlobal] that leaves no record out (upstream's KStream.leftJoin of a GlobalKTable).
func LeftJoinGlobal[K, V, G, R, W any](
	s *Stream[K, V], g *GlobalTable[G, R], key func(k K, v V) (G, bool), join func(k K, v V, r Maybe[R]) W, opts ...Option,
) *Stream[K, W] {
	return joinGlobal("LeftJoinGlobal", s, g, &globalLookup[K, V, G, R, W]{key: key, join: join, left: true}, opts)
}

func joinGlobal[K, V, G, R, W any](
	operation string, s *Stream[K, V], g *GlobalTable[G, R], j *globalLookup[K, V, G, R, W], opts []Option,
) *Stream[K, W] {
	o := s.b.read(operation, opts)
	j.open = g.kept.view().open
	d := derive(s, s.b.nameOr(o.named, "KSTREAM-LEFTJOIN-"), j.operator) // of the inner join too, as upstream
	d.keys = s.keys
	return d.changesValues()
}

// lookup joins records with what a table has for their keys.
type lookup[K, V, R, W any] struct {
	open     func(*processor.Context) (reader[K, R], error)
	openAsOf func(*processor.Context) (asOfReader[K, R], error) // of a versioned table
	join     func(k K, v V, r Maybe[R]) W
	left     bool
}

func (j *lookup[K, V, R, W]) operator(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
	read, err := j.at(sc.Context)
	if err != nil {
		return nil, err
	}
	null := nullsOf[W]()
	var out Record[K, W]
	return func(r *Record[K, V]) error {
		switch {
		case r.NoValue:
			sc.Drop("null value")
			return nil
		case r.NoKey && !j.left:
			sc.Drop("null key")
			return nil
		}
		var m Maybe[R]
		if !r.NoKey {
			var err error
			if m.Value, _, m.OK, err = read(r.Key, r.key, r.Timestamp); err != nil {
				return err
			}
		}
		if !m.OK && !j.left {
			return nil
		}
		withKeyOf(&out, r)
		setValue(&out, j.join(r.Key, r.Value, m), null)
		return sc.emit(&out)
	}, nil
}

// at reads the table as it is, or, when it is versioned, as it was.
func (j *lookup[K, V, R, W]) at(ctx *processor.Context) (asOfReader[K, R], error) {
	if j.openAsOf != nil {
		return j.openAsOf(ctx)
	}
	read, err := j.open(ctx)
	if err != nil {
		return nil, err
	}
	return func(k K, known encoded[K], _ int64) (R, int64, bool, error) { return read(k, known) }, nil
}

// globalLookup joins records with what a global table has for a key of theirs.
type globalLookup[K, V, G, R, W any] struct {
	open func(*processor.Context) (reader[G, R], error)
	key  func(k K, v V) (G, bool)
	join func(k K, v V, r Maybe[R]) W
	left bool
}

func (j *globalLookup[K, V, G, R, W]) operator(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
	read, err := j.open(sc.Context)
	if err != nil {
		return nil, err
	}
	null := nullsOf[W]()
	var out Record[K, W]
	return func(r *Record[K, V]) error {
		if r.NoValue {
			sc.Drop("null value")
			return nil
		}
		var m Maybe[R]
		if g, ok := j.key(r.Key, r.Value); ok {
			var err error
			if m.Value, _, m.OK, err = read(g, encoded[G]{}); err != nil {
				return err
			}
		} else if !j.left {
			sc.Drop("null key")
			return nil
		}
		if !m.OK && !j.left {
			return nil
		}
		withKeyOf(&out, r)
		setValue(&out, j.join(r.Key, r.Value, m), null)
		return sc.emit(&out)
	}, nil
}

// graceReason says why records cannot wait for a table, empty when they can.
func graceReason(grace time.Duration, versioned bool, history time.Duration) string {
	switch {
	case grace < 0 || grace%time.Millisecond != 0:
		return "JoinGrace is at least 0, in whole milliseconds"
	case !versioned:
		return "JoinGrace needs a versioned table: give it a History"
	case grace > history:
		return "JoinGrace " + grace.String() + " is beyond the table's history of " + history.String()
	default:
		return ""
	}
}
