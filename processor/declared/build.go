package declared

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Validate reports everything that is wrong, joined: [*Error], and [*expr.Error] for what is wrong inside of an expression.
func Validate(t Topology) error {
	_, err := Build(t)
	return err
}

// Build makes the topology. Errors are those of [Validate].
func Build(t Topology) (*processor.Topology, error) {
	m := understand(t)
	if len(m.errs) > 0 {
		return nil, errors.Join(m.errs...)
	}
	b := &builder{model: m, b: streams.NewBuilder(), made: make(map[*relation]*made)}
	for _, r := range m.order {
		b.relation(r)
	}
	topology, err := b.b.Build()
	if err == nil {
		_, err = topology.Build("declared") // what only shows when all is put together
	}
	if err != nil {
		return nil, &Error{Path: "topology", Reason: err.Error()}
	}
	return topology, nil
}

// made is a relation in the DSL: whatever of these it has.
type made struct {
	stream  *streams.Stream[[]byte, []byte]
	table   *streams.Table[[]byte, []byte]
	global  *streams.GlobalTable[[]byte, []byte]
	windows *streams.Stream[serde.Windowed[[]byte], []byte]
}

type builder struct {
	*model

	b    *streams.Builder
	made map[*relation]*made
}

func (b *builder) relation(r *relation) {
	out := &made{}
	b.made[r] = out
	switch {
	case r.Topic != "":
		b.source(r, out)
	case r.groups != nil:
		b.aggregate(r, out)
	default:
		b.derived(r, out)
	}
	if r.Sink == nil {
		return
	}
	to := streams.Named(r.Name + "-to")
	if out.windows != nil {
		out.windows.To(r.Sink.Topic, to)
		return
	}
	b.changes(r).To(r.Sink.Topic, to)
}

func values() serde.Serde[[]byte] { return serde.Bytes().As(serde.FormatJSON) }

// valuesOf is how the values of a relation's topic are written.
func valuesOf(r *relation) serde.Serde[[]byte] {
	return serde.Bytes().As(map[string]string{"json": serde.FormatJSON, "string": serde.FormatString, "csv": serde.FormatString}[string(r.layout.Format)])
}

// source reads a topic.
func (b *builder) source(r *relation, out *made) {
	opts := []streams.Option{streams.Named(r.Name)}
	if r.timing != nil {
		opts = append(opts, streams.Timestamps(r.timing.extract))
	}
	if r.Kind == GlobalTable {
		out.global = streams.GlobalTableFrom(b.b, r.Topic, r.keys(), valuesOf(r), store.Name(r.Name), opts...)
		return
	}
	if r.Source.OffsetReset != 0 {
		opts = append(opts, streams.OffsetReset(r.Source.OffsetReset))
	}
	if r.Kind == Stream {
		out.stream = streams.From(b.b, r.Topic, r.keys(), valuesOf(r), opts...)
		return
	}
	if r.Source.History != 0 {
		opts = append(opts, streams.History(r.Source.History))
	}
	out.table = streams.TableFrom(b.b, r.Topic, r.keys(), valuesOf(r), store.Name(r.Name), append(opts, r.storing()...)...)
}

// storing are the options of a relation's store.
func (r *relation) storing() []streams.Option {
	var opts []streams.Option
	if r.Store.InMemory {
		opts = append(opts, streams.InMemory())
	}
	if r.Store.NoCache || r.Source.History != 0 {
		opts = append(opts, streams.CachingDisabled())
	}
	if r.Store.Changelog != nil {
		opts = append(opts, streams.LoggingConfig(r.Store.Changelog))
	}
	return opts
}

// changes is a relation as a stream.
func (b *builder) changes(r *relation) *streams.Stream[[]byte, []byte] {
	m := b.made[r]
	if m.stream == nil {
		m.stream = streams.ToStream(m.table, streams.Named(r.Name+"-changes"))
	}
	return m.stream
}

