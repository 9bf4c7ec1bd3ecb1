package streams

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Store is a state store of processors of one's own, declared once (upstream's StoreBuilder). It belongs to the operators that name it in
// Uses, each task has its own, and H is what they work with: they open it in Init. Processors that use the same store are in one
// sub-topology.
type Store[H any] struct {
	// parts has one spec, but for stores of one's own.
	parts []store.Spec
	// opened makes the handle for a task.
	opened func(c *processorContext) (H, error)
	reason string
}

// Name of the store, by which it can be asked; of a store of one's own, that of its first part.
func (s *Store[H]) Name() store.Name {
	if len(s.parts) == 0 {
		return ""
	}
	return s.parts[0].Name
}

// Open gives a task's store to one of its processors, in Init. It is the processor's as long as that is not closed. A global store is opened by
// a declaration of its name, which no Uses names, and can only be read.
func (s *Store[H]) Open(ctx ProcessorContext) (H, error) { return s.opened(ctx.base()) }

// ProcessorContext is a [Context] or a [FixedKeyContext].
type ProcessorContext interface{ base() *processorContext }

// StateStore is what Uses takes: a [Store] or a [TableReader].
type StateStore interface {
	// check says what is wrong with it.
	check(b *Builder) string
	connect(b *Builder, t *processor.Topology, node string)
}

// Uses names the stores of a processor (upstream's stateStoreNames).
func Uses(stores ...StateStore) Option {
	return Option{"Uses", func(o *options) { o.uses = append(o.uses, stores...) }}
}

// CachingEnabled puts the record cache before a store of one's own: to the disk and the changelog goes the last change of each key.
func CachingEnabled() Option { return Option{"CachingEnabled", func(o *options) { o.caching = true }} }

// InMemory keeps a store of one's own, or of a table, in memory: it is made again from its changelog at every start (upstream's Stores.inMemory...).
func InMemory() Option { return Option{"InMemory", func(o *options) { o.inMemory = true }} }

func (s *Store[H]) check(*Builder) string { return s.reason }

func (s *Store[H]) connect(b *Builder, t *processor.Topology, node string) {
	if b.declared[s] {
		t.ConnectProcessorAndStateStores(node, s.names()...)
		return
	}
	b.declared[s] = true
	for _, part := range s.parts {
		t.AddStateStore(part, node)
	}
}

