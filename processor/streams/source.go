package streams

import (
	"fmt"
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// From reads a topic (upstream's StreamsBuilder.stream). Options: OffsetReset, Timestamps, TimeOf. A topic may be read more than once, as
// the same types and by the same serdes: there is one source of it, with the options of the first.
func From[K, V any](b *Builder, topic string, keys serde.Serde[K], values serde.Serde[V], opts ...Option) *Stream[K, V] {
	return FromTopics(b, []string{topic}, keys, values, opts...)
}

// FromTopics reads several topics as one stream, without an order between them. Options and rules are those of From; who reads one of
// the topics again has to read all of them.
func FromTopics[K, V any](b *Builder, topics []string, keys serde.Serde[K], values serde.Serde[V], opts ...Option) *Stream[K, V] {
	o := b.read("From", opts, "OffsetReset", "Timestamps", "TimeOf")
	name := b.nameOr(o.named, "KSTREAM-SOURCE-")
	b.needs(name, "keys", keys.Err())
	b.needs(name, "values", values.Err())
	if first := b.sourceOf(topics); first != nil {
		return again[K, V](b, name, first, topics, keys, values, o)
	}
	timeOf := typedTime[V](b, name, &o)
	out := newOutlet[Record[K, V]]()
	read := source(keys, values, out)
	if timeOf != nil {
		read = timedSource(keys, values, timeOf, out)
	}
	n := b.put(&graphNode{name: name, add: func(t *processor.Topology, _ ...string) {
		t.AddSource(name, processor.SourceOptions{OffsetReset: o.reset, Timestamp: o.timestamp, Processor: read}, topics...)
	}})
	s := &Stream[K, V]{b: b, node: n, out: out, keys: keys, values: values}
	b.sources = append(b.sources, &sourceDecl{topics: slices.Sorted(slices.Values(topics)), reset: o.reset, stream: s})
	return s
}

// sourceDecl is a source of streams as it was first declared.
type sourceDecl struct {
	topics []string // sorted
	reset  processor.OffsetReset
	stream any // *Stream[K, V]
}

// sourceOf finds a source of one of the topics.
func (b *Builder) sourceOf(topics []string) *sourceDecl {
	for _, d := range b.sources {
		for _, topic := range topics {
			if slices.Contains(d.topics, topic) {
				return d
			}
		}
	}
	return nil
}

// again returns the stream of a source that is there already (upstream's InternalStreamsBuilder.mergeDuplicateSourceNodes).
func again[K, V any](
	b *Builder, name string, first *sourceDecl, topics []string, keys serde.Serde[K], values serde.Serde[V], o options,
) *Stream[K, V] {
	s, ok := first.stream.(*Stream[K, V])
	switch {
	case !ok:
		b.fail(name, "topics %v are read as %T and as %T; one source gives all their records one type", first.topics, first.stream, s)
		return &Stream[K, V]{b: b, node: &graphNode{name: name}, out: newOutlet[Record[K, V]](), keys: keys, values: values}
	case !slices.Equal(first.topics, slices.Sorted(slices.Values(topics))):
		b.fail(name, "topics %v overlap with %v of %s: both must read the same ones", topics, first.topics, s.node.name)
	case !sameSerde(s.keys, keys) || !sameSerde(s.values, values):
		b.fail(name, "topics %v are read by other serdes in %s", topics, s.node.name)
	case first.reset != o.reset:
		b.fail(name, "topics %v: offset reset %s, but %s in %s", topics, o.reset, first.reset, s.node.name)
	case o.timestamp != nil || o.timeOf != nil:
		b.fail(name, "topics %v are read by %s already: say there where their times are", topics, s.node.name)
	}
	return s
}

// sameSerde reports whether two serdes are one, or made the same way as far as they tell.
func sameSerde[T any](a, b serde.Serde[T]) bool {
	return a == b || a.Name() == b.Name() && a.Format() == b.Format()
}

// TimeOf takes the time of a record from its value, in place of Timestamps: a time before 1970, such as the zero time, drops the record,
// which is counted. A record without a value keeps the time that it has in the topic. The value of a stream is decoded once, for this and for
// all operators; that of a table once more for this. V must be that of the stream or table.
func TimeOf[V any](f func(v V) time.Time) Option {
	return Option{"TimeOf", func(o *options) { o.timeOf = f }}
}

// typedTime is the function of TimeOf, nil when there is none.
func typedTime[V any](b *Builder, name string, o *options) func(V) time.Time {
	if o.timeOf == nil {
		return nil
	}
	f, ok := o.timeOf.(func(V) time.Time)
	switch {
	case !ok:
		b.fail(name, "TimeOf has a %T, want a %T", o.timeOf, f)
	case o.timestamp != nil:
		b.fail(name, "takes TimeOf or Timestamps, not both")
	}
	return f
}

// timeOfBytes has TimeOf read what only bytes are known of when the time is asked: the records of a table, which a restore may read, too.
func timeOfBytes[V any](b *Builder, name string, values serde.Serde[V], o *options) {
	timeOf := typedTime[V](b, name, o)
	if timeOf == nil {
		return
	}
	o.timestamp = func(r *processor.Record, _ processor.RecordMetadata, _ int64) (int64, error) {
		if r.Value == nil && !values.TakesNil() {
			return r.Timestamp, nil
		}
		v, err := values.Decode(r.Value)
		if err != nil {
			return 0, deserialization("undecodable value", err)
		}
		return timeOf(v).UnixMilli(), nil
	}
}

// pass is the operator of nodes that hand on what they are given: sources, and where streams or tables meet.
func pass[M any]() operator[M, M] {
	return func(s *scope[M]) (func(*M) error, error) { return s.emit, nil }
}

// source supplies what decodes the records of a source, once for all children.
func source[K, V any](keys serde.Serde[K], values serde.Serde[V], out *outlet[Record[K, V]]) processor.Supplier {
	return supplier(pass[Record[K, V]](), out, func() func(*processor.Record) (*Record[K, V], error) {
		d := newRecordDecoder(keys, values)
		var in Record[K, V]
		return func(r *processor.Record) (*Record[K, V], error) {
			if err := d.decode(r, &in); err != nil {
				return nil, err
			}
			return &in, nil
		}
	})
}

// timedSource is a source that takes the time from the value, and so decodes a record when its time is asked.
func timedSource[K, V any](
	keys serde.Serde[K], values serde.Serde[V], timeOf func(V) time.Time, out *outlet[Record[K, V]],
) processor.Supplier {
	return func() processor.Processor {
		return &timed[K, V]{
			node: node[Record[K, V], Record[K, V]]{operator: pass[Record[K, V]](), outlet: out}, timeOf: timeOf,
			decoder: newRecordDecoder(keys, values),
		}
	}
}

// timed is the node of a timedSource. It keeps the decoded first record of each of its topics, of which a task has one partition.
type timed[K, V any] struct {
	node[Record[K, V], Record[K, V]]

	timeOf  func(V) time.Time
	decoder recordDecoder[K, V]
	heads   []*decodedHead[K, V]
}

type decodedHead[K, V any] struct {
	topic  string
	record Record[K, V]
}

// Time implements processor.Timer.
func (n *timed[K, V]) Time(r *processor.Record, m processor.RecordMetadata, _ int64) (int64, error) {
	h := n.head(m.Topic)
	if h == nil {
		h = &decodedHead[K, V]{topic: m.Topic}
		n.heads = append(n.heads, h)
	}
	if err := n.decoder.decode(r, &h.record); err != nil {
		return 0, err
	}
	if r.Value == nil && !n.decoder.values.TakesNil() {
		return r.Timestamp, nil
	}
	return n.timeOf(h.record.Value).UnixMilli(), nil
}

// Process implements processor.Processor: the record is the one whose time was asked last, of those of its topic.
func (n *timed[K, V]) Process(r *processor.Record) error {
	m, _ := n.scope.RecordMetadata()
	h := n.head(m.Topic)
	if h == nil {
		return fmt.Errorf("nobody has asked for the time of %s-%d offset %d", m.Topic, m.Partition, m.Offset)
	}
	// The memory of headers is that of the record which was loaded last.
	h.record.Timestamp, h.record.Headers = r.Timestamp, r.Headers
	return n.handle(&h.record)
}

func (n *timed[K, V]) head(topic string) *decodedHead[K, V] {
	for _, h := range n.heads { // one or a few
		if h.topic == topic {
			return h
		}
	}
	return nil
}
