package streamstest

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/serde"
)

// Input writes to a topic that the topology reads, as another program does (upstream's TestInputTopic). Each record is processed, and what
// it sets going, before the method returns.
type Input[K, V any] struct {
	d         *Driver
	topic     string
	keys      serde.Serde[K]
	values    serde.Serde[V]
	partition int32
	// clock of the records that come without a time.
	clock *inputClock
}

// inputClock is in Unix milliseconds.
type inputClock struct{ next, step int64 }

// NewInput returns the writer of a topic. It fails for a topic that the topology does not read.
func NewInput[K, V any](d *Driver, topic string, keys serde.Serde[K], values serde.Serde[V]) *Input[K, V] {
	d.helper()()
	built := d.d.Topology()
	d.check(d.topic(topic, slices.Concat(built.SourceTopics(), built.GlobalTopics(), built.RepartitionTopics())))
	keys, values = keys.ForTopic(topic, serde.Key), values.ForTopic(topic, serde.Value)
	d.check(keys.Err())
	d.check(values.Err())
	return &Input[K, V]{d: d, topic: topic, keys: keys, values: values, partition: -1, clock: &inputClock{next: d.Now().UnixMilli()}}
}

// To returns the writer of one partition of the topic; else the key of a record decides, by Kafka's default, and records without one take
// turns with the partitions.
func (in *Input[K, V]) To(partition int32) *Input[K, V] {
	to := *in
	to.partition = partition
	return &to
}

// Clock sets the time of the next record without one, in Unix milliseconds, and how far it goes on with each. At first it stands at the wall
// clock of the driver.
func (in *Input[K, V]) Clock(next int64, step time.Duration) *Input[K, V] {
	in.clock.next, in.clock.step = next, step.Milliseconds()
	return in
}

// AdvanceTime lets the clock of records without a time go on.
func (in *Input[K, V]) AdvanceTime(by time.Duration) { in.clock.next += by.Milliseconds() }

// Pipe writes a record with a timestamp, in Unix milliseconds.
func (in *Input[K, V]) Pipe(key K, value V, timestamp int64) {
	in.d.helper()()
	in.PipeRecord(Record[K, V]{Key: key, Value: value, Timestamp: timestamp})
}

// PipeNext writes a record with the next time of the input's clock.
func (in *Input[K, V]) PipeNext(key K, value V) {
	in.d.helper()()
	in.Pipe(key, value, in.next())
}

// PipeTombstone writes a record without a value.
func (in *Input[K, V]) PipeTombstone(key K, timestamp int64) {
	in.d.helper()()
	in.PipeRecord(Record[K, V]{Key: key, NullValue: true, Timestamp: timestamp})
}

// PipeValue writes a record without a key, with the next time of the input's clock.
func (in *Input[K, V]) PipeValue(value V) {
	in.d.helper()()
	in.PipeRecord(Record[K, V]{NullKey: true, Value: value, Timestamp: in.next()})
}

// PipeRecord writes a record.
func (in *Input[K, V]) PipeRecord(r Record[K, V]) {
	in.d.helper()()
	out, err := encode(r, in.topic, in.keys, in.values)
	in.d.check(err)
	out.Partition = in.partition
	in.d.check(in.d.d.Pipe(out))
}

func (in *Input[K, V]) next() int64 {
	at := in.clock.next
	in.clock.next += in.clock.step
	return at
}
