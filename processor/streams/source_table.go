package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TableFrom reads a topic as a table: a record is the newest value of its key, one without a value deletes it (upstream's
// StreamsBuilder.table). A record without a key is dropped and counted. A record that is older than the value there is replaces it all
// the same, unless the store is versioned.
//
// The table has a store that can be asked if it has a name. Without one it has a store only when something behind it needs it: a join, or
// an aggregation. Options: OffsetReset, Timestamps, TimeOf, History, and those of stores. See [Builder.ReuseSourceTopics].
func TableFrom[K, V any](
	b *Builder, topic string, keys serde.Serde[K], values serde.Serde[V], name store.Name, opts ...Option,
) *Table[K, V] {
	o := b.read("TableFrom", opts, "OffsetReset", "Timestamps", "TimeOf", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	named := name != ""
	if !named {
		name = store.Name(b.name(topic + "-STATE-STORE-"))
	}
	from, node := b.sourceNames(o)
	b.needs(node, "keys", keys.Err())
	b.needs(node, "values", values.Err())
	timeOfBytes(b, node, values, &o)
	src := b.put(&graphNode{name: from, add: func(t *processor.Topology, _ ...string) {
		t.AddSource(from, processor.SourceOptions{OffsetReset: o.reset, Timestamp: o.timestamp}, topic)
	}})
	k := keepIdle(b, node, name, keys, values, o)
	if named {
		k.require()
	} else {
		k.unnamed = "give TableFrom a name for it"
	}
	out := newOutlet[Change[K, V]]()
	n := b.put(&graphNode{name: node, parents: []*graphNode{src}, add: func(t *processor.Topology, parents ...string) {
		addProcessor(node, supplier(k.enter, out, decodeRecords(keys, values)), k.specs(), nil)(t, parents...)
		if !k.idle && !k.spec.NoChangelog && b.reusing {
			t.ReuseSourceTopic(name, node)
		}
	}})
	return k.table(b, n, out)
}

// sourceNames are the names of the source of a table and of the node that keeps it.
func (b *Builder) sourceNames(o options) (source, keeper string) {
	source, keeper = b.name("KSTREAM-SOURCE-"), b.name("KTABLE-SOURCE-")
	if o.named != "" {
		return o.named + "-source", o.named
	}
	return source, keeper
}

// enter is the head of a table that is made of records (upstream's KTableSource).
func (k *kept[K, V]) enter(sc *scope[Change[K, V]]) (func(*Record[K, V]) error, error) {
	var w *keeper[K, V]
	if !k.idle {
		var err error
		if w, err = k.keeper(sc); err != nil {
			return nil, err
		}
	}
	var c Change[K, V]
	return func(r *Record[K, V]) error {
		if r.NoKey {
			sc.Drop("null key")
			return nil
		}
		c = Change[K, V]{
			Key: r.Key, key: r.key, New: r.Value, value: r.value, NoNew: r.NoValue, NoOld: true, Timestamp: r.Timestamp, Headers: r.Headers,
		}
		if w == nil {
			return sc.emit(&c)
		}
		return w.replace(&c)
	}, nil
}

// decodeRecords is the way into a node whose parent reads a topic.
func decodeRecords[K, V any](keys serde.Serde[K], values serde.Serde[V]) func() func(*processor.Record) (*Record[K, V], error) {
	return func() func(*processor.Record) (*Record[K, V], error) {
		d := newRecordDecoder(keys, values)
		var in Record[K, V]
		return func(r *processor.Record) (*Record[K, V], error) {
			if err := d.decode(r, &in); err != nil {
				return nil, err
			}
			return &in, nil
		}
	}
}

// ToTable reads a stream as a table: a record is the newest value of its key, one without a value deletes it (upstream's
// KStream.toTable). It repartitions when keys may have changed. Like that of [TableFrom], the table has a store when it is named with As,
// or needed. Options: As, History, and those of stores.
func ToTable[K, V any](s *Stream[K, V], opts ...Option) *Table[K, V] {
	b := s.b
	o := b.read("ToTable", opts, "As", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	node := b.nameOr(o.named, "KSTREAM-TOTABLE-")
	name := o.store
	if name == "" {
		name = store.Name(b.name("KSTREAM-TOTABLE-STATE-STORE-"))
	}
	if s.rekeyed {
		s = s.through(node, options{})
	}
	k := keepIdle(b, node, name, s.keys, s.values, o)
	if o.store != "" {
		k.require()
	} else {
		k.unnamed = "give it a name with As"
	}
	out := newOutlet[Change[K, V]]()
	n := b.put(&graphNode{name: node, parents: []*graphNode{s.node}, add: func(t *processor.Topology, parents ...string) {
		addProcessor(node, supplier(k.enter, out, nil), k.specs(), nil)(t, parents...)
	}})
	return k.table(b, n, out)
}

// GlobalTable is a table that every instance holds whole (upstream's GlobalKTable). Streams are joined with it by any key.
type GlobalTable[K, V any] struct {
	b    *Builder
	kept *kept[K, V]
}

// GlobalTableFrom reads a topic as a table that every instance holds whole (upstream's StreamsBuilder.globalTable). Its store can be
// asked under its name; empty: by position. Options: Timestamps, TimeOf.
func GlobalTableFrom[K, V any](
	b *Builder, topic string, keys serde.Serde[K], values serde.Serde[V], name store.Name, opts ...Option,
) *GlobalTable[K, V] {
	o := b.read("GlobalTableFrom", opts, "Timestamps", "TimeOf")
	if name == "" {
		name = store.Name(b.name(topic + "-STATE-STORE-"))
		b.warn(string(name), "the store of the global table is named by position; give it a name")
	}
	from, node := b.sourceNames(o)
	timeOfBytes(b, node, values, &o)
	o.noCaching = true
	k := keep(b, node, name, keys, values, o)
	b.put(&graphNode{name: node, add: func(t *processor.Topology, _ ...string) {
		s := supplier(k.enter, newOutlet[Change[K, V]](), decodeRecords(keys, values))
		t.AddGlobalStore(k.spec, from, processor.SourceOptions{Timestamp: o.timestamp}, topic, node, s)
	}})
	return &GlobalTable[K, V]{b: b, kept: k}
}

// Store is the name of the table's store.
func (g *GlobalTable[K, V]) Store() store.Name { return g.kept.spec.Name }
