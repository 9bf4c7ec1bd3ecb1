package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// ToTopicOf writes each record to the topic that topic names (upstream's KStream.to with a TopicNameExtractor). Topics must exist: a record for
// one that does not is a *processor.SinkTopicError, about which the handler of processing errors decides. Options: PartitionBy.
func (s *Stream[K, V]) ToTopicOf(topic func(r *Record[K, V]) string, opts ...Option) {
	o := s.b.read("ToTopicOf", opts, "PartitionBy")
	name := s.b.nameOr(o.named, "KSTREAM-SINK-")
	s.b.needs(name, "keys", s.keys.Err())
	s.b.needs(name, "values", s.values.Err())
	keys, values := s.keys, s.values
	s.out.ways[name] = func(ctx *processor.Context) receiver[Record[K, V]] {
		return &topicEncoder[K, V]{
			ctx: ctx, child: name, topic: topic, keys: keys, values: values, known: make(map[string]*recordEncoder[K, V]),
		}
	}
	s.b.put(&graphNode{name: name, parents: []*graphNode{s.node}, add: func(t *processor.Topology, parents ...string) {
		t.AddDynamicSink(name, processor.SinkOptions{Partitioner: byInnerKey(keys, o.partitioner)}, nil, parents...)
	}})
}

// topicEncoder hands the records of a stream, as bytes, to a sink, each for its topic. Bytes may depend on the topic.
type topicEncoder[K, V any] struct {
	ctx    *processor.Context
	child  string
	topic  func(r *Record[K, V]) string
	keys   serde.Serde[K]
	values serde.Serde[V]
	known  map[string]*recordEncoder[K, V]
}

// mostTopics bounds what is kept for topics that records name: a mistake may make each name another.
const mostTopics = 1024

func (e *topicEncoder[K, V]) receive(r *Record[K, V]) error {
	topic := e.topic(r)
	enc := e.known[topic]
	if enc == nil {
		if len(e.known) == mostTopics {
			clear(e.known)
		}
		enc = &recordEncoder[K, V]{
			keys: coder[K]{serde: e.keys.ForTopic(topic, serde.Key)}, values: coder[V]{serde: e.values.ForTopic(topic, serde.Value)},
		}
		e.known[topic] = enc
	}
	out, err := enc.encode(r)
	if err != nil {
		return err
	}
	return e.ctx.ForwardToTopic(e.child, topic, out)
}
