package processor

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// input is one input partition of a task: what was fetched and waits, and how far it is processed. It belongs to the
// stream thread.
type input struct {
	tp     store.TopicPartition
	source *nodeRun

	// queue[head:] are the records that wait, by offset.
	queue []*kgo.Record
	head  int
	// headTime is the extracted time of queue[head] when headReady.
	headTime  int64
	headReady bool

	// next is the next offset to process: what a commit commits.
	// Invariant: committed <= next, and next <= offset of queue[head].
	next, committed store.Offset
	// leaderEpoch of the last record processed, -1 when unknown.
	leaderEpoch int32
	// partitionTime is the greatest time extracted from the partition, -1 before the first; committedTime is what it was
	// at the last commit.
	partitionTime, committedTime int64
	// end is how far the log is known to reach, by its last stable offset; -1 when nobody knows. missed is an end that was waited for in
	// vain, from missedAt on: the last offsets of a compacted log may hold no record any more.
	end, missed, missedAt store.Offset
	// paused says that fetching is off because the queue is full.
	paused bool
	// bytes is what the records that wait cost.
	bytes int64
}

func newInput(tp store.TopicPartition) *input {
	return &input{tp: tp, next: -1, committed: -1, leaderEpoch: -1, partitionTime: -1, committedTime: -1, end: -1, missed: -1}
}

func (in *input) waiting() int { return len(in.queue) - in.head }

// reaches notes how far the log reaches.
func (in *input) reaches(end store.Offset) { in.end = max(in.end, end) }

// behind reports whether nothing waits although the broker is known to have more.
func (in *input) behind() bool {
	return in.waiting() == 0 && in.end > in.next && (in.end != in.missed || in.next < in.missedAt)
}

// miss notes that what the broker is known to have was waited for in vain.
func (in *input) miss() { in.missed, in.missedAt = in.end, in.next }

// push appends fetched records. Those below next were processed already: a fetch that was on its way when the position
// was set.
func (in *input) push(records []*kgo.Record) {
	for len(records) > 0 && store.Offset(records[0].Offset) < in.next {
		records = records[1:]
	}
	if in.head > 0 && in.head == len(in.queue) {
		in.queue, in.head = in.queue[:0], 0
	} else if in.head > 1024 && in.head > len(in.queue)/2 {
		n := copy(in.queue, in.queue[in.head:])
		clear(in.queue[n:])
		in.queue, in.head = in.queue[:n], 0
	}
	for _, r := range records {
		in.bytes += bytesOf(r)
	}
	in.queue = append(in.queue, records...)
}

// time asks for the time of the head.
func (in *input) time(r *Record, m RecordMetadata) (int64, error) {
	if timer, ok := in.source.proc.(Timer); ok {
		return timer.Time(r, m, in.partitionTime)
	}
	return in.source.def.source.Timestamp(r, m, in.partitionTime)
}

func (in *input) peek() *kgo.Record { return in.queue[in.head] }

// advance takes the head off the queue: it is processed, or skipped for good. The client takes its memory back.
func (in *input) advance() {
	r := in.queue[in.head]
	in.bytes -= bytesOf(r)
	in.queue[in.head] = nil
	in.head++
	in.headReady = false
	in.next, in.leaderEpoch = store.Offset(r.Offset)+1, r.LeaderEpoch
	r.Recycle()
}

// drop forgets what waits.
func (in *input) drop() {
	clear(in.queue)
	in.bytes = 0
	in.queue, in.head, in.headReady = in.queue[:0], 0, false
}

// rewind goes back to the last commit: what waits is forgotten and will be fetched again.
func (in *input) rewind() {
	in.drop()
	in.next, in.partitionTime = in.committed, in.committedTime
}

// becomeCommitted notes that what was processed is committed.
func (in *input) becomeCommitted() {
	in.committed, in.committedTime = in.next, in.partitionTime
}

func (in *input) moved() bool { return in.next != in.committed }
