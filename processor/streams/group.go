package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Grouped is a stream whose records of one key are aggregated together (upstream's KGroupedStream). It is partitioned by that key when an
// aggregation needs it.
type Grouped[K, V any] struct {
	s *Stream[K, V]
	// named names the repartition topic; empty: the aggregation's store does.
	named string
	// partitions of that topic; 0: as many as those that it is made of.
	partitions int32
	// repartitioned is the stream behind the topic of that name, once an aggregation has needed it: all of the grouping share it.
	repartitioned *Stream[K, V]
}

// GroupByKey groups a stream by its keys (upstream's KStream.groupByKey). Named names the repartition topic, if one is needed: all aggregations of
// the grouping share it then. Partitions says how many it has.
func GroupByKey[K, V any](s *Stream[K, V], opts ...Option) *Grouped[K, V] {
	o := s.b.read("GroupByKey", opts, "Partitions")
	return &Grouped[K, V]{s: s, named: o.named, partitions: o.partitions}
}

// GroupBy groups a stream by what f makes of each record (upstream's KStream.groupBy). It repartitions. Named names the repartition
// topic, which all aggregations of the grouping share then.
func GroupBy[K, V, L any](s *Stream[K, V], f func(k K, v V) L, opts ...Option) *Grouped[L, V] {
	o := s.b.read("GroupBy", opts)
	d := derive(s, s.b.name("KSTREAM-KEY-SELECT-"), selectKey[K, V](f))
	d.values = s.values
	return &Grouped[L, V]{s: d.changesKeys(), named: o.named}
}

// WithKeys says how keys are written.
func (g *Grouped[K, V]) WithKeys(keys serde.Serde[K]) *Grouped[K, V] {
	return &Grouped[K, V]{s: g.s.WithKeys(keys), named: g.named, partitions: g.partitions}
}

// partitioned returns the stream with all records of a key in one task, for an aggregation with a store of this name.
func (g *Grouped[K, V]) partitioned(name store.Name) *Stream[K, V] {
	if !g.s.rekeyed {
		return g.s
	}
	switch {
	case g.named == "":
		return g.s.through(string(name), options{partitions: g.partitions})
	case g.repartitioned == nil:
		g.repartitioned = g.s.through(g.named, options{partitions: g.partitions})
	default:
		g.s.b.skip(3) // as if it were made again, as upstream does
	}
	return g.repartitioned
}

// admit drops and counts a record that an aggregation does not take.
func admit[K, V any](ctx *processor.Context, r *Record[K, V]) bool {
	switch {
	case r.NoKey:
		ctx.Drop("null key")
	case r.NoValue:
		ctx.Drop("null value")
	default:
		return true
	}
	return false
}

// storeName is the name that was given, or the next by position, with a warning.
func (b *Builder) storeName(given store.Name, prefix, operation string) store.Name {
	if given != "" {
		return given
	}
	name := b.name(prefix)
	b.warn(name, "the store of "+operation+" is named by position; give it a name")
	return store.Name(name)
}
