package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/suppliers"
	"github.com/statemesh/statemesh/store"
)

// ValueTransformer makes the values of a table of those of another one, with what it keeps in stores (upstream's ValueTransformerWithKey). There
// is one for each task; its methods are called on the task's stream thread.
type ValueTransformer[K, V, W any] interface {
	// Init is called once, before the first value: stores are opened and punctuations scheduled here.
	Init(ctx *TransformContext) error
	// Transform returns the value of a key that got another one, or lost its own: v is not OK then. A result that is not OK, or a nil, says
	// that the key has none. Keys and values are only lent.
	Transform(k K, v Maybe[V]) (Maybe[W], error)
	// Close is called once, also after a failed Init.
	Close() error
}

// TransformContext is what a [ValueTransformer] may do: all that a processor may, but to forward. It belongs to the stream thread of its task.
type TransformContext struct{ processorContext }

// TransformTableValues makes another value of each by a transformer of one's own, which may read and write stores (upstream's
// KTable.transformValues). newTransformer makes one for each task, a new one at each call. Each change of t is transformed once; whatever reads the
// table behind it, or needs its old values, does so in a store that it has then: with stores, a value need not come out alike twice (upstream
// computes it again, unless it is materialized). Options: Uses, As, which names its store, Values, History, and those of stores.
func TransformTableValues[K, V, W any](t *Table[K, V], newTransformer func() ValueTransformer[K, V, W], opts ...Option) *Table[K, W] {
	b := t.b
	o := b.read("TransformTableValues", opts, "Uses", "As", "Values", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	node := b.nameOr(o.named, "KTABLE-TRANSFORMVALUES-")
	b.supplies(node, suppliers.Reason(newTransformer))
	name := o.store
	if name == "" { // no position is used up for it, as in upstream
		name = store.Name(node + "-STATE-STORE")
	}
	k := keepIdle(b, node, name, t.keys, valuesOf(b, node, o, natural[W]()), o)
	if o.store != "" {
		k.require()
	} else {
		k.unnamed = "give it a name with As"
	}
	out := newOutlet[Change[K, W]]()
	write := func(top *processor.Topology, parents ...string) {
		addProcessor(node, supplier(transforming(k, newTransformer), out, nil), k.specs(), nil)(top, parents...)
	}
	n := b.put(&graphNode{name: node, parents: []*graphNode{t.node}, add: b.using(node, o.uses, write)})
	return k.table(b, n, out)
}

// transforming is the operator; k is what the table is kept in.
func transforming[K, V, W any](k *kept[K, W], newTransformer func() ValueTransformer[K, V, W]) operator[Change[K, V], Change[K, W]] {
	null := nullsOf[W]()
	return func(sc *scope[Change[K, W]]) (func(*Change[K, V]) error, error) {
		ctx := &TransformContext{processorContext{raw: sc.Context}}
		t := newTransformer()
		sc.onClose = append(sc.onClose, t.Close)
		if err := t.Init(ctx); err != nil {
			return nil, err
		}
		var w *keeper[K, W]
		if !k.idle {
			var err error
			if w, err = k.keeper(sc); err != nil {
				return nil, err
			}
		}
		var out Change[K, W]
		return func(c *Change[K, V]) error {
			from, now := *c, ctx.now // what the transformer puts may let go of changes further up: see scope.emit
			ctx.now = from.Timestamp
			to, err := t.Transform(from.Key, Maybe[V]{Value: from.New, OK: !from.NoNew})
			ctx.now = now
			if err != nil {
				return err
			}
			out = Change[K, W]{Key: from.Key, NoNew: true, NoOld: true, Stale: from.Stale, Timestamp: from.Timestamp, Headers: from.Headers}
			if to.OK && !null.null(&to.Value) {
				out.New, out.NoNew = to.Value, false
			}
			if w == nil {
				return sc.emit(&out)
			}
			return w.replace(&out)
		}, nil
	}
}