// derived filters, joins and computes.
func (b *builder) derived(r *relation, out *made) {
	var s *streams.Stream[[]byte, []byte]
	switch of := b.made[r.from]; {
	case r.from.windowed:
		s = run(b.unwound(r.from, r.Name), r.last, r.Name, plain, value)
	case len(r.joins) == 0:
		s = run(b.changes(r.from), r.last, r.Name, plain, value)
	case r.from.Kind == Table:
		s = run(streams.ToStream(b.tables(r, of.table), streams.Named(r.Name+"-joined")), r.last, r.Name+"-computed", carried, value)
	default:
		s = run(b.joined(r), r.last, r.Name+"-computed", carried, value)
	}
	s = s.WithKeys(r.keys()).WithValues(valuesOf(r))
	if r.Kind == Stream {
		out.stream = s
		return
	}
	out.table = streams.ToTable(s, append(r.storing(), streams.As(store.Name(r.Name)), streams.Named(r.Name+"-table"))...)
	b.suppress(r, out)
}

func (b *builder) suppress(r *relation, out *made) {
	if s := r.Suppress; s != nil {
		out.stream = streams.ToStream(out.table.Suppress(streams.UntilTimeLimit(s.Until, s.buffer()), streams.Named(r.Name+suppressSuffix)),
			streams.Named(r.Name+"-changes"))
	}
}

func (s *Suppress) buffer() streams.Buffer {
	b := streams.Buffer{MaxRecords: int64(s.MaxRecords), MaxBytes: s.MaxBytes}
	if s.ShutDown {
		b.WhenFull = streams.ShutDown
	}
	return b
}

// joined is a stream with all it has met in the last join; steps before that put the others together.
func (b *builder) joined(r *relation) *streams.Stream[[]byte, *carrier] {
	s := run(b.changes(r.from), r.first, joinName(r, 0)+"-keyed", plain, beside)
	for i, j := range r.joins {
		if i > 0 {
			s = run(s, r.joins[i-1].next, joinName(r, i)+"-keyed", carried, beside)
		}
		s = b.join(r, s.WithKeys(j.keys()).WithValues(carriers()), i, j)
	}
	return s
}

// keys is how both sides' keys are written.
func (j *join) keys() serde.Serde[[]byte] {
	if j.other != nil {
		return serde.Bytes().As(j.other.key.Format())
	}
	return j.with.keys()
}

func (b *builder) join(r *relation, s *streams.Stream[[]byte, *carrier], i int, j *join) *streams.Stream[[]byte, *carrier] {
	name := streams.Named(joinName(r, i))
	of := b.made[j.with]
	switch j.with.Kind {
	case GlobalTable:
		key := func(k []byte, c *carrier) ([]byte, bool) {
			if j.On == nil {
				return k, k != nil
			}
			return c.key, c.key != nil
		}
		if j.Kind == Left {
			return streams.LeftJoinGlobal(s, of.global, key, leftMeets, name)
		}
		return streams.JoinGlobal(s, of.global, key, meets, name)
	case Table:
		opts := []streams.Option{name}
		if j.Grace > 0 {
			opts = append(opts, streams.JoinGrace(j.Grace))
		}
		if j.Kind == Left {
			return streams.LeftJoinTable(s, of.table, leftMeets, opts...)
		}
		return streams.JoinTable(s, of.table, meets, opts...)
	default:
		return b.streams(r, s, i, j)
	}
}

// meets, leftMeets and outerMeets are what the kinds of joins do with a value; one that is not there is nil.
func meets(_ []byte, c *carrier, v []byte) *carrier { return c.met(plainRight(v)) }

func leftMeets(_ []byte, c *carrier, v streams.Maybe[[]byte]) *carrier {
	return c.met(plainRight(v.Value))
}

func outerMeets(_ []byte, c streams.Maybe[*carrier], v streams.Maybe[[]byte]) *carrier {
	return c.Value.met(plainRight(v.Value))
}

