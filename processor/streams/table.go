package streams

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Change is what a table hands on: the value of a key became another (upstream's Change).
type Change[K, V any] struct {
	Key K
	// New and Old are the values after and before. NoNew says that the key was deleted; NoOld that it had no value, or that the table was
	// not asked for it (see wantOld).
	New, Old     V
	NoNew, NoOld bool
	// Stale: in a versioned table there is a newer value of the key already (upstream's Change.isLatest is false, KIP-914).
	Stale bool
	// Timestamp of the new value, in Unix milliseconds.
	Timestamp int64
	Headers   []processor.Header

	key   encoded[K]
	value encoded[V] // New
}

// Table is the newest value of each key (upstream's KTable).
type Table[K, V any] struct {
	b      *Builder
	node   *graphNode
	out    *outlet[Change[K, V]]
	keys   serde.Serde[K]
	values serde.Serde[V]
	view   view[K, V]
	// wantOld makes the table tell old values too: what is behind it calls it while the topology is put together.
	wantOld func()
	// knowsOld reports whether it can do so without a store made for it. Nil: it can.
	knowsOld func() bool
}

// view is how operators read a table beside its changes (upstream's KTableValueGetterSupplier): that of its store, or of what it is
// computed from.
type view[K, V any] struct {
	// stores that a node needs for it.
	stores []store.Name
	// open makes the reader for a task, in Init.
	open func(ctx *processor.Context) (reader[K, V], error)
	// require makes sure, while the topology is put together, that there is a store to read.
	require func()
	// own is the name of the table's own store, empty while it has none. Nil: it has none.
	own func() store.Name
	// versioned tables can be read as they were, by what openAsOf makes, for as long as history goes back.
	versioned bool
	history   time.Duration
	openAsOf  func(ctx *processor.Context) (asOfReader[K, V], error)
}

// reader returns the value of a key as it is now.
type reader[K, V any] func(k K, known encoded[K]) (v V, timestamp int64, ok bool, err error)

// asOfReader returns the value of a key as it was at a time, in Unix milliseconds.
type asOfReader[K, V any] func(k K, known encoded[K], at int64) (v V, timestamp int64, ok bool, err error)

// Store is the name of the table's store, empty when it has none.
func (t *Table[K, V]) Store() store.Name {
	if t.view.own == nil {
		return ""
	}
	return t.view.own()
}

// WithKeys says how keys are written from here on.
func (t *Table[K, V]) WithKeys(keys serde.Serde[K]) *Table[K, V] {
	d := *t
	d.keys = keys
	return &d
}

// WithValues says how values are written from here on.
func (t *Table[K, V]) WithValues(values serde.Serde[V]) *Table[K, V] {
	d := *t
	d.values = values
	return &d
}

// ToStream is the stream of the table's changes (upstream's KTable.toStream): each new value, and a record without a value for a key that
// was deleted.
func ToStream[K, V any](t *Table[K, V], opts ...Option) *Stream[K, V] {
	o := t.b.read("ToStream", opts)
	name := t.b.nameOr(o.named, "KTABLE-TOSTREAM-")
	out := newOutlet[Record[K, V]]()
	op := func(sc *scope[Record[K, V]]) (func(*Change[K, V]) error, error) {
		var r Record[K, V]
		return func(c *Change[K, V]) error {
			r = Record[K, V]{
				Key: c.Key, key: c.key, Value: c.New, value: c.value, NoValue: c.NoNew, Timestamp: c.Timestamp, Headers: c.Headers,
			}
			return sc.emit(&r)
		}, nil
	}
	n := t.b.put(&graphNode{name: name, parents: []*graphNode{t.node}, add: addProcessor(name, supplier(op, out, nil), nil, nil)})
	return &Stream[K, V]{b: t.b, node: n, out: out, keys: t.keys, values: t.values}
}
