package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// producer takes records on their way to the brokers. A *kgo.Client is one.
type producer interface {
	BeginTransaction() error
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
	// Flush waits until every promise is kept.
	Flush(ctx context.Context) error
	// PartitionLeader returns -1 for the leader while the partition is not known.
	PartitionLeader(topic string, partition int32) (leader, leaderEpoch int32, err error)
}

// output is what a thread produces between two commits: records of sinks as they come, changes of the state at the
// commit. It copies what processors hand over and reuses the copies after each commit, so a record in the steady state
// allocates nothing. It belongs to the stream thread, but for the promises, which the client's goroutine keeps.
type output struct {
	producer producer
	// client is the producer of a stream thread, which begins and ends it.
	client *kgo.Client
	// transactional: a transaction is begun with the first record.
	transactional bool
	begun         bool
	// partitions of the topics whose sinks choose partitions themselves.
	partitions map[string]int32

	// loaded are the topics whose partitions the client is known to have; fresh has a record of each of the others since the last
	// reset, and last is the topic that was produced to last. See awaitLoaded.
	loaded map[string]bool
	fresh  map[string]*kgo.Record
	last   string

	produced int
	// size is what the records of sinks since the last reset take.
	size    int64
	records slab
	bytes   arena
	// failure is the first error of a record since the last reset.
	failure atomic.Pointer[error]
	promise func(*kgo.Record, error)
}

func newOutput(p producer, transactional bool, partitions map[string]int32) *output {
	o := &output{
		producer: p, transactional: transactional, partitions: partitions,
		loaded: make(map[string]bool), fresh: make(map[string]*kgo.Record),
	}
	o.promise = func(r *kgo.Record, err error) {
		if err != nil {
			o.fail(&produceError{topic: r.Topic, partition: r.Partition, err: err})
		}
	}
	return o
}

func (o *output) fail(err error) {
	if err != nil {
		o.failure.CompareAndSwap(nil, &err)
	}
}

// err is the first error of a record since the last reset.
func (o *output) err() error {
	if e := o.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// acked keeps the promise of a changelog record.
func (o *output) acked(log *changelog, r *kgo.Record, err error) {
	if err != nil {
		o.fail(&produceError{topic: r.Topic, partition: r.Partition, err: err})
		return
	}
	log.acked = max(log.acked, store.Offset(r.Offset)) // one partition: the client keeps its promises one after another
}

// sink produces a record for a sink. What the client does not take is known at the next commit. partitions are those of a topic whose
// records name their partition, else 0.
func (o *output) sink(n *node, topic string, r *Record, partitions int32) error {
	rec := o.records.next()
	if partitions > 0 {
		p, err := choosePartition(n, topic, r, partitions)
		if err != nil {
			return err
		}
		rec.Partition = p
	}
	rec.Topic = topic
	rec.Key, rec.Value = o.bytes.copy(r.Key), o.bytes.copy(r.Value)
	rec.Timestamp = time.UnixMilli(r.Timestamp)
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: o.bytes.copy(h.Value)})
	}
	o.size += bytesOf(rec)
	return o.produce(rec, o.promise)
}

// choosePartition asks the sink's partitioner, or hashes the key where only another sink of the topic has one.
func choosePartition(n *node, topic string, r *Record, count int32) (int32, error) {
	if n.partitioner == nil {
		return int32(router.PartitionFor(r.Key, count)), nil
	}
	p := n.partitioner(topic, r, count)
	if p < 0 || p >= count {
		return 0, fmt.Errorf("partitioner of topic %s chose partition %d of %d", topic, p, count)
	}
	return p, nil
}

// change produces one change of a state. Its slices stay as they are until the commit has ended.
func (o *output) change(log *changelog, p store.Partition, c store.Change) error {
	rec := o.records.next()
	rec.Topic, rec.Partition = log.topic, int32(p)
	rec.Key, rec.Value = c.Key, c.Value
	rec.Timestamp = time.UnixMilli(c.Timestamp)
	if log.by != o {
		log.by, log.promise = o, func(r *kgo.Record, err error) { o.acked(log, r, err) }
	}
	return o.produce(rec, log.promise)
}

// letter sends a record that could not be processed to the dead letter topic.
func (o *output) letter(topic string, r *kgo.Record, headers []kgo.RecordHeader) error {
	rec := o.records.next()
	rec.Topic, rec.Timestamp = topic, r.Timestamp
	rec.Key, rec.Value = o.bytes.copy(r.Key), o.bytes.copy(r.Value) // r goes back to the client before this is sent
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: o.bytes.copy(h.Value)})
	}
	rec.Headers = append(rec.Headers, headers...)
	o.size += bytesOf(rec)
	return o.produce(rec, o.promise)
}

