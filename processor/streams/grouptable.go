package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// GroupedTable is a table whose rows are aggregated by another key (upstream's KGroupedTable): a row that changes leaves the aggregate of
// its old group and enters that of its new one.
type GroupedTable[K, V any] struct {
	b    *Builder
	node *graphNode
	out  *outlet[moved[K, V]]
	// named names the repartition topic; empty: the aggregation's store does.
	named string
	// shared holds the nodes behind repartition topics that there are already, by name.
	shared map[string]*graphNode

	keys   serde.Serde[K]
	values serde.Serde[V]
}

// GroupTable groups the rows of a table by the key that f makes of each, together with the value that is to be aggregated (upstream's
// KTable.groupBy). Rows of which f makes nil are in no group. It repartitions. Named names the operator and the repartition topic.
func GroupTable[K, V, L, W any](t *Table[K, V], f func(k K, v V) (L, W), opts ...Option) *GroupedTable[L, W] {
	o := t.b.read("GroupTable", opts)
	name := t.b.nameOr(o.named, "KTABLE-SELECT-")
	t.wantOld()
	out := newOutlet[moved[L, W]]()
	op := func(sc *scope[moved[L, W]]) (func(*Change[K, V]) error, error) {
		keys, values := nullsOf[L](), nullsOf[W]()
		place := func(k K, v V, none bool) (p placed[L, W]) {
			if !none {
				p.key, p.value = f(k, v)
				p.ok = !keys.null(&p.key) && !values.null(&p.value)
			}
			return p
		}
		var m moved[L, W]
		return func(c *Change[K, V]) error {
			if c.Stale { // what was before it, the newer value has taken away already (KIP-914)
				sc.Drop("out of order")
				return nil
			}
			m = moved[L, W]{
				from: place(c.Key, c.Old, c.NoOld), to: place(c.Key, c.New, c.NoNew), timestamp: c.Timestamp, headers: c.Headers,
			}
			return sc.emit(&m)
		}, nil
	}
	n := t.b.put(&graphNode{name: name, parents: []*graphNode{t.node}, add: addProcessor(name, supplier(op, out, nil), nil, nil)})
	return &GroupedTable[L, W]{b: t.b, node: n, out: out, named: o.named, shared: make(map[string]*graphNode), keys: natural[L](), values: natural[W]()}
}

// WithKeys says how keys are written.
func (g *GroupedTable[K, V]) WithKeys(keys serde.Serde[K]) *GroupedTable[K, V] {
	d := *g
	d.keys, d.shared = keys, make(map[string]*graphNode)
	return &d
}

// WithValues says how values are written.
func (g *GroupedTable[K, V]) WithValues(values serde.Serde[V]) *GroupedTable[K, V] {
	d := *g
	d.values, d.shared = values, make(map[string]*graphNode)
	return &d
}

// CountTable counts the rows of each group (upstream's KGroupedTable.count). A group that had rows stays, with 0. Options: those of stores.
func CountTable[K, V any](g *GroupedTable[K, V], name store.Name, opts ...Option) *Table[K, int64] {
	step := func(by int64) func(K, int64, bool, V) (int64, bool) {
		return func(_ K, n int64, _ bool, _ V) (int64, bool) { return n + by, true }
	}
	return aggregateTable(g, name, tableAggregation("CountTable"), serde.Int64(), tableFolds[K, V, int64]{step(1), step(-1)}, opts)
}

// ReduceTable combines the values of each group (upstream's KGroupedTable.reduce): add puts a value in, the first being what it begins with,
// and subtract takes one out. A nil that they return deletes the group. Options: those of stores.
func ReduceTable[K, V any](g *GroupedTable[K, V], name store.Name, add, subtract func(a, v V) V, opts ...Option) *Table[K, V] {
	nulls := nullsOf[V]()
	f := tableFolds[K, V, V]{
		add: func(_ K, a V, ok bool, v V) (V, bool) {
			if !ok {
				return v, true
			}
			a = add(a, v)
			return a, !nulls.null(&a)
		},
		subtract: func(_ K, a V, _ bool, v V) (V, bool) {
			a = subtract(a, v)
			return a, !nulls.null(&a)
		},
	}
	return aggregateTable(g, name, operation{"ReduceTable", "KTABLE-REDUCE-", "KTABLE-REDUCE-STATE-STORE-"}, g.values, f, opts)
}

