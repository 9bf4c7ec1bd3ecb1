package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// Filter keeps the keys whose values keep is true for; for the table behind it the others do not exist (upstream's KTable.filter).
// Options: As, which gives it a store, History, and those of stores.
func (t *Table[K, V]) Filter(keep func(k K, v V) bool, opts ...Option) *Table[K, V] {
	return t.filter("Filter", keep, opts)
}

// FilterNot keeps the keys whose values drop is false for (upstream's KTable.filterNot). Options: those of Filter.
func (t *Table[K, V]) FilterNot(drop func(k K, v V) bool, opts ...Option) *Table[K, V] {
	return t.filter("FilterNot", func(k K, v V) bool { return !drop(k, v) }, opts)
}

func (t *Table[K, V]) filter(operation string, keep func(k K, v V) bool, opts []Option) *Table[K, V] {
	o := t.b.read(operation, opts, "As", "Values", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	d := &derived[K, V, V]{
		compute: func(k K, v V) (V, bool) { return v, keep(k, v) },
		same:    func(in, out *Change[K, V]) { out.value = in.value },
		filters: true,
	}
	if t.knowsOld == nil || t.knowsOld() { // it spares those behind tombstones of what they never had
		t.wantOld()
		d.compareOld = true
	}
	return deriveTable(t, t.b.nameOr(o.named, "KTABLE-FILTER-"), d, o)
}

// MapTableValues makes another value of each (upstream's KTable.mapValues). Options: As, which gives it a store, Values, History, and
// those of stores.
func MapTableValues[K, V, W any](t *Table[K, V], f func(k K, v V) W, opts ...Option) *Table[K, W] {
	o := t.b.read("MapTableValues", opts, "As", "Values", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	null := nullsOf[W]()
	d := &derived[K, V, W]{compute: func(k K, v V) (W, bool) {
		w := f(k, v)
		return w, !null.null(&w)
	}}
	return deriveTable(t, t.b.nameOr(o.named, "KTABLE-MAPVALUES-"), d, o)
}

// derived is a table that is computed from another one, key by key.
type derived[K, V, W any] struct {
	// compute makes the value, or says that there is none.
	compute func(k K, v V) (W, bool)
	// same is called when compute returned its argument; nil when it never does.
	same func(in *Change[K, V], out *Change[K, W])
	// filters: nothing is told of a key that neither had a value nor has one. It takes old values to know that.
	filters bool
	// compareOld: the parent tells old values. tellOld: those behind want them.
	compareOld, tellOld bool
	// versioned parents tell of values that are not the newest, which says nothing about what was before.
	versioned bool
	kept      *kept[K, W] // nil for a view
}

// deriveTable adds the node of a derived table.
func deriveTable[K, V, W any](t *Table[K, V], node string, d *derived[K, V, W], o options) *Table[K, W] {
	o.refuseHistory(t.b, node)
	otherwise := natural[W]()
	if same, ok := any(t.values).(serde.Serde[W]); ok && d.same != nil {
		otherwise = same
	}
	values := valuesOf(t.b, node, o, otherwise)
	d.versioned = t.view.versioned
	out := newOutlet[Change[K, W]]()
	r := &Table[K, W]{b: t.b, out: out, keys: t.keys, values: values}
	if o.store != "" {
		d.kept = keep(t.b, node, o.store, t.keys, values, o)
		r.view = d.kept.view()
		r.wantOld = func() { d.kept.old, d.tellOld = true, true }
	} else {
		r.view = d.view(t.view)
		r.wantOld = func() { t.wantOld(); d.compareOld, d.tellOld = true, true }
		r.knowsOld = t.knowsOld
	}
	r.node = t.b.put(&graphNode{name: node, parents: []*graphNode{t.node}, add: func(top *processor.Topology, parents ...string) {
		addProcessor(node, supplier(d.operator, out, nil), d.kept.specs(), nil)(top, parents...)
	}})
	return r
}

// view computes the table from what it is derived of.
func (d *derived[K, V, W]) view(from view[K, V]) view[K, W] {
	v := view[K, W]{stores: from.stores, require: from.require, versioned: from.versioned, history: from.history}
	v.open = func(ctx *processor.Context) (reader[K, W], error) {
		read, err := from.open(ctx)
		if err != nil {
			return nil, err
		}
		return func(k K, known encoded[K]) (w W, ts int64, ok bool, err error) {
			v, ts, ok, err := read(k, known)
			if err == nil && ok {
				if w, ok = d.compute(k, v); ok {
					return w, ts, true, nil
				}
			}
			return *new(W), 0, false, err
		}, nil
	}
	if from.versioned {
		v.openAsOf = func(ctx *processor.Context) (asOfReader[K, W], error) {
			read, err := from.openAsOf(ctx)
			if err != nil {
				return nil, err
			}
			return func(k K, known encoded[K], at int64) (w W, ts int64, ok bool, err error) {
				v, ts, ok, err := read(k, known, at)
				if err == nil && ok {
					if w, ok = d.compute(k, v); ok {
						return w, ts, true, nil
					}
				}
				return *new(W), 0, false, err
			}, nil
		}
	}
	return v
}

func (d *derived[K, V, W]) operator(sc *scope[Change[K, W]]) (func(*Change[K, V]) error, error) {
	var w *keeper[K, W]
	if d.kept != nil {
		var err error
		if w, err = d.kept.keeper(sc); err != nil {
			return nil, err
		}
	}
	var out Change[K, W]
	return func(c *Change[K, V]) error {
		out = Change[K, W]{
			Key: c.Key, key: c.key, NoNew: true, NoOld: true, Stale: c.Stale, Timestamp: c.Timestamp, Headers: c.Headers,
		}
		if !c.NoNew {
			if v, ok := d.compute(c.Key, c.New); ok {
				out.New, out.NoNew = v, false
				if d.same != nil {
					d.same(c, &out)
				}
			}
		}
		if w == nil {
			d.old(c, &out)
			if d.pointless(&out) {
				return nil
			}
			return sc.emit(&out)
		}
		kb, err := w.keys.encode(c.Key, c.key)
		if err != nil {
			return err
		}
		if len(kb) == 0 {
			sc.Drop("empty key")
			return nil
		}
		if d.compareOld || d.tellOld {
			old, _, ok, err := w.get(kb)
			if err != nil {
				return err
			}
			out.Old, out.NoOld = old, !ok
			if d.pointless(&out) {
				return nil
			}
		}
		return w.put(kb, &out)
	}, nil
}

// old computes the old value of a view.
func (d *derived[K, V, W]) old(c *Change[K, V], out *Change[K, W]) {
	if !d.compareOld || c.NoOld {
		return
	}
	old, ok := d.compute(c.Key, c.Old)
	if ok {
		out.Old, out.NoOld = old, false
	}
}

// pointless reports whether a change is from nothing to nothing.
func (d *derived[K, V, W]) pointless(c *Change[K, W]) bool {
	return d.filters && d.compareOld && !d.versioned && c.NoNew && c.NoOld
}