// streams joins two streams.
func (b *builder) streams(r *relation, s *streams.Stream[[]byte, *carrier], i int, j *join) *streams.Stream[[]byte, *carrier] {
	other := b.changes(j.with)
	if j.other != nil {
		keyed := run(other, j.other, joinName(r, i)+"-other-keyed", plain, withOwnKey)
		return joinStreams(r, i, j, s, keyed.WithKeys(j.keys()).WithValues(carriers()), keyedRight)
	}
	return joinStreams(r, i, j, s, other.WithKeys(j.keys()).WithValues(valuesOf(j.with)), plainRight)
}

// joinStreams joins two streams; as is what becomes of a value of the other one.
func joinStreams[R any](
	r *relation, i int, j *join, s *streams.Stream[[]byte, *carrier], other *streams.Stream[[]byte, R], as func(R) right,
) *streams.Stream[[]byte, *carrier] {
	within := streams.JoinWindows{Before: j.Before, After: j.After, Grace: j.Grace}
	opts := []streams.Option{streams.Named(joinName(r, i)), streams.As(store.Name(joinName(r, i)))}
	switch j.Kind {
	case Left:
		return streams.LeftJoinStreams(s, other, within, func(_ []byte, c *carrier, v streams.Maybe[R]) *carrier { return c.met(as(v.Value)) }, opts...)
	case Outer:
		return streams.OuterJoinStreams(s, other, within,
			func(_ []byte, c streams.Maybe[*carrier], v streams.Maybe[R]) *carrier {
				return c.Value.met(as(v.Value))
			}, opts...)
	default:
		return streams.JoinStreams(s, other, within, func(_ []byte, c *carrier, v R) *carrier { return c.met(as(v)) }, opts...)
	}
}

// tables joins a table with others, one after the other.
func (b *builder) tables(r *relation, t *streams.Table[[]byte, []byte]) *streams.Table[[]byte, *carrier] {
	var left *streams.Table[[]byte, *carrier]
	for i, j := range r.joins {
		other, name := b.made[j.with].table, streams.Named(joinName(r, i))
		switch {
		case r.foreign(j):
			left = b.foreign(r, i, j, left)
			continue
		case i == 0:
			left = streams.MapTableValues(t, func(_, v []byte) *carrier {
				if v == nil {
					return nil
				}
				return &carrier{value: v}
			}, streams.Named(r.Name+"-carried"))
		}
		switch j.Kind {
		case Left:
			left = streams.LeftJoinTables(left, other, leftMeets, name)
		case Outer:
			left = streams.OuterJoinTables(left, other, outerMeets, name)
		default:
			left = streams.JoinTables(left, other, meets, name)
		}
	}
	return left
}

// foreign joins by a foreign key, which is kept beside each row. joined is what the joins before it have made; nil: there are none.
func (b *builder) foreign(r *relation, i int, j *join, joined *streams.Table[[]byte, *carrier]) *streams.Table[[]byte, *carrier] {
	var rows *streams.Stream[[]byte, *carrier]
	if joined == nil {
		rows = run(b.changes(r.from), r.first, joinName(r, i)+"-keyed", plain, beside)
	} else {
		changes := streams.ToStream(joined, streams.Named(joinName(r, i)+"-changes"))
		rows = run(changes, r.joins[i-1].next, joinName(r, i)+"-keyed", carried, beside)
	}
	rows = rows.WithKeys(r.from.keys()).WithValues(carriers())
	left := streams.ToTable(rows, streams.As(store.Name(joinName(r, i)+leftSuffix)), streams.Named(joinName(r, i)+leftSuffix))
	key := func(_ []byte, c *carrier) ([]byte, bool) { return c.key, c.key != nil }
	opts := []streams.Option{streams.Named(joinName(r, i)), streams.Values(metCarriers())}
	if r.keptFor(i) {
		opts = append(opts, streams.As(store.Name(joinName(r, i)+joinedSuffix)))
	}
	other := b.made[j.with].table
	if j.Kind == Left {
		return streams.LeftJoinForeign(left, other, key, leftMeets, opts...)
	}
	return streams.JoinForeign(left, other, key, meets, opts...)
}