func (o *output) produce(rec *kgo.Record, promise func(*kgo.Record, error)) error {
	if err := o.err(); err != nil {
		return &outputError{err}
	}
	if o.transactional && !o.begun {
		if err := o.producer.BeginTransaction(); err != nil {
			o.fail(err)
			return &outputError{err}
		}
		o.begun = true
	}
	if o.transactional && rec.Topic != o.last && !o.loaded[rec.Topic] && o.fresh[rec.Topic] == nil {
		o.fresh[rec.Topic] = rec
	}
	o.last = rec.Topic
	o.produced++
	// Waits while the client's buffer is full. The client ends the wait when it is closed.
	o.producer.Produce(nil, rec, promise) //nolint:staticcheck // the records outlive any context: aborting closes the client
	return nil
}

// flush waits until the broker has answered for everything.
func (o *output) flush(ctx context.Context) error {
	if err := o.producer.Flush(ctx); err != nil {
		return err
	}
	if err := o.err(); err != nil {
		return err
	}
	return o.awaitLoaded(ctx, func(topic string, p int32) bool {
		leader, _, _ := o.producer.PartitionLeader(topic, p)
		return leader >= 0
	})
}

// awaitLoaded waits until the client itself knows the partitions of what it has just produced: it hands the first records of a topic
// to the brokers before it takes note of the topic's partitions, and a transaction that ends in between, for a moment as short as
// that, looks to it as if nothing had been produced. It aborts such a transaction, whatever is asked for, and reports no error
// (franz-go v1.22.3, storePartitionsUpdate and EndTransaction). known reports whether it has a partition.
func (o *output) awaitLoaded(ctx context.Context, known func(topic string, p int32) bool) error {
	for topic, rec := range o.fresh {
		for wait := 50 * time.Microsecond; !known(topic, rec.Partition); wait = min(2*wait, 10*time.Millisecond) {
			if err := sleep(ctx, wait); err != nil {
				return fmt.Errorf("partitions of topic %s: %w", topic, err)
			}
		}
		o.loaded[topic] = true
	}
	clear(o.fresh)
	return nil
}

// leaderEpoch is that of the leader the client produces to, -1 when it does not know.
func (o *output) leaderEpoch(topic string, p store.Partition) int32 {
	_, epoch, err := o.producer.PartitionLeader(topic, int32(p))
	if err != nil {
		return -1
	}
	return epoch
}

// reset makes ready for the next commit. Everything must have been answered for, or the client closed.
func (o *output) reset() {
	o.begun, o.produced, o.size, o.last = false, 0, 0, ""
	clear(o.fresh)
	o.records.reset()
	o.bytes.reset()
	o.failure.Store(nil)
}

// close gives up what is not acknowledged.
func (o *output) close() {
	o.client.UnsafeAbortBufferedRecords()
	o.client.Close()
}

// outputError is the failure of a producer, found while a processor ran. No handler may skip it.
type outputError struct{ err error }

func (e *outputError) Error() string { return "produce: " + e.err.Error() }

func (e *outputError) Unwrap() error { return e.err }

// produceError is what became of a record.
type produceError struct {
	topic     string
	partition int32
	err       error
}

func (e *produceError) Error() string {
	return fmt.Sprintf("produce to %s-%d: %v", e.topic, e.partition, e.err)
}

func (e *produceError) Unwrap() error { return e.err }

func topicOf(err error) string {
	if e, ok := errors.AsType[*produceError](err); ok {
		return e.topic
	}
	return ""
}

// slab hands out records and takes all of them back at once.
type slab struct {
	chunks [][]kgo.Record
	used   int
}

const slabChunk = 512

func (s *slab) next() *kgo.Record {
	at := s.used / slabChunk
	if at == len(s.chunks) {
		s.chunks = append(s.chunks, make([]kgo.Record, slabChunk))
	}
	r := &s.chunks[at][s.used%slabChunk]
	s.used++
	return r
}

// reset keeps what a usual commit needs and leaves the rest of a large one to the collector.
func (s *slab) reset() {
	const keep = 64
	for i := 0; i*slabChunk < s.used; i++ {
		n := min(slabChunk, s.used-i*slabChunk)
		for j := range s.chunks[i][:n] {
			r := &s.chunks[i][j]
			h := r.Headers
			clear(h)
			*r = kgo.Record{Headers: h[:0]}
		}
	}
	if len(s.chunks) > keep {
		s.chunks = slices.Clone(s.chunks[:keep])
	}
	s.used = 0
}

// arena copies byte slices into large pieces and forgets all of them at once.
type arena struct {
	buf []byte
}

const arenaChunk = 64 << 10

// copy keeps nil nil and empty empty.
func (a *arena) copy(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) == 0:
		return []byte{}
	case len(b) > arenaChunk/4:
		return slices.Clone(b)
	}
	if len(a.buf)+len(b) > cap(a.buf) {
		a.buf = make([]byte, 0, arenaChunk) // what was handed out keeps the old piece alive
	}
	at := len(a.buf)
	a.buf = append(a.buf, b...)
	return a.buf[at:len(a.buf):len(a.buf)]
}

func (a *arena) reset() { a.buf = a.buf[:0] }
