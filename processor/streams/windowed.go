package streams

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Windowing is a grouped stream that is split by time: what WindowedBy and SessionsBy return.
type Windowing[K, V any] interface {
	windowing() (g *Grouped[K, V], kind windowKind, emit EmitStrategy)
}

// TimeWindowed is a grouped stream split by windows of time (upstream's TimeWindowedKStream).
type TimeWindowed[K, V any] struct {
	g    *Grouped[K, V]
	kind windowKind
	emit EmitStrategy
}

// SessionWindowed is a grouped stream split into sessions (upstream's SessionWindowedKStream).
type SessionWindowed[K, V any] struct {
	g    *Grouped[K, V]
	kind windowKind
	emit EmitStrategy
}

// WindowedBy splits a grouped stream by windows: windows.Tumbling and windows.Hopping, windows.Sliding, windows.Unlimited (upstream's
// KGroupedStream.windowedBy). A window is closed when stream time, which the records that come here move, has passed its end and the grace; what
// comes later for it is dropped and counted.
func WindowedBy[K, V any, W windows.Time | windows.Sliding | windows.Unlimited](g *Grouped[K, V], w W) *TimeWindowed[K, V] {
	return &TimeWindowed[K, V]{g: g, kind: kindOf(w)}
}

// SessionsBy splits a grouped stream into sessions: records of a key at most a gap apart (upstream's KGroupedStream.windowedBy with
// SessionWindows).
func SessionsBy[K, V any](g *Grouped[K, V], w windows.Session) *SessionWindowed[K, V] {
	return &SessionWindowed[K, V]{g: g, kind: kindOf(w)}
}

// EmitStrategy is when aggregations of windows tell their results (upstream's EmitStrategy, KIP-825).
type EmitStrategy uint8

const (
	// OnWindowUpdate tells each change of a window, or the last of several where the record cache is on. It is the default.
	OnWindowUpdate EmitStrategy = iota
	// OnWindowClose tells the value of each window once, when it is closed: with a record that moves stream time, and at most once in a
	// second of the wall clock, unless the windows would be forgotten by then. There is no record cache, and a session that is closed is
	// joined no more, as it may be otherwise while its store keeps it.
	OnWindowClose
)

// Emit says when results are told (upstream's emitStrategy).
func (w *TimeWindowed[K, V]) Emit(e EmitStrategy) *TimeWindowed[K, V] {
	d := *w
	d.emit = e
	return &d
}

// Emit says when results are told (upstream's emitStrategy).
func (w *SessionWindowed[K, V]) Emit(e EmitStrategy) *SessionWindowed[K, V] {
	d := *w
	d.emit = e
	return &d
}

func (w *TimeWindowed[K, V]) windowing() (*Grouped[K, V], windowKind, EmitStrategy) {
	return w.g, w.kind, w.emit
}

func (w *SessionWindowed[K, V]) windowing() (*Grouped[K, V], windowKind, EmitStrategy) {
	return w.g, w.kind, w.emit
}

// CountWindows counts the records of each key and window (upstream's TimeWindowedKStream.count and SessionWindowedKStream.count). Records
// without a key or value are dropped and counted, and so are late ones. The store can be asked under its name; empty: by position. Options:
// those of stores, Retention.
func CountWindows[K, V any](w Windowing[K, V], name store.Name, opts ...Option) *Table[serde.Windowed[K], int64] {
	return windowTable(w, name, counting("CountWindows"), serde.Int64(), countRecords[K, V](), opts)
}

// ReduceWindows combines the values of each key and window (upstream's TimeWindowedKStream.reduce and SessionWindowedKStream.reduce); see
// Reduce and CountWindows.
func ReduceWindows[K, V any](w Windowing[K, V], name store.Name, f func(a, v V) V, opts ...Option) *Table[serde.Windowed[K], V] {
	g, _, _ := w.windowing()
	return windowTable(w, name, reducing("ReduceWindows"), g.s.values, reduceRecords[K](f), opts)
}

// AggregateWindows makes of the records of each key and window a value of another type (upstream's TimeWindowedKStream.aggregate); see
// Aggregate and CountWindows.
func AggregateWindows[K, V, A any](
	w *TimeWindowed[K, V], name store.Name, values serde.Serde[A], initial func() A, add func(k K, v V, a A) A, opts ...Option,
) *Table[serde.Windowed[K], A] {
	return windowTable(w, name, counting("AggregateWindows"), values, aggregateRecords(initial, add), opts)
}

