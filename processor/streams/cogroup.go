package streams

import (
	"slices"
	"strconv"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Cogrouped is grouped streams whose records of one key are aggregated into one value (upstream's CogroupedKStream, KIP-150).
type Cogrouped[K, A any] struct {
	b       *Builder
	keys    serde.Serde[K]
	members []cogroupMember[K, A]
}

// cogroupMember is one of the streams.
type cogroupMember[K, A any] struct {
	// partitioned is the stream's node for an aggregation with a store of this name.
	partitioned func(name store.Name) *graphNode
	// plain and windowed supply the operator. The first member of a group hands on what the record cache lets go of.
	plain    func(k *kept[K, A], first bool, initial func() A, out *outlet[Change[K, A]]) processor.Supplier
	windowed func(k *keptWindows[K, A], first bool, f cofolds[K, A], out *outlet[Change[serde.Windowed[K], A]]) processor.Supplier
}

// cofolds is what the members of a windowed group have in common.
type cofolds[K, A any] struct {
	initial func() A
	merge   func(k K, a, b A) A // of sessions
}

// Cogroup begins a group of streams: add is given each record of g and the value so far (upstream's KGroupedStream.cogroup).
func Cogroup[K, V, A any](g *Grouped[K, V], add func(k K, v V, a A) A) *Cogrouped[K, A] {
	return CogroupWith(&Cogrouped[K, A]{b: g.s.b, keys: g.s.keys}, g, add)
}

// CogroupWith adds a stream to the group (upstream's CogroupedKStream.cogroup). Where several of them are repartitioned, the groupings need
// names of their own.
func CogroupWith[K, V, A any](c *Cogrouped[K, A], g *Grouped[K, V], add func(k K, v V, a A) A) *Cogrouped[K, A] {
	d := *c
	d.members = append(slices.Clip(d.members), cogroupMember[K, A]{
		partitioned: func(name store.Name) *graphNode { return g.partitioned(name).node },
		plain: func(k *kept[K, A], first bool, initial func() A, out *outlet[Change[K, A]]) processor.Supplier {
			open := k.writer
			if first {
				open = k.keeper
			}
			return supplier(aggregation(k, open, aggregateRecords(initial, add).add), out, nil)
		},
		windowed: func(k *keptWindows[K, A], first bool, f cofolds[K, A], out *outlet[Change[serde.Windowed[K], A]]) processor.Supplier {
			open := k.writer
			if first {
				open = k.keeper
			}
			folds := aggregateRecords(f.initial, add)
			if f.merge != nil {
				folds = aggregateSessions(f.initial, add, f.merge)
			}
			return supplier(windowAggregation(k, open, folds), out, nil)
		},
	})
	return &d
}

// AggregateCogrouped makes one value of the records of each key in all streams of the group (upstream's CogroupedKStream.aggregate); see
// Aggregate.
func AggregateCogrouped[K, A any](c *Cogrouped[K, A], name store.Name, values serde.Serde[A], initial func() A, opts ...Option) *Table[K, A] {
	o := c.b.read("AggregateCogrouped", opts, ofStores...)
	name = c.b.storeName(name, cogroupStore, "AggregateCogrouped")
	k := keep(c.b, string(name), name, c.keys, values, o)
	out := newOutlet[Change[K, A]]()
	n := addCogroup(c, name, o, out, k.specs, nil, func(i int) processor.Supplier {
		return c.members[i].plain(k, i == 0, initial, out)
	})
	return k.table(c.b, n, out)
}

// AggregateCogroupedWindows is AggregateCogrouped by key and window (upstream's TimeWindowedCogroupedKStream.aggregate); see WindowedBy.
func AggregateCogroupedWindows[K, A any, W windows.Time | windows.Sliding | windows.Unlimited](
	c *Cogrouped[K, A], w W, name store.Name, values serde.Serde[A], initial func() A, opts ...Option,
) *Table[serde.Windowed[K], A] {
	return cogroupWindows(c, kindOf(w), name, "AggregateCogroupedWindows", values, cofolds[K, A]{initial: initial}, opts)
}

// AggregateCogroupedSessions is AggregateCogrouped by key and session (upstream's SessionWindowedCogroupedKStream.aggregate); see
// AggregateSessions.
func AggregateCogroupedSessions[K, A any](
	c *Cogrouped[K, A], w windows.Session, name store.Name, values serde.Serde[A], initial func() A, merge func(k K, a, b A) A, opts ...Option,
) *Table[serde.Windowed[K], A] {
	return cogroupWindows(c, kindOf(w), name, "AggregateCogroupedSessions", values, cofolds[K, A]{initial, merge}, opts)
}

func cogroupWindows[K, A any](
	c *Cogrouped[K, A], kind windowKind, name store.Name, title string, values serde.Serde[A], f cofolds[K, A], opts []Option,
) *Table[serde.Windowed[K], A] {
	o := c.b.read(title, opts, ofWindows...)
	name = c.b.storeName(name, cogroupStore, title)
	k := keepWindows(c.b, string(name), name, kind, OnWindowUpdate, c.keys, values, o)
	out := newOutlet[Change[serde.Windowed[K], A]]()
	n := addCogroup(c, name, o, out, k.specs, k.final(), func(i int) processor.Supplier {
		return c.members[i].windowed(k, i == 0, f, out)
	})
	return k.table(c.b, n, out)
}

const cogroupStore = "COGROUPKSTREAM-AGGREGATE-STATE-STORE-"

// addCogroup adds a node for each stream of the group, which share the stores, and one behind them that makes one table of them.
func addCogroup[K, A, L any](
	c *Cogrouped[K, A], name store.Name, o options, out *outlet[Change[L, A]], specs func() []store.Spec, final any, member func(i int) processor.Supplier,
) *graphNode {
	parents := make([]*graphNode, len(c.members))
	for i, m := range c.members {
		parents[i] = m.partitioned(name)
	}
	merged := make([]*graphNode, len(c.members))
	var uses []store.Name
	for i := range c.members {
		node := c.b.name("COGROUPKSTREAM-AGGREGATE-")
		if o.named != "" {
			node = o.named + "-cogroup-agg-" + strconv.Itoa(i)
		}
		n := &graphNode{name: node, parents: []*graphNode{parents[i]}, add: addProcessor(node, member(i), nil, uses)}
		if i == 0 {
			n.add = func(t *processor.Topology, parents ...string) { // a Suppress further down may have changed them
				addProcessor(node, member(0), specs(), nil)(t, parents...)
			}
			for _, s := range specs() {
				uses = append(uses, s.Name)
			}
		}
		merged[i] = c.b.put(n)
	}
	node := c.b.name("COGROUPKSTREAM-MERGE-")
	if o.named != "" {
		node = o.named + "-cogroup-merge"
	}
	return c.b.put(&graphNode{name: node, parents: merged, final: final, add: addProcessor(node, supplier(pass[Change[L, A]](), out, nil), nil, nil)})
}
