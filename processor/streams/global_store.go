package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/suppliers"
	"github.com/statemesh/statemesh/serde"
)

// AddGlobalStore adds a store that every instance holds whole and that a processor of one's own fills with the records of a topic, all of its
// partitions (upstream's StreamsBuilder.addGlobalStore). Other processors read it: they open the same declaration, which no Uses names, and see
// the newest commit there is. st is a KeyValueStore or a TimestampedKeyValueStore, without settings of a changelog: the topic is its changelog.
//
// A restore runs records through a new processor, as reading them does (upstream since KAFKA-7663; before, it copied their bytes). So what is put
// must follow from the records of a partition in their order and from what they have put, and from nothing else: not from the clock, not from other
// partitions, whose order is not known. The processor has no children, what it forwards goes nowhere, and it schedules nothing. An error
// that the handlers pass over drops the record, others end the instance. Options: Timestamps, TimeOf.
func AddGlobalStore[K, V, L, W, H any](
	b *Builder, st *Store[H], topic string, keys serde.Serde[K], values serde.Serde[V], newProcessor func() Processor[K, V, L, W], opts ...Option,
) {
	o := b.read("AddGlobalStore", opts, "Timestamps", "TimeOf")
	from, node := b.sourceNames(o)
	b.needs(node, "keys", keys.Err())
	b.needs(node, "values", values.Err())
	timeOfBytes(b, node, values, &o)
	b.supplies(node, suppliers.Reason(newProcessor))
	switch {
	case st.reason != "":
		b.fail(node, "%s", st.reason)
		return
	case len(st.parts) != 1:
		b.fail(node, "a store of %d parts cannot be global: one topic restores one store", len(st.parts))
		return
	}
	made := supplier(processing(newProcessor), newOutlet[Record[L, W]](), decodeRecords(keys, values))
	b.put(&graphNode{name: node, add: func(t *processor.Topology, _ ...string) {
		t.AddGlobalStore(st.parts[0], from, processor.SourceOptions{Timestamp: o.timestamp}, topic, node, made)
	}})
}
