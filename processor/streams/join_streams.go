package streams

import (
	"errors"
	"math"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// JoinStreams joins the records of two streams that have the same key and are close in time (upstream's KStream.join of a KStream). Each
// pair gives one result, with the greater time of both. Records without key or value are dropped and counted. The topics of both must
// have equally many partitions; a stream repartitions when its keys may have changed. Options: As, which names the stores, LoggingDisabled,
// LoggingConfig.
func JoinStreams[K, L, R, W any](
	l *Stream[K, L], r *Stream[K, R], windows JoinWindows, join func(k K, l L, r R) W, opts ...Option,
) *Stream[K, W] {
	j := &streamJoin[K, L, R, W]{windows: windows}
	j.join = func(k K, l Maybe[L], r Maybe[R]) W { return join(k, l.Value, r.Value) }
	return j.build("JoinStreams", l, r, opts)
}

// LeftJoinStreams is [JoinStreams] that gives a result for each record of the left stream that meets none, once its window and the grace
// are over, with its own time (upstream's KStream.leftJoin, KAFKA-10847); and at once for one that has no key, or is so late that they are
// over already.
func LeftJoinStreams[K, L, R, W any](
	l *Stream[K, L], r *Stream[K, R], windows JoinWindows, join func(k K, l L, r Maybe[R]) W, opts ...Option,
) *Stream[K, W] {
	j := &streamJoin[K, L, R, W]{windows: windows, leftOuter: true}
	j.join = func(k K, l Maybe[L], r Maybe[R]) W { return join(k, l.Value, r) }
	return j.build("LeftJoinStreams", l, r, opts)
}

// OuterJoinStreams is [LeftJoinStreams] for both sides (upstream's KStream.outerJoin).
func OuterJoinStreams[K, L, R, W any](
	l *Stream[K, L], r *Stream[K, R], windows JoinWindows, join func(k K, l Maybe[L], r Maybe[R]) W, opts ...Option,
) *Stream[K, W] {
	j := &streamJoin[K, L, R, W]{windows: windows, leftOuter: true, rightOuter: true, join: join}
	return j.build("OuterJoinStreams", l, r, opts)
}

// streamJoin is a join of two streams. Each side has a node that keeps its records in a window store, and one that looks for those of the
// other side; a fifth brings the results together. Records of outer sides that have met none wait in a store of their own.
type streamJoin[K, L, R, W any] struct {
	windows               JoinWindows
	leftOuter, rightOuter bool
	join                  func(k K, l Maybe[L], r Maybe[R]) W

	keys   serde.Serde[K]
	lefts  serde.Serde[L]
	rights serde.Serde[R]
	// unmatched is the store of records that have met none; nil for an inner join.
	unmatched *store.Spec
}

// joinNames are the names of a join of streams.
type joinNames struct {
	leftWindowed, rightWindowed, left, right, merge string
	leftStore, rightStore, unmatched                store.Name
}

// names uses up the positions that upstream's KStreamImplJoin does.
func (j *streamJoin[K, L, R, W]) names(b *Builder, o options) (n joinNames) {
	thisSuffix, otherSuffix, thisPrefix, otherPrefix := "-this-join", "-other-join", "KSTREAM-JOINTHIS-", "KSTREAM-JOINOTHER-"
	if j.rightOuter {
		thisSuffix, thisPrefix = "-outer-this-join", "KSTREAM-OUTERTHIS-"
	}
	if j.leftOuter {
		otherSuffix, otherPrefix = "-outer-other-join", "KSTREAM-OUTEROTHER-"
	}
	n.leftWindowed = b.suffixed(o.named, "-this-windowed", "KSTREAM-WINDOWED-")
	n.rightWindowed = b.suffixed(o.named, "-other-windowed", "KSTREAM-WINDOWED-")
	this, other := b.name(thisPrefix), b.name(otherPrefix)
	n.left, n.right = this, other
	if o.named != "" {
		n.left, n.right = o.named+thisSuffix, o.named+otherSuffix
	}
	n.merge = b.suffixed(o.named, "-merge", "KSTREAM-MERGE-")
	n.leftStore, n.rightStore = store.Name(this), store.Name(other)
	n.unmatched = store.Name("KSTREAM-OUTERSHARED-" + this[len(thisPrefix):] + "-store")
	if o.store == "" {
		b.warn(n.merge, "the stores of the join are named by position; give them a name with As")
		return n
	}
	n.leftStore, n.rightStore = o.store+store.Name(thisSuffix), o.store+store.Name(otherSuffix)
	n.unmatched = o.store + "-left-shared-join-store"
	if j.rightOuter {
		n.unmatched = o.store + "-outer-shared-join-store"
	}
	return n
}

func (j *streamJoin[K, L, R, W]) build(operation string, l *Stream[K, L], r *Stream[K, R], opts []Option) *Stream[K, W] {
	b := l.b
	o := b.read(operation, opts, "As", "LoggingDisabled", "LoggingConfig")
	leftTopic, rightTopic := l.node.name, r.node.name
	if o.named != "" {
		leftTopic, rightTopic = o.named+"-left", o.named+"-right"
	}
	l, r = l.repartitionedAs(leftTopic), r.repartitionedAs(rightTopic)
	n := j.names(b, o)
	if reason := j.windows.reason(); reason != "" {
		b.fail(n.merge, "%s", reason)
	}
	j.keys, j.lefts, j.rights = l.keys, l.values, r.values
	b.needs(n.merge, "keys", j.keys.Err())
	b.needs(n.merge, "left values", j.lefts.Err())
	b.needs(n.merge, "right values", j.rights.Err())
	if j.leftOuter {
		j.unmatched = &store.Spec{Name: n.unmatched, Kind: store.KindKeyValue, NoChangelog: o.noLogging, ChangelogConfig: o.logConfig}
	}
	leftSpec := j.window(n.leftStore, o, j.keys.Format(), j.lefts.Format())
	rightSpec := j.window(n.rightStore, o, j.keys.Format(), j.rights.Format())
	// An optimisation that is known when the topology is built.
	self := func() bool {
		return !j.leftOuter && l.node == r.node && b.selfJoining && j.self() != nil
	}

	out := newOutlet[Record[K, W]]()
	leftWindowed := addWindowed(b, n.leftWindowed, l, leftSpec, func() bool { return false })
	rightWindowed := addWindowed(b, n.rightWindowed, r, rightSpec, self)
	left := b.put(&graphNode{name: n.left, parents: []*graphNode{leftWindowed}, add: unless(self, func(t *processor.Topology, parents ...string) {
		addProcessor(n.left, supplier(j.left(n.rightStore).operator, newOutlet[Record[K, W]](), nil), nil, []store.Name{n.rightStore})(t, parents...)
	})})
	right := b.put(&graphNode{name: n.right, parents: []*graphNode{rightWindowed}, add: unless(self, func(t *processor.Topology, parents ...string) {
		addProcessor(n.right, supplier(j.right(n.leftStore).operator, newOutlet[Record[K, W]](), nil), nil, []store.Name{n.leftStore})(t, parents...)
		if j.unmatched != nil {
			t.AddStateStore(*j.unmatched, n.left, n.right)
		}
	})})
	merge := b.put(&graphNode{name: n.merge, parents: []*graphNode{left, right}, add: func(t *processor.Topology, parents ...string) {
		if self() {
			s := &selfJoin[K, L, W]{side: joinedSide[K, L, L]{store: n.leftStore, keys: j.keys, others: j.lefts}, join: j.self()}
			s.before, s.after, s.retention = j.windows.Before.Milliseconds(), j.windows.After.Milliseconds(), leftSpec.Retention.Milliseconds()
			addProcessor(n.merge, supplier(s.operator, out, nil), nil, []store.Name{n.leftStore})(t, n.leftWindowed)
			return
		}
		t.AddProcessor(n.merge, newJoinMerge(out), parents...)
	}})
	return &Stream[K, W]{b: b, node: merge, out: out, keys: j.keys, values: natural[W]()}
}

// self is the joiner of a stream with itself; nil when both sides have other types.
func (j *streamJoin[K, L, R, W]) self() func(K, Maybe[L], Maybe[L]) W {
	f, _ := any(j.join).(func(K, Maybe[L], Maybe[L]) W)
	return f
}

// unless writes a node unless an optimisation leaves it out.
func unless(out func() bool, add func(*processor.Topology, ...string)) func(*processor.Topology, ...string) {
	return func(t *processor.Topology, parents ...string) {
		if !out() {
			add(t, parents...)
		}
	}
}

// window is the store of one side: it keeps each record for as long as another one may come that meets it.
func (j *streamJoin[K, L, R, W]) window(name store.Name, o options, keyFormat, valueFormat string) store.Spec {
	size := max(j.windows.size(), time.Millisecond) // the least that stores know; nobody sees it
	return store.Spec{
		Name: name, Kind: store.KindWindow, WindowSize: size, Retention: size + j.windows.Grace, RetainDuplicates: true,
		NoChangelog: o.noLogging, ChangelogConfig: o.logConfig, KeyFormat: keyFormat, ValueFormat: valueFormat,
	}
}

// addWindowed adds the node that keeps the records of one side, after they were joined (upstream's KStreamJoinWindow). A record that
// nobody can meet any more is dropped and counted by the store.
func addWindowed[K, V any](b *Builder, name string, s *Stream[K, V], spec store.Spec, out func() bool) *graphNode {
	keys, values, retention := s.keys, s.values, spec.Retention.Milliseconds()
	op := func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		w, err := sc.WindowStore(spec.Name)
		if err != nil {
			return nil, err
		}
		now := int64(-1) // at least the store's own time
		kc, vc := coder[K]{serde: keys}, coder[V]{serde: values}
		return func(r *Record[K, V]) error {
			now = max(now, r.Timestamp, sc.CurrentStreamTime())
			if err := sc.emit(r); err != nil || r.NoKey || r.NoValue {
				return err
			}
			kb, err := kc.encode(r.Key, r.key)
			if err != nil || len(kb) == 0 { // which was dropped further down
				return err
			}
			vb, err := vc.encode(r.Value, r.value)
			if err != nil {
				return err
			}
			if err := w.Put(kb, r.Timestamp, store.Value{Data: vb}); err != nil || r.Timestamp > now-retention {
				return err
			}
			if _, err := w.Fetch(kb, r.Timestamp); !errors.Is(err, store.ErrNotFound) {
				return err
			}
			sc.Drop(dropLate) // the store would not have it
			return nil
		}, nil
	}
	add := addProcessor(name, supplier(op, newOutlet[Record[K, V]](), nil), []store.Spec{spec}, nil)
	return b.put(&graphNode{name: name, parents: []*graphNode{s.node}, add: unless(out, add)})
}

