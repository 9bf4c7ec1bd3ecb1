package drive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/router"
)

// Topics are topics and what was written to them. What the application produces goes through the methods of a *kgo.Client that it
// uses: in a transaction nothing can be read before the commit. Topics that nobody has made are made when they are first used.
type Topics struct {
	counts map[string]int32
	// chosen are the topics whose records come with their partition; the partition of all others follows from the key.
	chosen map[string]bool
	topics map[string]*topic

	begun bool
	// open are the records of the transaction that was begun, in the order in which they were produced.
	open []*produced
	// unkept are the promises of records that nobody has waited for yet.
	unkept []*produced
}

type topic struct {
	partitions [][]*kgo.Record
	// arrived has the records of all partitions in the order in which they could first be read.
	arrived []*kgo.Record
	// keyless counts records without a key, which take turns with the partitions.
	keyless int32
}

// produced is a record on its way.
type produced struct {
	record  *kgo.Record // ours
	given   *kgo.Record // the producer's
	promise func(*kgo.Record, error)
}

// NewTopics returns topics with these partition counts; one that is not named has one partition.
func NewTopics(partitions map[string]int32) (*Topics, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(partitions)) {
		if n := partitions[name]; n < 1 {
			errs = append(errs, fmt.Errorf("topic %s: %d partitions", name, n))
		}
	}
	return &Topics{counts: maps.Clone(partitions), chosen: make(map[string]bool), topics: make(map[string]*topic)}, errors.Join(errs...)
}

// Make sets the partition count of a topic that nobody has used yet.
func (t *Topics) Make(name string, partitions int32) error {
	if partitions < 1 {
		return fmt.Errorf("topic %s: %d partitions", name, partitions)
	}
	if used := t.topics[name]; used != nil && len(used.partitions) != int(partitions) {
		return fmt.Errorf("topic %s: %d partitions, it has %d", name, partitions, len(used.partitions))
	}
	if t.counts == nil {
		t.counts = make(map[string]int32)
	}
	t.counts[name] = partitions
	return nil
}

// Choose lets records of a topic go to the partition that they come with.
func (t *Topics) Choose(name string) { t.chosen[name] = true }

// Partitions of a topic.
func (t *Topics) Partitions(name string) int32 {
	if n, ok := t.counts[name]; ok {
		return n
	}
	return 1
}

// Append writes a record as another producer than the application does: it can be read at once. With a partition of -1 the key
// decides. It returns the record as it is in the topic.
func (t *Topics) Append(r *kgo.Record) (*kgo.Record, error) {
	own := clone(r)
	if own.Partition < 0 {
		own.Partition = t.partitionFor(r)
	}
	if n := t.Partitions(r.Topic); own.Partition >= n {
		return nil, fmt.Errorf("topic %s: no partition %d, there are %d", r.Topic, own.Partition, n)
	}
	t.add(own)
	return own, nil
}

// Read returns the records of a partition that can be read, from an offset on.
func (t *Topics) Read(name string, partition int32, from int64) []*kgo.Record {
	top := t.topics[name]
	if top == nil || int(partition) >= len(top.partitions) {
		return nil
	}
	records := top.partitions[partition]
	return records[min(from, int64(len(records))):]
}

// End is the offset behind the last record of a partition that can be read.
func (t *Topics) End(name string, partition int32) int64 {
	return int64(len(t.Read(name, partition, 0)))
}

// Arrived returns the records of a topic, all partitions, in the order in which they could first be read, from the n-th on.
func (t *Topics) Arrived(name string, n int) []*kgo.Record {
	top := t.topics[name]
	if top == nil {
		return nil
	}
	return top.arrived[min(n, len(top.arrived)):]
}

// BeginTransaction begins what EndTransaction ends.
func (t *Topics) BeginTransaction() error {
	t.begun = true
	return nil
}

// EndTransaction makes what was produced in the transaction readable, in its order.
func (t *Topics) EndTransaction() {
	t.begun = false
	for _, p := range t.open {
		t.add(p.record)
	}
	t.open = nil
}

// Abort forgets what was produced in the transaction, and every promise that was not kept.
func (t *Topics) Abort() { t.begun, t.open, t.unkept = false, nil, nil }

// Produce takes a record of the application. Its promise is kept by Flush.
func (t *Topics) Produce(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	own := clone(r)
	if !t.chosen[r.Topic] {
		own.Partition = t.partitionFor(r)
	}
	p := &produced{record: own, given: r, promise: promise}
	t.unkept = append(t.unkept, p)
	if t.begun {
		t.open = append(t.open, p)
		return
	}
	t.add(own)
}

// Flush acknowledges what was produced since the last one.
func (t *Topics) Flush(context.Context) error {
	ends := make(map[string]map[int32]int64)
	for _, p := range t.open {
		of := ends[p.record.Topic]
		if of == nil {
			of = make(map[int32]int64)
			ends[p.record.Topic] = of
		}
		end, ok := of[p.record.Partition]
		if !ok {
			end = t.End(p.record.Topic, p.record.Partition)
		}
		p.record.Offset, of[p.record.Partition] = end, end+1
	}
	unkept := t.unkept
	t.unkept = nil
	for _, p := range unkept {
		p.given.Partition, p.given.Offset = p.record.Partition, p.record.Offset
		p.promise(p.given, nil)
	}
	return nil
}

// PartitionLeader knows every partition.
func (t *Topics) PartitionLeader(string, int32) (leader, leaderEpoch int32, err error) {
	return 0, 0, nil
}

// partitionFor is what Kafka's default partitioner does; records without a key take turns, where a client's choice is random.
func (t *Topics) partitionFor(r *kgo.Record) int32 {
	n := t.Partitions(r.Topic)
	if r.Key != nil {
		return int32(router.PartitionFor(r.Key, n))
	}
	top := t.topic(r.Topic)
	p := top.keyless % n
	top.keyless++
	return p
}

func (t *Topics) topic(name string) *topic {
	top := t.topics[name]
	if top == nil {
		top = &topic{partitions: make([][]*kgo.Record, t.Partitions(name))}
		t.topics[name] = top
	}
	return top
}

// add appends a record that can be read from now on.
func (t *Topics) add(r *kgo.Record) {
	top := t.topic(r.Topic)
	r.Offset = int64(len(top.partitions[r.Partition]))
	top.partitions[r.Partition] = append(top.partitions[r.Partition], r)
	top.arrived = append(top.arrived, r)
}

// clone keeps nil nil and empty empty.
func clone(r *kgo.Record) *kgo.Record {
	c := &kgo.Record{
		Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: r.Timestamp, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
	}
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return c
}

// Clone is a copy that the receiver may write to.
func Clone(r *kgo.Record) *kgo.Record { return clone(r) }