// aggregate makes groups.
func (b *builder) aggregate(r *relation, out *made) {
	g := r.groups
	if r.from.Kind == Table && !r.from.windowed {
		b.ofTable(r, out)
		return
	}
	var rows *streams.Stream[[]byte, []byte]
	switch {
	case r.from.windowed:
		rows = run(b.unwound(r.from, r.Name), r.last, r.Name, plain, value)
	case len(r.joins) > 0:
		rows = run(b.joined(r), r.last, r.Name+"-computed", carried, value)
	default:
		rows = run(b.changes(r.from), r.last, r.Name, plain, value)
	}
	opts := []streams.Option{streams.Named(r.Name)}
	if r.Aggregate.Partitions != 0 {
		opts = append(opts, streams.Partitions(r.Aggregate.Partitions))
	}
	grouped := streams.GroupByKey(rows.WithKeys(r.keys()).WithValues(serde.Bytes()), opts...)
	name, kept := g.store(r), r.storing()
	if !r.windowed {
		b.results(r, streams.Aggregate(grouped, name, g.states(), g.initial, g.add, kept...), out)
		return
	}
	if r.Store.Retention != 0 {
		kept = append(kept, streams.Retention(r.Store.Retention))
	}
	emit := streams.OnWindowUpdate
	if r.Aggregate.OnClose {
		emit = streams.OnWindowClose
	}
	var t *streams.Table[serde.Windowed[[]byte], *cell]
	switch w := r.Aggregate.Window; {
	case w.Session != 0:
		by := streams.SessionsBy(grouped, windows.Session{Gap: w.Session, Grace: w.Grace}).Emit(emit)
		t = streams.AggregateSessions(by, name, g.states(), g.initial, g.add, g.merge, kept...)
	case w.Sliding != 0:
		by := streams.WindowedBy(grouped, windows.Sliding{Difference: w.Sliding, Grace: w.Grace}).Emit(emit)
		t = streams.AggregateWindows(by, name, g.states(), g.initial, g.add, kept...)
	default:
		by := streams.WindowedBy(grouped, w.grid()).Emit(emit)
		t = streams.AggregateWindows(by, name, g.states(), g.initial, g.add, kept...)
	}
	b.windowed(r, t, out)
}

// store is where the states of groups are.
func (g *grouping) store(r *relation) store.Name {
	if g.separate {
		return store.Name(r.Name + stateSuffix)
	}
	return store.Name(r.Name)
}

// ofTable makes groups of the rows of a table.
func (b *builder) ofTable(r *relation, out *made) {
	g := r.groups
	var rows *streams.Stream[[]byte, *carrier]
	if len(r.joins) > 0 {
		rows = run(streams.ToStream(b.tables(r, b.made[r.from].table), streams.Named(r.Name+"-joined")), r.last, r.Name+"-computed", carried, beside)
	} else {
		rows = run(b.changes(r.from), r.last, r.Name+"-computed", plain, beside)
	}
	t := streams.ToTable(rows.WithKeys(r.from.keys()).WithValues(carriers()), streams.As(store.Name(r.Name+rowsSuffix)), streams.Named(r.Name+rowsSuffix))
	grouped := streams.GroupTable(t, func(_ []byte, c *carrier) ([]byte, []byte) { return c.key, c.value }, streams.Named(r.Name)).
		WithKeys(r.keys())
	b.results(r, streams.AggregateTable(grouped, g.store(r), g.states(), g.initial, g.add, g.subtract, r.storing()...), out)
}

// results are what groups answer with, in a store of the relation's name: that of the states, if it can be. Then nothing is computed where
// nobody hears of it.
func (b *builder) results(r *relation, t *streams.Table[[]byte, *cell], out *made) {
	if !r.groups.separate && !b.heard[r] {
		return
	}
	opts := []streams.Option{streams.Named(r.Name + "-result"), streams.Values(values())}
	if r.groups.separate {
		opts = append(append(opts, streams.As(store.Name(r.Name))), r.storing()...)
	}
	out.table = streams.MapTableValues(t, func(_ []byte, c *cell) []byte { return r.groups.result(c) }, opts...)
	b.suppress(r, out)
}