// declare makes a store of a spec, with the options of all kinds.
func declare[K, V, H any](
	spec store.Spec, keys serde.Serde[K], values serde.Serde[V], opts []Option, open func(c *processorContext) (H, error),
) *Store[H] {
	b := NewBuilder() // for what is wrong with the options
	o := b.read("store "+string(spec.Name), opts, "CachingEnabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	b.needs(string(spec.Name), "keys", keys.Err())
	b.needs(string(spec.Name), "values", values.Err())
	spec.Caching, spec.NoChangelog, spec.ChangelogConfig, spec.InMemory = o.caching, o.noLogging, o.logConfig, o.inMemory
	spec.KeyFormat, spec.ValueFormat = keys.Format(), values.Format()
	s := &Store[H]{parts: []store.Spec{spec}, opened: open}
	if _, err := b.Build(); err != nil {
		s.reason = err.Error()
	}
	return s
}

// KeyValueStore declares a store of the values of keys (upstream's Stores.keyValueStoreBuilder). Options of this and of all other stores:
// CachingEnabled, LoggingDisabled, LoggingConfig, InMemory.
func KeyValueStore[K, V any](name store.Name, keys serde.Serde[K], values serde.Serde[V], opts ...Option) *Store[*KeyValue[K, V]] {
	return declare(store.Spec{Name: name, Kind: store.KindKeyValue}, keys, values, opts, func(c *processorContext) (*KeyValue[K, V], error) {
		kv, err := c.raw.Store(name)
		return &KeyValue[K, V]{entries[K, V]{kv: kv, coding: coding[K, V]{ctx: c, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}}}, err
	})
}

// TimestampedKeyValueStore declares a store of the values of keys with their times (upstream's timestampedKeyValueStoreBuilder).
func TimestampedKeyValueStore[K, V any](
	name store.Name, keys serde.Serde[K], values serde.Serde[V], opts ...Option,
) *Store[*TimestampedKeyValue[K, V]] {
	spec := store.Spec{Name: name, Kind: store.KindTimestampedKeyValue}
	return declare(spec, keys, values, opts, func(c *processorContext) (*TimestampedKeyValue[K, V], error) {
		kv, err := c.raw.Store(name)
		return &TimestampedKeyValue[K, V]{entries[K, V]{kv: kv, coding: coding[K, V]{ctx: c, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}}}, err
	})
}

// WindowStore declares a store of the values of keys in windows of one size, kept by stream time (upstream's
// timestampedWindowStoreBuilder). retention is at least size.
func WindowStore[K, V any](
	name store.Name, size, retention time.Duration, keys serde.Serde[K], values serde.Serde[V], opts ...Option,
) *Store[*Window[K, V]] {
	spec := store.Spec{Name: name, Kind: store.KindTimestampedWindow, WindowSize: size, Retention: retention}
	return declare(spec, keys, values, opts, func(c *processorContext) (*Window[K, V], error) {
		w, err := c.raw.WindowStore(name)
		return &Window[K, V]{store: w, coding: coding[K, V]{ctx: c, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}}, err
	})
}

// SessionStore declares a store of the values of keys in sessions, kept by stream time (upstream's sessionStoreBuilder).
func SessionStore[K, V any](
	name store.Name, retention time.Duration, keys serde.Serde[K], values serde.Serde[V], opts ...Option,
) *Store[*Session[K, V]] {
	spec := store.Spec{Name: name, Kind: store.KindSession, Retention: retention}
	return declare(spec, keys, values, opts, func(c *processorContext) (*Session[K, V], error) {
		s, err := c.raw.SessionStore(name)
		return &Session[K, V]{store: s, coding: coding[K, V]{ctx: c, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}}, err
	})
}

// VersionedStore declares a store of the versions of keys, for as long as history goes back by stream time (upstream's
// versionedKeyValueStoreBuilder, KIP-889). It takes no CachingEnabled.
func VersionedStore[K, V any](
	name store.Name, history time.Duration, keys serde.Serde[K], values serde.Serde[V], opts ...Option,
) *Store[*Versioned[K, V]] {
	spec := store.Spec{Name: name, Kind: store.KindVersioned, Retention: history}
	return declare(spec, keys, values, opts, func(c *processorContext) (*Versioned[K, V], error) {
		v, err := c.raw.VersionedStore(name)
		return &Versioned[K, V]{store: v, coding: coding[K, V]{ctx: c, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}}, err
	})
}

// TableReader lets processors read a table beside its changes, whatever it is kept in or computed from.
type TableReader[K, V any] struct{ t *Table[K, V] }

// Reading makes the reader of a table, for Uses.
func Reading[K, V any](t *Table[K, V]) *TableReader[K, V] { return &TableReader[K, V]{t: t} }

// Open returns what gives the value of a key as it is now, in Init. It belongs to the task.
func (r *TableReader[K, V]) Open(ctx ProcessorContext) (func(k K) (v Stamped[V], ok bool, err error), error) {
	read, err := r.t.view.open(ctx.base().raw)
	if err != nil {
		return nil, err
	}
	return func(k K) (Stamped[V], bool, error) {
		v, ts, ok, err := read(k, encoded[K]{})
		return Stamped[V]{Value: v, Timestamp: ts}, ok, err
	}, nil
}

func (r *TableReader[K, V]) check(b *Builder) string {
	if r.t.b != b {
		return "reads a table of another builder"
	}
	r.t.view.require()
	return ""
}

func (r *TableReader[K, V]) connect(_ *Builder, t *processor.Topology, node string) {
	if len(r.t.view.stores) > 0 {
		t.ConnectProcessorAndStateStores(node, r.t.view.stores...)
	}
}
