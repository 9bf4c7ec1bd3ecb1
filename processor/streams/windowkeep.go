package streams

import (
	"errors"
	"math"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// keptWindows is the store of windows or sessions behind a table while the topology is put together.
type keptWindows[K, V any] struct {
	kind   windowKind
	spec   store.Spec
	keys   serde.Serde[K]
	values serde.Serde[V]
	old    bool
	// closing is the store of windows that are told when they close; nil: changes are told.
	closing *store.Spec
	// time decides what is late.
	time *sharedTime
}

// openWindows makes the keeper of a task, in Init.
type openWindows[K, V any] func(sc *scope[Change[serde.Windowed[K], V]]) (*windowKeeper[K, V], error)

// keepWindows declares the store of a table.
func keepWindows[K, V any](
	b *Builder, node string, name store.Name, kind windowKind, emit EmitStrategy, keys serde.Serde[K], values serde.Serde[V], o options,
) *keptWindows[K, V] {
	b.needs(node, "keys", keys.Err())
	b.needs(node, "values", values.Err())
	k := &keptWindows[K, V]{kind: kind, keys: keys, values: values, time: &sharedTime{name: name}, spec: store.Spec{
		Name: name, Kind: store.KindTimestampedWindow, Caching: !o.noCaching, NoChangelog: o.noLogging, ChangelogConfig: o.logConfig, InMemory: o.inMemory,
		KeyFormat: keys.Format(), ValueFormat: values.Format(),
	}}
	if err := kind.rules().Validate(); err != nil {
		b.fail(node, "windows: %v", err)
		return k
	}
	switch {
	case emit > OnWindowClose:
		b.fail(node, "emit strategy %d is unknown: want OnWindowUpdate or OnWindowClose", emit)
		return k
	case emit == OnWindowClose && kind.unlimited != nil:
		b.fail(node, "unlimited windows never close: OnWindowClose would tell nothing")
		return k
	}
	switch {
	case kind.grid != nil:
		k.spec.WindowSize = kind.grid.Size
	case kind.sliding != nil: // both ends are in a sliding window; the end that a store tells is exclusive
		k.spec.WindowSize = kind.sliding.Difference + time.Millisecond
	case kind.unlimited != nil:
		k.spec.WindowSize = windows.Forever
	default:
		k.spec.Kind = store.KindSession
	}
	k.spec.Retention = retention(b, node, kind, emit, o.retention)
	if emit == OnWindowClose {
		k.spec.Caching = false
		k.closing = &store.Spec{Name: name + "-closing", Kind: store.KindKeyValue, NoChangelog: o.noLogging}
	}
	return k
}

// retention of the store: what was asked for, at least as long as records may change a window.
func retention(b *Builder, node string, kind windowKind, emit EmitStrategy, asked time.Duration) time.Duration {
	least := kind.rules().MinRetention()
	switch {
	case asked != 0 && asked < least:
		b.fail(node, "retention %s is shorter than %s, for which records may change a window", asked, least)
		return least
	case asked != 0:
	case emit == OnWindowClose && kind.unlimited == nil:
		asked = 2 * least // closed windows wait to be told
	default:
		asked = least
	}
	if kind.sliding != nil || kind.session != nil {
		asked += time.Millisecond // a store forgets windows at the time up to which records belong to them
	}
	return asked
}

// specs are the stores to declare.
func (k *keptWindows[K, V]) specs() []store.Spec {
	if k.closing != nil {
		return []store.Spec{k.spec, *k.closing}
	}
	return []store.Spec{k.spec}
}

// final is how Suppress knows when a key of the table changes no more.
func (k *keptWindows[K, V]) final() any {
	return finality[serde.Windowed[K]]{
		closes: func(w serde.Windowed[K]) int64 { return k.kind.closes(w.End) }, time: k.time, spec: &k.spec,
	}
}

// windowedKeys is how keys with their windows are written to topics.
func (k *keptWindows[K, V]) windowedKeys() serde.Serde[serde.Windowed[K]] {
	if k.kind.session != nil {
		return serde.SessionWindowed(k.keys)
	}
	return serde.TimeWindowed(k.keys, time.Duration(k.kind.end(0))*time.Millisecond)
}

// table is the table of the store.
func (k *keptWindows[K, V]) table(
	b *Builder, n *graphNode, out *outlet[Change[serde.Windowed[K], V]],
) *Table[serde.Windowed[K], V] {
	return &Table[serde.Windowed[K], V]{
		b: b, node: n, out: out, keys: k.windowedKeys(), values: k.values, view: k.view(), wantOld: func() { k.old = true },
	}
}

// view reads the store.
func (k *keptWindows[K, V]) view() view[serde.Windowed[K], V] {
	open := func(ctx *processor.Context) (reader[serde.Windowed[K], V], error) {
		rows, err := k.rows(ctx)
		if err != nil {
			return nil, err
		}
		keys := coder[K]{serde: k.keys}
		return func(w serde.Windowed[K], _ encoded[serde.Windowed[K]]) (v V, ts int64, ok bool, err error) {
			kb, err := keys.encode(w.Key, encoded[K]{})
			if err != nil {
				return v, 0, false, err
			}
			return k.get(rows, kb, w.Start, w.End)
		}, nil
	}
	return view[serde.Windowed[K], V]{
		stores: []store.Name{k.spec.Name}, own: func() store.Name { return k.spec.Name }, require: func() {}, open: open,
	}
}

// windowRows is a store of windows or of sessions.
type windowRows struct {
	window  store.Window
	session store.Session
}

func (k *keptWindows[K, V]) rows(ctx *processor.Context) (r windowRows, err error) {
	if k.kind.session != nil {
		r.session, err = ctx.SessionStore(k.spec.Name)
	} else {
		r.window, err = ctx.WindowStore(k.spec.Name)
	}
	return r, err
}

func (r windowRows) put(key []byte, start, end int64, v store.Value) error {
	if r.session != nil {
		return r.session.Put(key, start, end, v)
	}
	return r.window.Put(key, start, v)
}

func (r windowRows) fetch(key []byte, start, end int64) (store.Value, error) {
	if r.session == nil {
		return r.window.Fetch(key, start)
	}
	v, err := r.session.Fetch(key, start, end)
	v.Timestamp = end
	return v, err
}

func (k *keptWindows[K, V]) get(r windowRows, key []byte, start, end int64) (v V, ts int64, ok bool, err error) {
	v, row, err := k.find(r, key, start, end)
	return v, row.Timestamp, err == nil && row.Data != nil, err
}

// find returns the value of a window with its row, which has no Data if there is none.
func (k *keptWindows[K, V]) find(r windowRows, key []byte, start, end int64) (v V, row store.Value, err error) {
	row, err = r.fetch(key, start, end)
	if errors.Is(err, store.ErrNotFound) {
		return v, store.Value{}, nil
	} else if err != nil {
		return v, store.Value{}, err
	}
	v, err = k.values.Decode(row.Data)
	return v, row, err
}

// windowKeeper writes the store of a windowed table in one task and hands its changes on: at once, when the record cache lets go of them, or
// when the window is closed.
type windowKeeper[K, V any] struct {
	kept   *keptWindows[K, V]
	rows   windowRows
	sc     *scope[Change[serde.Windowed[K], V]]
	keys   coder[K]
	values coder[V]
	// closer tells windows that are closed; nil: changes are told.
	closer *closer[K, V]
	// seen is the time of the records that came here.
	seen *processor.ObservedTime
	out  Change[serde.Windowed[K], V]
	// changed are the windows of the record in hand, where it has several.
	changed []changedWindow[K, V]
}

// keeper makes the keeper, in Init.
func (k *keptWindows[K, V]) keeper(sc *scope[Change[serde.Windowed[K], V]]) (*windowKeeper[K, V], error) {
	w, err := k.writer(sc)
	switch {
	case err != nil:
	case k.closing != nil:
		w.closer, err = newCloser(w)
	case k.spec.Caching:
		err = sc.OnFlush(k.spec.Name, w.flushed)
	}
	return w, err
}

// writer makes a keeper of a store that has one already: what the record cache lets go of is handed on by the first.
func (k *keptWindows[K, V]) writer(sc *scope[Change[serde.Windowed[K], V]]) (*windowKeeper[K, V], error) {
	rows, err := k.rows(sc.Context)
	if err != nil {
		return nil, err
	}
	seen, err := k.time.in(sc.Context)
	if err != nil {
		return nil, err
	}
	return &windowKeeper[K, V]{
		kept: k, rows: rows, sc: sc, keys: coder[K]{serde: k.keys}, values: coder[V]{serde: k.values}, seen: seen,
	}, nil
}

// begin takes in the time of a record, and tells what it closes. It returns the stream time.
func (w *windowKeeper[K, V]) begin(timestamp int64, headers []processor.Header) (now int64, err error) {
	now = w.seen.Observe(timestamp)
	if w.closer != nil {
		err = w.closer.tell(now, headers)
	}
	return now, err
}

// put replaces the value of a window, or deletes it, and hands the change on. c has the old value if there was one. It is for records that change
// one window; see change.
func (w *windowKeeper[K, V]) put(kb []byte, c *Change[serde.Windowed[K], V]) error {
	if err := w.set(kb, c); err != nil {
		return err
	}
	return w.tell(c)
}

// set replaces the value of a window, or deletes it.
func (w *windowKeeper[K, V]) set(kb []byte, c *Change[serde.Windowed[K], V]) error {
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
	if w.kept.old && !w.kept.spec.Caching && !c.NoOld {
		var err error
		if c.Old, _, _, err = w.kept.get(w.rows, kb, c.Key.Start, c.Key.End); err != nil { // see keeper.put
			return err
		}
	}
	if err := w.rows.put(kb, c.Key.Start, c.Key.End, store.Value{Data: data, Timestamp: c.Timestamp}); err != nil {
		return err
	}
	if w.closer != nil {
		return w.closer.changed(kb, c)
	}
	return nil
}

// tell hands a change on, unless that is for the record cache to do, or for the close of the window.
func (w *windowKeeper[K, V]) tell(c *Change[serde.Windowed[K], V]) error {
	if w.closer != nil || w.kept.spec.Caching {
		return nil
	}
	if !w.kept.old {
		c.Old, c.NoOld = *new(V), true
	}
	return w.sc.emit(c)
}

// flushed hands on what the record cache has let go of.
func (w *windowKeeper[K, V]) flushed(f store.Flushed) (err error) {
	c := &w.out
	*c = Change[serde.Windowed[K], V]{Timestamp: f.New.Timestamp}
	c.Key.Start, c.Key.End = f.Start, f.End
	if w.kept.kind.session == nil {
		c.Key.End = w.kept.kind.end(f.Start)
	}
	if c.Key.Key, err = w.kept.keys.Decode(f.Key); err != nil {
		return err
	}
	if err := c.valuesOf(f, w.kept.values, w.kept.old); err != nil {
		return err
	}
	return w.sc.emit(c)
}

// after is d later than t, at most the end of time.
func after(t int64, d time.Duration) int64 {
	if ms := d.Milliseconds(); t <= math.MaxInt64-ms {
		return t + ms
	}
	return math.MaxInt64
}