// AggregateSessions makes of the records of each session a value of another type (upstream's SessionWindowedKStream.aggregate); see Aggregate
// and CountWindows. merge makes one value of those of two sessions that a record joins: also of initial and the value of a session that is
// continued, so initial should change nothing.
func AggregateSessions[K, V, A any](
	w *SessionWindowed[K, V], name store.Name, values serde.Serde[A],
	initial func() A, add func(k K, v V, a A) A, merge func(k K, a, b A) A, opts ...Option,
) *Table[serde.Windowed[K], A] {
	return windowTable(w, name, counting("AggregateSessions"), values, aggregateSessions(initial, add, merge), opts)
}

func aggregateSessions[K, V, A any](initial func() A, add func(k K, v V, a A) A, merge func(k K, a, b A) A) folds[K, V, A] {
	nulls := nullsOf[A]()
	f := aggregateRecords(initial, add)
	f.merge = func(k K, a A, ok bool, b A) (A, bool) {
		if !ok {
			a = initial()
		}
		a = merge(k, a, b)
		return a, !nulls.null(&a)
	}
	return f
}

// ofWindows are the options of the stores of windows.
var ofWindows = append([]string{"Retention"}, ofStores...)

// windowTable folds the records of each key and window into a value.
func windowTable[K, V, A any](
	w Windowing[K, V], name store.Name, is operation, values serde.Serde[A], f folds[K, V, A], opts []Option,
) *Table[serde.Windowed[K], A] {
	g, kind, emit := w.windowing()
	b := g.s.b
	o := b.read(is.title, opts, ofWindows...)
	name = b.storeName(name, is.store, is.title)
	node := b.nameOr(o.named, is.node)
	s := g.partitioned(name)
	k := keepWindows(b, node, name, kind, emit, s.keys, values, o)
	out := newOutlet[Change[serde.Windowed[K], A]]()
	n := b.put(&graphNode{
		name: node, parents: []*graphNode{s.node}, final: k.final(),
		add: func(t *processor.Topology, parents ...string) { // a Suppress further down may have changed the store
			addProcessor(node, supplier(windowAggregation(k, k.keeper, f), out, nil), k.specs(), nil)(t, parents...)
		},
	})
	return k.table(b, n, out)
}

// windowKind is what windows there are: one of them is set.
type windowKind struct {
	grid      *windows.Time
	sliding   *windows.Sliding
	unlimited *windows.Unlimited
	session   *windows.Session
}

func kindOf[W windows.Time | windows.Sliding | windows.Unlimited | windows.Session](w W) (k windowKind) {
	switch w := any(w).(type) {
	case windows.Time:
		k.grid = &w
	case windows.Sliding:
		k.sliding = &w
	case windows.Unlimited:
		k.unlimited = &w
	case windows.Session:
		k.session = &w
	}
	return k
}

// rules are those of package windows.
func (k windowKind) rules() interface {
	Validate() error
	MinRetention() time.Duration
} {
	switch {
	case k.grid != nil:
		return k.grid
	case k.sliding != nil:
		return k.sliding
	case k.unlimited != nil:
		return k.unlimited
	default:
		return k.session
	}
}

// end of the window that begins at start, as keys have it; sessions say theirs.
func (k windowKind) end(start int64) int64 {
	switch {
	case k.grid != nil:
		return after(start, k.grid.Size)
	case k.sliding != nil:
		return after(start, k.sliding.Difference)
	default:
		return after(start, windows.Forever)
	}
}

// closes is the stream time at which a window is closed: then, and not before, no record changes it any more.
func (k windowKind) closes(end int64) int64 {
	switch {
	case k.grid != nil:
		return after(end, k.grid.Grace)
	case k.sliding != nil: // its end is part of it
		return after(end, k.sliding.Grace+time.Millisecond)
	case k.session != nil:
		return after(end, k.session.Gap+k.session.Grace+time.Millisecond)
	default:
		return end
	}
}

// windowAggregation is the operator: open is how it comes to its store.
func windowAggregation[K, V, A any](k *keptWindows[K, A], open openWindows[K, A], f folds[K, V, A]) operator[Record[K, V], Change[serde.Windowed[K], A]] {
	switch {
	case k.kind.session != nil:
		return sessionAggregation(k, open, f)
	case k.kind.sliding != nil:
		return slidingAggregation(k, open, f)
	default:
		return gridAggregation(k, open, f)
	}
}

// byInnerKey is the partitioner of records whose keys have windows, where no other was asked for: all windows of a key are in one partition,
// that of the key (upstream's WindowedStreamPartitioner). For other keys it returns p.
func byInnerKey[K any](keys serde.Serde[K], p processor.Partitioner) processor.Partitioner {
	tail := keys.WindowBytes()
	if p != nil || tail == 0 {
		return p
	}
	return func(_ string, r *processor.Record, partitions int32) int32 {
		if len(r.Key) < tail {
			return 0
		}
		return int32(router.PartitionFor(r.Key[:len(r.Key)-tail], partitions))
	}
}
