package streams

import (
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// natural is the serde that a type has by itself: that of Kafka's own serializer for it. The zero serde for all other types.
func natural[T any]() serde.Serde[T] {
	var found any
	switch any(*new(T)).(type) {
	case string:
		found = serde.String()
	case []byte:
		found = serde.Bytes()
	case bool:
		found = serde.Bool()
	case int16:
		found = serde.Int16()
	case int32:
		found = serde.Int32()
	case int64:
		found = serde.Int64()
	case float32:
		found = serde.Float32()
	case float64:
		found = serde.Float64()
	case uuid.UUID:
		found = serde.UUID()
	case time.Time:
		found = serde.Time()
	}
	s, _ := found.(serde.Serde[T])
	return s
}

// needs reports a serde that an operator cannot do without.
func (b *Builder) needs(node, what string, err error) {
	if err != nil {
		b.fail(node, "serde of %s: %v; say it with WithKeys or WithValues on the stream", what, err)
	}
}

// To writes the stream to a topic, which must exist (upstream's KStream.to). Options: PartitionBy.
func (s *Stream[K, V]) To(topic string, opts ...Option) {
	o := s.b.read("To", opts, "PartitionBy")
	name := s.b.nameOr(o.named, "KSTREAM-SINK-")
	s.b.needs(name, "keys", s.keys.Err())
	s.b.needs(name, "values", s.values.Err())
	s.out.ways[name] = recordWay(name, s.keys.ForTopic(topic, serde.Key), s.values.ForTopic(topic, serde.Value))
	s.b.put(&graphNode{name: name, parents: []*graphNode{s.node}, add: func(t *processor.Topology, parents ...string) {
		t.AddSink(name, processor.SinkOptions{Partitioner: byInnerKey(s.keys, o.partitioner)}, topic, parents...)
	}})
}

// recordWay encodes the records of a stream for a child that takes bytes.
func recordWay[K, V any](child string, keys serde.Serde[K], values serde.Serde[V]) func(*processor.Context) receiver[Record[K, V]] {
	return func(ctx *processor.Context) receiver[Record[K, V]] {
		return &recordEncoder[K, V]{ctx: ctx, child: child, keys: coder[K]{serde: keys}, values: coder[V]{serde: values}}
	}
}

// recordEncoder hands the records of a stream, as bytes, to one child.
type recordEncoder[K, V any] struct {
	ctx    *processor.Context
	child  string
	keys   coder[K]
	values coder[V]
}

func (e *recordEncoder[K, V]) receive(r *Record[K, V]) error {
	out, err := e.encode(r)
	if err != nil {
		return err
	}
	return e.ctx.ForwardTo(e.child, out)
}

func (e *recordEncoder[K, V]) encode(r *Record[K, V]) (out processor.Record, err error) {
	out = processor.Record{Timestamp: r.Timestamp, Headers: r.Headers}
	if !r.NoKey {
		if out.Key, err = e.keys.encode(r.Key, r.key); err != nil {
			return out, err
		}
	}
	if !r.NoValue {
		out.Value, err = e.values.encode(r.Value, r.value)
	}
	return out, err
}
