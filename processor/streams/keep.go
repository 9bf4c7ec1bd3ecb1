package streams

import (
	"errors"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// kept is the store behind a table while the topology is put together: what it is, and whether old values are told.
type kept[K, V any] struct {
	b      *Builder
	node   string
	spec   store.Spec
	keys   serde.Serde[K]
	values serde.Serde[V]
	old    bool
	// idle: nobody needs the store so far, and there is none.
	idle bool
	// unnamed says how to give a name to a store that is named by position; empty for one that has a name.
	unnamed string
}

// keep declares the store of a table.
func keep[K, V any](b *Builder, node string, name store.Name, keys serde.Serde[K], values serde.Serde[V], o options) *kept[K, V] {
	k := keepIdle(b, node, name, keys, values, o)
	k.require()
	return k
}

// keepIdle is keep for a store that there shall be only when somebody requires it.
func keepIdle[K, V any](b *Builder, node string, name store.Name, keys serde.Serde[K], values serde.Serde[V], o options) *kept[K, V] {
	k := &kept[K, V]{b: b, node: node, keys: keys, values: values, idle: true, spec: store.Spec{
		Name: name, Kind: store.KindTimestampedKeyValue, Caching: !o.noCaching, NoChangelog: o.noLogging, ChangelogConfig: o.logConfig, InMemory: o.inMemory,
		KeyFormat: keys.Format(), ValueFormat: values.Format(),
	}}
	if o.history < 0 || o.history%time.Millisecond != 0 {
		b.fail(node, "History %s: want whole milliseconds, more than 0", o.history)
	}
	if o.history != 0 {
		b.late = append(b.late, func() {
			if k.idle {
				b.fail(node, "History has no effect: nothing needs the store of the table; give it a name, or leave History out")
			}
		})
		k.spec.Kind, k.spec.Retention, k.spec.Caching = store.KindVersioned, o.history, false
	}
	return k
}

// require makes sure that there is the store.
func (k *kept[K, V]) require() {
	if k.idle {
		k.idle = false
		if k.unnamed != "" {
			k.b.warn(string(k.spec.Name), "something needs the store of the table, which is named by position; "+k.unnamed)
		}
		k.b.needs(k.node, "keys", k.keys.Err())
		k.b.needs(k.node, "values", k.values.Err())
	}
}

// specs are the stores to declare: this one, unless nobody needs it.
func (k *kept[K, V]) specs() []store.Spec {
	if k == nil || k.idle {
		return nil
	}
	return []store.Spec{k.spec}
}

func (k *kept[K, V]) versioned() bool { return k.spec.Kind == store.KindVersioned }

// name of the store, empty while there is none.
func (k *kept[K, V]) name() store.Name {
	if k.idle {
		return ""
	}
	return k.spec.Name
}

// view reads the store.
func (k *kept[K, V]) view() view[K, V] {
	v := view[K, V]{
		stores: []store.Name{k.spec.Name}, own: k.name, require: k.require, versioned: k.versioned(), history: k.spec.Retention,
		open: func(ctx *processor.Context) (reader[K, V], error) {
			rows, err := k.rows(ctx)
			if err != nil {
				return nil, err
			}
			keys := coder[K]{serde: k.keys}
			return func(key K, known encoded[K]) (v V, ts int64, ok bool, err error) {
				kb, err := keys.encode(key, known)
				if err != nil || len(kb) == 0 { // no store has an empty key
					return v, 0, false, err
				}
				return k.get(rows, kb)
			}, nil
		},
	}
	if v.versioned {
		v.openAsOf = k.openAsOf
	}
	return v
}

// openAsOf reads a versioned store as it was.
func (k *kept[K, V]) openAsOf(ctx *processor.Context) (asOfReader[K, V], error) {
	vs, err := ctx.VersionedStore(k.spec.Name)
	if err != nil {
		return nil, err
	}
	keys := coder[K]{serde: k.keys}
	return func(key K, known encoded[K], at int64) (v V, ts int64, ok bool, err error) {
		kb, err := keys.encode(key, known)
		if err != nil || len(kb) == 0 {
			return v, 0, false, err
		}
		return k.get(func(kb []byte) (store.Value, error) {
			version, err := vs.GetAsOf(kb, at)
			return version.Value, err
		}, kb)
	}, nil
}

// rowReader returns the newest value of a key, or store.ErrNotFound.
type rowReader func(key []byte) (store.Value, error)

func (k *kept[K, V]) rows(ctx *processor.Context) (rowReader, error) {
	if !k.versioned() {
		kv, err := ctx.Store(k.spec.Name)
		if err != nil {
			return nil, err
		}
		return kv.Get, nil
	}
	vs, err := ctx.VersionedStore(k.spec.Name)
	if err != nil {
		return nil, err
	}
	return func(key []byte) (store.Value, error) {
		version, err := vs.Get(key)
		return version.Value, err
	}, nil
}

func (k *kept[K, V]) get(rows rowReader, key []byte) (v V, ts int64, ok bool, err error) {
	got, err := rows(key)
	if errors.Is(err, store.ErrNotFound) {
		return v, 0, false, nil
	} else if err != nil {
		return v, 0, false, err
	}
	v, err = k.values.Decode(got.Data)
	return v, got.Timestamp, err == nil, err
}

// keeper writes the store of a table in one task and hands its changes on: at once, or when the record cache lets go of them.
type keeper[K, V any] struct {
	kept *kept[K, V]
	// kv or vs, as the store is versioned.
	kv     store.KeyValue
	vs     store.Versioned
	rows   rowReader
	sc     *scope[Change[K, V]]
	keys   coder[K]
	values coder[V]
	out    Change[K, V]
}

// keeper makes the keeper, in Init.
func (k *kept[K, V]) keeper(sc *scope[Change[K, V]]) (*keeper[K, V], error) {
	w, err := k.writer(sc)
	if err == nil && k.spec.Caching {
		err = sc.OnFlush(k.spec.Name, w.flushed)
	}
	return w, err
}

// writer makes a keeper of a store that has one already: what the record cache lets go of is handed on by the first.
func (k *kept[K, V]) writer(sc *scope[Change[K, V]]) (w *keeper[K, V], err error) {
	w = &keeper[K, V]{kept: k, sc: sc, keys: coder[K]{serde: k.keys}, values: coder[V]{serde: k.values}}
	if w.rows, err = k.rows(sc.Context); err != nil {
		return nil, err
	}
	if k.versioned() {
		w.vs, err = sc.VersionedStore(k.spec.Name)
	} else {
		w.kv, err = sc.Store(k.spec.Name)
	}
	return w, err
}

// get returns the value of a key with its time.
func (w *keeper[K, V]) get(kb []byte) (v V, ts int64, ok bool, err error) {
	return w.kept.get(w.rows, kb)
}

// replace is put for a change whose old value is not looked up yet.
func (w *keeper[K, V]) replace(c *Change[K, V]) error {
	kb, err := w.keys.encode(c.Key, c.key)
	if err != nil {
		return err
	}
	if len(kb) == 0 {
		w.sc.Drop("empty key") // no store has one
		return nil
	}
	c.key = encoded[K]{kb, w.kept.keys}
	if w.kept.old && !w.kept.spec.Caching { // a record cache knows them itself
		old, _, ok, err := w.get(kb)
		if err != nil {
			return err
		}
		c.Old, c.NoOld = old, !ok
	}
	return w.put(kb, c)
}

// put replaces the value of a key, or deletes it, and hands the change on. c has the old value if there was one and it is told.
func (w *keeper[K, V]) put(kb []byte, c *Change[K, V]) error {
	var data []byte
	if !c.NoNew {
		var err error
		if data, err = w.values.encode(c.New, c.value); err != nil {
			return err
		}
		if data == nil {
			c.NoNew = true
		}
	}
	if w.kept.old && !w.kept.spec.Caching && w.vs == nil && !c.NoOld {
		var err error
		if c.Old, _, _, err = w.get(kb); err != nil { // what the new one was made of may have been changed in place
			return err
		}
	}
	if w.vs != nil {
		validTo, err := w.vs.Put(kb, store.Value{Data: data, Timestamp: c.Timestamp})
		if err != nil || validTo == store.NotPut { // which the store has counted
			return err
		}
		c.Stale = validTo != store.NoEnd
	} else {
		if err := w.kv.Put(kb, store.Value{Data: data, Timestamp: c.Timestamp}); err != nil {
			return err
		}
		c.Stale = false // it is the value now, whatever it was to a versioned parent (as upstream)
	}
	if w.kept.spec.Caching {
		return nil
	}
	if !w.kept.old {
		c.Old, c.NoOld = *new(V), true
	}
	return w.sc.emit(c)
}

// flushed hands on what the record cache has let go of.
func (w *keeper[K, V]) flushed(f store.Flushed) (err error) {
	c := &w.out
	*c = Change[K, V]{Timestamp: f.New.Timestamp}
	if c.Key, err = w.kept.keys.Decode(f.Key); err != nil {
		return err
	}
	c.key.is(f.Key, w.kept.keys)
	if err := c.valuesOf(f, w.kept.values, w.kept.old); err != nil {
		return err
	}
	return w.sc.emit(c)
}

// valuesOf takes the values over that a record cache has let go of, the old one if it is wanted.
func (c *Change[K, V]) valuesOf(f store.Flushed, values serde.Serde[V], old bool) (err error) {
	if c.NoNew = f.New.Data == nil; !c.NoNew {
		if c.New, err = values.Decode(f.New.Data); err != nil {
			return err
		}
		c.value.is(f.New.Data, values)
	}
	if c.NoOld = !old || f.Old.Data == nil; !c.NoOld {
		c.Old, err = values.Decode(f.Old.Data)
	}
	return err
}