// joinedSide reads the records of the other side.
type joinedSide[K, V, O any] struct {
	store  store.Name
	keys   serde.Serde[K]
	others serde.Serde[O]
}

// around calls f with the records of a key from one time to another, both inclusive, in their order.
func (j *joinedSide[K, V, O]) around(w store.Window, kb []byte, from, to int64, f func(o O, at int64) error) error {
	if to < 0 {
		return nil
	}
	it, err := w.Scan(store.WindowScan{Key: kb, From: max(0, from), To: to})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		o, err := j.others.Decode(e.Data)
		if err != nil {
			return err
		}
		if err := f(o, e.Start); err != nil {
			return err
		}
	}
	return it.Err()
}

// later is a time plus milliseconds, at most the last there is.
func later(t, ms int64) int64 {
	if ms > 0 && t > math.MaxInt64-ms {
		return math.MaxInt64
	}
	return t + ms
}

// selfJoin joins a stream with itself over one store. The results and their order are those of two.
type selfJoin[K, V, W any] struct {
	side                     joinedSide[K, V, V]
	before, after, retention int64 // milliseconds
	join                     func(k K, l, r Maybe[V]) W
}

func (j *selfJoin[K, V, W]) operator(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
	w, err := sc.WindowStore(j.side.store)
	if err != nil {
		return nil, err
	}
	seen, err := sc.ObservedTime(string(j.side.store))
	if err != nil {
		return nil, err
	}
	kc, null := coder[K]{serde: j.side.keys}, nullsOf[W]()
	var out Record[K, W]
	return func(r *Record[K, V]) error {
		kb, err := joinKey(sc.Context, &kc, r)
		if err != nil || kb == nil {
			return err
		}
		streamTime := seen.Observe(r.Timestamp)
		give := func(l, o V, at int64) error {
			withKeyOf(&out, r)
			out.Timestamp = max(r.Timestamp, at)
			setValue(&out, j.join(r.Key, Maybe[V]{l, true}, Maybe[V]{o, true}), null)
			return sc.emit(&out)
		}
		err = j.side.around(w, kb, r.Timestamp-j.before, later(r.Timestamp, j.after), func(o V, at int64) error { return give(r.Value, o, at) })
		if err != nil {
			return err
		}
		// The pair of a record with itself comes where its time is, unless the store would not take it any more.
		pending := j.before >= 0 && j.after >= 0 && r.Timestamp > streamTime-j.retention
		err = j.side.around(w, kb, r.Timestamp-j.after, later(r.Timestamp, j.before), func(l V, at int64) error {
			if pending && at > r.Timestamp {
				pending = false
				if err := give(r.Value, r.Value, r.Timestamp); err != nil {
					return err
				}
			}
			return give(l, r.Value, at)
		})
		if err != nil || !pending {
			return err
		}
		return give(r.Value, r.Value, r.Timestamp)
	}, nil
}

// joinKey is the encoded key of a record that can meet another one; nil for one that was dropped.
func joinKey[K, V any](ctx *processor.Context, keys *coder[K], r *Record[K, V]) ([]byte, error) {
	switch {
	case r.NoKey:
		ctx.Drop("null key")
		return nil, nil
	case r.NoValue:
		ctx.Drop("null value")
		return nil, nil
	}
	kb, err := keys.encode(r.Key, r.key)
	if err == nil && len(kb) == 0 {
		ctx.Drop("empty key") // no store has one
		return nil, nil
	}
	return kb, err
}