// unwound is a windowed relation as a stream of its rows, with the window as columns.
func (b *builder) unwound(r *relation, user string) *streams.Stream[[]byte, []byte] {
	return streams.Map(b.made[r].windows, func(k serde.Windowed[[]byte], v []byte) ([]byte, []byte) {
		if v == nil {
			return k.Key, nil
		}
		o := fmt.Appendf(make([]byte, 0, len(v)+64), `{"window":{"start":%d,"end":%d}`, k.Start, k.End)
		if len(v) > len("{}") {
			o = append(o, ',')
		}
		return k.Key, append(o, v[1:]...)
	}, streams.Named(user+"-unwound"))
}

// windowed is what groups and windows answer with.
func (b *builder) windowed(r *relation, t *streams.Table[serde.Windowed[[]byte], *cell], out *made) {
	g := r.groups
	if g.separate {
		b.keepResults(r, t)
	}
	if !b.heard[r] {
		return
	}
	told := t
	if s := r.Suppress; s != nil {
		until := streams.UntilTimeLimit(s.Until, s.buffer())
		if s.UntilClose {
			until = streams.UntilWindowCloses(s.buffer())
		}
		told = t.Suppress(until, streams.Named(r.Name+suppressSuffix))
	}
	result := func(c *cell) []byte { return g.result(c) }
	out.windows = streams.MapValues(streams.ToStream(told, streams.Named(r.Name+"-changes")), result, streams.Named(r.Name+"-result")).
		WithValues(values())
}

// keepResults puts what windows answer with into a store of the relation's name.
func (b *builder) keepResults(r *relation, t *streams.Table[serde.Windowed[[]byte], *cell]) {
	g, s := r.groups, streams.ToStream(t, streams.Named(r.Name+"-states"))
	name := store.Name(r.Name)
	states, _ := streams.StoreOfWindows(t)
	if r.session {
		kept := streams.SessionStore(name, states.Retention, r.keys(), values(), r.kept()...)
		keep(s, r.Name, kept, func(to *streams.Session[[]byte, []byte], k serde.Windowed[[]byte], c *cell, _ int64) error {
			if c == nil {
				return to.Remove(k.Key, k.Start, k.End)
			}
			return to.Put(k.Key, k.Start, k.End, g.result(c))
		})
		return
	}
	kept := streams.WindowStore(name, states.WindowSize, states.Retention, r.keys(), values(), r.kept()...)
	keep(s, r.Name, kept, func(to *streams.Window[[]byte, []byte], k serde.Windowed[[]byte], c *cell, at int64) error {
		return to.Put(k.Key, k.Start, g.result(c), at)
	})
}

// kept are the options of a store of results, which has no cache: what it is given comes out of one.
func (r *relation) kept() []streams.Option {
	var opts []streams.Option
	if r.Store.InMemory {
		opts = append(opts, streams.InMemory())
	}
	if r.Store.Changelog != nil {
		opts = append(opts, streams.LoggingConfig(r.Store.Changelog))
	}
	return opts
}

// keeping puts results into a store.
type keeping[H any] struct {
	store *streams.Store[H]
	put   func(to H, k serde.Windowed[[]byte], c *cell, at int64) error
	to    H
}

func keep[H any](s *streams.Stream[serde.Windowed[[]byte], *cell], name string, in *streams.Store[H],
	put func(to H, k serde.Windowed[[]byte], c *cell, at int64) error,
) {
	streams.Process(s, func() streams.Processor[serde.Windowed[[]byte], *cell, []byte, []byte] {
		return &keeping[H]{store: in, put: put}
	}, streams.Named(name+"-keep"), streams.Uses(in))
}

func (p *keeping[H]) Init(ctx *streams.Context[[]byte, []byte]) (err error) {
	p.to, err = p.store.Open(ctx)
	return err
}

func (p *keeping[H]) Process(r *streams.Record[serde.Windowed[[]byte], *cell]) error {
	return p.put(p.to, r.Key, r.Value, r.Timestamp)
}

func (p *keeping[H]) Close() error { return nil }