// AggregateTable makes of the rows of each group a value of another type (upstream's KGroupedTable.aggregate): it begins with initial, add
// puts a row in and subtract takes one out. values are how it is stored. A nil that they return deletes the group. Options: those of stores.
func AggregateTable[K, V, A any](
	g *GroupedTable[K, V], name store.Name, values serde.Serde[A], initial func() A, add, subtract func(k K, v V, a A) A, opts ...Option,
) *Table[K, A] {
	nulls := nullsOf[A]()
	f := tableFolds[K, V, A]{
		add: func(k K, a A, ok bool, v V) (A, bool) {
			if !ok {
				a = initial()
			}
			a = add(k, v, a)
			return a, !nulls.null(&a)
		},
		subtract: func(k K, a A, _ bool, v V) (A, bool) {
			a = subtract(k, v, a)
			return a, !nulls.null(&a)
		},
	}
	return aggregateTable(g, name, tableAggregation("AggregateTable"), values, f, opts)
}

func tableAggregation(title string) operation {
	return operation{title, "KTABLE-AGGREGATE-", "KTABLE-AGGREGATE-STATE-STORE-"}
}

// tableFolds is how an aggregation of a table follows its rows; see folds. subtract is only asked when there is a value.
type tableFolds[K, V, A any] struct {
	add, subtract func(k K, a A, ok bool, v V) (A, bool)
}

// aggregateTable sends the rows through a repartition topic and folds those of each group into a value (upstream's KTableAggregate and
// KTableReduce).
func aggregateTable[K, V, A any](
	g *GroupedTable[K, V], name store.Name, is operation, values serde.Serde[A], f tableFolds[K, V, A], opts []Option,
) *Table[K, A] {
	o := g.b.read(is.title, opts, ofStores...)
	name = g.b.storeName(name, is.store, is.title)
	sink, source := g.b.name("KSTREAM-SINK-"), g.b.name("KSTREAM-SOURCE-")
	if o.named != "" {
		sink, source = o.named+"-sink", o.named+"-source"
	}
	node := g.b.nameOr(o.named, is.node)
	parent := g.through(name, sink, source)
	k := keep(g.b, node, name, g.keys, values, o)
	out := newOutlet[Change[K, A]]()
	op := func(sc *scope[Change[K, A]]) (func(*Change[K, V]) error, error) {
		w, err := k.keeper(sc)
		if err != nil {
			return nil, err
		}
		var c Change[K, A]
		return func(m *Change[K, V]) error {
			kb, err := w.keys.encode(m.Key, m.key)
			if err != nil {
				return err
			}
			if len(kb) == 0 {
				sc.Drop("empty key")
				return nil
			}
			old, ts, ok, err := w.get(kb)
			if err != nil {
				return err
			}
			c = Change[K, A]{
				Key: m.Key, key: encoded[K]{kb, k.keys}, Old: old, NoOld: !ok, Timestamp: m.Timestamp, Headers: m.Headers,
			}
			if ok {
				c.Timestamp = max(ts, m.Timestamp)
			}
			next, keep := old, ok
			if ok && !m.NoOld {
				next, keep = f.subtract(m.Key, next, true, m.Old)
			}
			if !m.NoNew {
				next, keep = f.add(m.Key, next, keep, m.New)
			}
			c.New, c.NoNew = next, !keep
			return w.put(kb, &c)
		}, nil
	}
	n := g.b.put(&graphNode{name: node, parents: []*graphNode{parent}, add: addProcessor(node, supplier(op, out, nil), []store.Spec{k.spec}, nil)})
	return k.table(g.b, n, out)
}

// placed is a row in its group; ok: it is in one.
type placed[K, V any] struct {
	key   K
	value V
	ok    bool
}

// moved is a row that changed: what it was and what it is.
type moved[K, V any] struct {
	from, to  placed[K, V]
	timestamp int64
	headers   []processor.Header
}

// through adds the repartition topic for a store of this name, with its two nodes.
func (g *GroupedTable[K, V]) through(name store.Name, sink, source string) *graphNode {
	topic := g.named
	if topic == "" {
		topic = string(name)
	}
	if n := g.shared[topic]; n != nil {
		return n // of another aggregation of the same groups
	}
	g.b.needs(topic, "keys", g.keys.Err())
	g.b.needs(topic, "values", g.values.Err())
	full := topic + repartitionSuffix
	keys, values := g.keys.ForTopic(full, serde.Key), g.values.ForTopic(full, serde.Value)
	g.out.ways[sink] = func(ctx *processor.Context) receiver[moved[K, V]] {
		return &movedEncoder[K, V]{
			ctx: ctx, child: sink, fromKey: coder[K]{serde: keys}, toKey: coder[K]{serde: keys},
			before: coder[V]{serde: values}, after: coder[V]{serde: values},
		}
	}
	out := newOutlet[Change[K, V]]()
	g.shared[topic] = g.b.put(&graphNode{name: source, parents: []*graphNode{g.node}, add: func(t *processor.Topology, parents ...string) {
		t.AddRepartition(topic, processor.RepartitionOptions{
			Partitioner: byInnerKey(keys, nil), Processor: supplier(pass[Change[K, V]](), out, changeDecoder(keys, values)), Source: source, Sink: sink,
		}, parents...)
	}})
	return g.shared[topic]
}
