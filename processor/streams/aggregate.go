package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Count counts the records of each key (upstream's KGroupedStream.count). Records without a key or value are dropped and counted. The store
// can be asked under its name; empty: by position. Options: those of stores.
func Count[K, V any](g *Grouped[K, V], name store.Name, opts ...Option) *Table[K, int64] {
	return aggregate(g, name, counting("Count"), serde.Int64(), countRecords[K, V]().add, opts)
}

// Reduce combines the values of each key, the first one being what it begins with (upstream's KGroupedStream.reduce). Records without a key
// or value are dropped and counted. A nil that f returns deletes the key. Options: those of stores.
func Reduce[K, V any](g *Grouped[K, V], name store.Name, f func(a, v V) V, opts ...Option) *Table[K, V] {
	return aggregate(g, name, reducing("Reduce"), g.s.values, reduceRecords[K](f).add, opts)
}

// Aggregate makes of the records of each key a value of another type: it begins with initial, and add is given each record and the value so
// far (upstream's KGroupedStream.aggregate). What initial returns may be changed by add; values are how it is stored. Records without a key
// or value are dropped and counted. A nil that add returns deletes the key. Options: those of stores.
func Aggregate[K, V, A any](
	g *Grouped[K, V], name store.Name, values serde.Serde[A], initial func() A, add func(k K, v V, a A) A, opts ...Option,
) *Table[K, A] {
	return aggregate(g, name, counting("Aggregate"), values, aggregateRecords(initial, add).add, opts)
}

// folds is how an aggregation makes a value of records. Each function is given the value so far, ok saying that there is one, and returns
// the next, or false when there shall be none.
type folds[K, V, A any] struct {
	add func(a A, ok bool, r *Record[K, V]) (A, bool)
	// merge adds the value of a session that becomes part of another one.
	merge func(k K, a A, ok bool, b A) (A, bool)
}

func countRecords[K, V any]() folds[K, V, int64] {
	return folds[K, V, int64]{
		add:   func(n int64, _ bool, _ *Record[K, V]) (int64, bool) { return n + 1, true },
		merge: func(_ K, a int64, _ bool, b int64) (int64, bool) { return a + b, true },
	}
}

func reduceRecords[K, V any](f func(a, v V) V) folds[K, V, V] {
	nulls := nullsOf[V]()
	join := func(a V, ok bool, v V) (V, bool) {
		if !ok {
			return v, true
		}
		a = f(a, v)
		return a, !nulls.null(&a)
	}
	return folds[K, V, V]{
		add:   func(a V, ok bool, r *Record[K, V]) (V, bool) { return join(a, ok, r.Value) },
		merge: func(_ K, a V, ok bool, b V) (V, bool) { return join(a, ok, b) },
	}
}

func aggregateRecords[K, V, A any](initial func() A, add func(k K, v V, a A) A) folds[K, V, A] {
	nulls := nullsOf[A]()
	return folds[K, V, A]{add: func(a A, ok bool, r *Record[K, V]) (A, bool) {
		if !ok {
			a = initial()
		}
		a = add(r.Key, r.Value, a)
		return a, !nulls.null(&a)
	}}
}

// operation is what the names of an aggregation's node and store are made of.
type operation struct{ title, node, store string }

func counting(title string) operation {
	return operation{title, "KSTREAM-AGGREGATE-", "KSTREAM-AGGREGATE-STATE-STORE-"}
}

func reducing(title string) operation {
	return operation{title, "KSTREAM-REDUCE-", "KSTREAM-REDUCE-STATE-STORE-"}
}

// ofStores are the options of key-value stores.
var ofStores = []string{"CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory"}

// aggregate folds the records of each key into a value.
func aggregate[K, V, A any](
	g *Grouped[K, V], name store.Name, is operation, values serde.Serde[A], add func(a A, ok bool, r *Record[K, V]) (A, bool), opts []Option,
) *Table[K, A] {
	b := g.s.b
	o := b.read(is.title, opts, ofStores...)
	name = b.storeName(name, is.store, is.title)
	node := b.nameOr(o.named, is.node)
	s := g.partitioned(name)
	k := keep(b, node, name, s.keys, values, o)
	out := newOutlet[Change[K, A]]()
	n := b.put(&graphNode{
		name: node, parents: []*graphNode{s.node},
		add: addProcessor(node, supplier(aggregation(k, k.keeper, add), out, nil), []store.Spec{k.spec}, nil),
	})
	return k.table(b, n, out)
}

// table is the table of a store.
func (k *kept[K, V]) table(b *Builder, n *graphNode, out *outlet[Change[K, V]]) *Table[K, V] {
	return &Table[K, V]{
		b: b, node: n, out: out, keys: k.keys, values: k.values, view: k.view(),
		wantOld:  func() { k.require(); k.old = true },
		knowsOld: func() bool { return !k.idle },
	}
}

// aggregation is the operator: open is how it comes to its store.
func aggregation[K, V, A any](
	k *kept[K, A], open func(*scope[Change[K, A]]) (*keeper[K, A], error), add func(a A, ok bool, r *Record[K, V]) (A, bool),
) operator[Record[K, V], Change[K, A]] {
	return func(sc *scope[Change[K, A]]) (func(*Record[K, V]) error, error) {
		w, err := open(sc)
		if err != nil {
			return nil, err
		}
		var c Change[K, A]
		return func(r *Record[K, V]) error {
			kb, err := admitted(sc.Context, r, &w.keys)
			if kb == nil || err != nil {
				return err
			}
			old, ts, ok, err := w.get(kb)
			if err != nil {
				return err
			}
			next, keep := add(old, ok, r)
			c = Change[K, A]{
				Key: r.Key, key: encoded[K]{kb, k.keys}, New: next, NoNew: !keep, Old: old, NoOld: !ok, Timestamp: r.Timestamp,
				Headers: r.Headers,
			}
			if ok {
				c.Timestamp = max(ts, r.Timestamp)
			}
			return w.put(kb, &c)
		}, nil
	}
}

// admitted returns the bytes of the record's key, nil for a record that aggregations do not take: it is dropped and counted.
func admitted[K, V any](ctx *processor.Context, r *Record[K, V], keys *coder[K]) ([]byte, error) {
	if !admit(ctx, r) {
		return nil, nil
	}
	kb, err := keys.encode(r.Key, r.key)
	if err != nil {
		return nil, err
	}
	if len(kb) == 0 {
		ctx.Drop("empty key") // no store has one
		return nil, nil
	}
	return kb, nil
}
