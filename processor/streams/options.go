package streams

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Option says more of an operator. Each operator names those that it takes; another one is an error of Build.
type Option struct {
	// name as in code, for errors.
	name  string
	apply func(o *options)
}

// options is what an operator was told.
type options struct {
	named       string
	reset       processor.OffsetReset
	timestamp   processor.TimestampExtractor
	timeOf      any // func(V) time.Time
	partitions  int32
	partitioner processor.Partitioner
	noCaching   bool
	noLogging   bool
	logConfig   map[string]string
	retention   time.Duration
	store       store.Name
	history     time.Duration
	grace       *time.Duration
	values      any
	uses        []StateStore
	caching     bool
	inMemory    bool
}

// Named gives an operator its name (upstream's Named and its kin). Every operator takes it.
func Named(name string) Option { return Option{"Named", func(o *options) { o.named = name }} }

// OffsetReset is where a source starts in a partition without a committed offset (upstream's Consumed.withOffsetResetPolicy).
func OffsetReset(r processor.OffsetReset) Option {
	return Option{"OffsetReset", func(o *options) { o.reset = r }}
}

// Timestamps is how a source finds the time of a record (upstream's Consumed.withTimestampExtractor).
func Timestamps(e processor.TimestampExtractor) Option {
	return Option{"Timestamps", func(o *options) { o.timestamp = e }}
}

// Partitions is the number of partitions of a repartition topic (upstream's Repartitioned.numberOfPartitions).
func Partitions(n int32) Option { return Option{"Partitions", func(o *options) { o.partitions = n }} }

// PartitionBy chooses the partitions of what is written, by the bytes of the record (upstream's withStreamPartitioner).
func PartitionBy(p processor.Partitioner) Option {
	return Option{"PartitionBy", func(o *options) { o.partitioner = p }}
}

// CachingDisabled has every change of a store forwarded at once (upstream's Materialized.withCachingDisabled).
func CachingDisabled() Option {
	return Option{"CachingDisabled", func(o *options) { o.noCaching = true }}
}

// LoggingDisabled leaves a store without a changelog: it is empty after a move (upstream's Materialized.withLoggingDisabled).
func LoggingDisabled() Option {
	return Option{"LoggingDisabled", func(o *options) { o.noLogging = true }}
}

// LoggingConfig sets the changelog's topic configuration (upstream's Materialized.withLoggingEnabled).
func LoggingConfig(config map[string]string) Option {
	return Option{"LoggingConfig", func(o *options) { o.logConfig = config }}
}

// Retention is how long windows are kept, in stream time, at least the size of the window and its grace (upstream's
// Materialized.withRetention).
func Retention(d time.Duration) Option {
	return Option{"Retention", func(o *options) { o.retention = d }}
}

// As names the store of an operator that has one behind it, or may have one: a table's, which can be asked under this name
// (upstream's Materialized.as), or those of a join of streams (StreamJoined.withStoreName).
func As(name store.Name) Option { return Option{"As", func(o *options) { o.store = name }} }

// History makes the store of a table versioned: it can be asked how it was, that long ago in stream time (upstream's
// Stores.persistentVersionedKeyValueStore, KIP-889).
func History(d time.Duration) Option { return Option{"History", func(o *options) { o.history = d }} }

// refuseHistory reports a History that has no store to be kept in.
func (o options) refuseHistory(b *Builder, node string) {
	if o.history != 0 && o.store == "" {
		b.fail(node, "History needs a store of the operator's own: name it with As")
	}
}

// JoinGrace makes records of a stream wait that long, in stream time, before they are joined with a table as it was at their
// time (upstream's Joined.withGracePeriod, KIP-923).
func JoinGrace(d time.Duration) Option { return Option{"JoinGrace", func(o *options) { o.grace = &d }} }

// Values is the serde of the values that an operator keeps in its store (upstream's Materialized.withValueSerde), where the type
// has none by itself.
func Values[V any](s serde.Serde[V]) Option {
	return Option{"Values", func(o *options) { o.values = s }}
}

// valuesOf is the serde that was said with Values, else the one that the type has by itself.
func valuesOf[V any](b *Builder, node string, o options, otherwise serde.Serde[V]) serde.Serde[V] {
	if o.values == nil {
		return otherwise
	}
	s, ok := o.values.(serde.Serde[V])
	if !ok {
		b.fail(node, "Values is %T, want %T", o.values, s)
	}
	return s
}

// read applies the options to an operator that takes those of these names, and Named.
func (b *Builder) read(operator string, opts []Option, takes ...string) (o options) {
	for _, opt := range opts {
		if opt.apply == nil || opt.name != "Named" && !slices.Contains(takes, opt.name) {
			b.fail(operator, "takes no option %q", opt.name)
			continue
		}
		opt.apply(&o)
	}
	return o
}
