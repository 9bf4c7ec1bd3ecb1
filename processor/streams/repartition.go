package streams

import (
	"regexp"
	"strings"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// Repartition sends the stream through an internal topic, so that all records of a key meet in one task (upstream's KStream.repartition,
// KIP-221): <application>-<name>-repartition, name being that of Named. Options: Partitions, PartitionBy.
func (s *Stream[K, V]) Repartition(opts ...Option) *Stream[K, V] {
	o := s.b.read("Repartition", opts, "Partitions", "PartitionBy")
	name := o.named
	if name == "" {
		name = s.b.name("KSTREAM-REPARTITION-")
	}
	d := s.through(name, o)
	d.node.repartition = nil // whoever asks for a topic gets it
	return d
}

// repartitionSuffix ends the name of a repartition topic.
const repartitionSuffix = "-repartition"

// byPosition reports whether a name was made by Builder.name for a stream.
var byPosition = regexp.MustCompile(`^KSTREAM.*-[0-9]{10}$`)

// through adds the repartition topic of name. It uses up three positions, as upstream, which has a node more here.
func (s *Stream[K, V]) through(name string, o options) *Stream[K, V] {
	sink := s.b.name("KSTREAM-SINK-")
	s.b.name("KSTREAM-FILTER-")
	from := s.b.name("KSTREAM-SOURCE-")
	s.b.needs(name, "keys", s.keys.Err())
	s.b.needs(name, "values", s.values.Err())
	name = strings.TrimSuffix(name, repartitionSuffix)
	// The topic's name depends on the application, which the builder does not know: serdes that depend on it are told the rest.
	topic := name + repartitionSuffix
	if byPosition.MatchString(name) {
		s.b.warn(name, "the repartition topic is named by position; give a name, with Named, to the grouping, join or other operator that needs it")
	} else {
		sink, from = topic+"-sink", topic+"-source"
	}
	keys, values := s.keys.ForTopic(topic, serde.Key), s.values.ForTopic(topic, serde.Value)
	way := recordWay(sink, keys, values)
	s.out.ways[sink] = way
	out := newOutlet[Record[K, V]]()
	n := s.b.put(&graphNode{name: from, parents: []*graphNode{s.node}, add: func(t *processor.Topology, parents ...string) {
		t.AddRepartition(name, processor.RepartitionOptions{
			Partitions: o.partitions, Partitioner: byInnerKey(s.keys, o.partitioner), Processor: source(keys, values, out), Source: from, Sink: sink,
		}, parents...)
	}})
	n.repartition = &repartition{enter: func(from *graphNode) bool {
		out, same := from.out.(*outlet[Record[K, V]])
		if same {
			out.ways[sink] = way
		}
		return same
	}}
	return &Stream[K, V]{b: s.b, node: n, out: out, keys: s.keys, values: s.values}
}

// warn keeps what works and will hurt later.
func (b *Builder) warn(node, text string) {
	b.warnings = append(b.warnings, Warning{Node: node, Text: text})
}
