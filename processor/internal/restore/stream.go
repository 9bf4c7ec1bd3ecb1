package restore

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// depth is how many chunks of one partition may wait to be applied: one that is applied, one that is fetched meanwhile.
const depth = 2

// streamState says who holds a stream.
type streamState uint8

const (
	// resolving: Run looks for its leader.
	resolving streamState = iota
	// ready: it is in the queue of its leader's worker.
	ready
	// fetching: it is part of a request on its way.
	fetching
	// parked: depth chunks wait to be applied.
	parked
	// idle: it is at its bound, which may be raised.
	idle
	// finished: the bound is reached, an error was handed over, or nobody wants it any more.
	finished
)

func (s streamState) String() string {
	return [...]string{"resolving", "ready", "fetching", "parked", "idle", "finished"}[s]
}

// stream is one changelog partition being read up to its bound. Fields below mu belong to Restorer.mu.
type stream struct {
	store     store.Name
	topic     string
	id        [16]byte
	partition int32
	bound     store.Offset
	out       chan<- event
	// cut: nothing from the bound on is handed over.
	cut bool
	// follow: the stream goes on until it is closed. Its bound, if it has one, may be raised.
	follow bool
	// standby: what reads it wants to know of every place it comes to, and of what answers say about the log.
	standby bool

	// mu of the Restorer guards:
	state       streamState
	leader      int32
	leaderEpoch int32
	next        store.Offset // invariant: next <= bound until finished
	pending     int          // chunks handed over and not yet applied, <= depth
	// served is the number of its leader's fetch that last brought something.
	served int64
	// denied counts in a row how often metadata did not know the topic.
	denied int
	// lastErr is what the last answer said, nil when it was good; errSince is when a run of errors began, fails counts
	// them, and before retryAt nothing is tried.
	lastErr           error
	errSince, retryAt time.Time
	fails             int
	// marks are high watermarks that are not reached yet, each with the time at which the fetch that told it was sent,
	// oldest first. What had been acknowledged by that time lies below. seen is the newest such time that next has
	// reached; proven is what of it was applied.
	marks        []mark
	seen, proven time.Time
	// top is the highest last stable offset that any answer told, lastEpoch is the leader epoch of the last batch (-1: none),
	// and tell asks for an event by the next answer, whatever it brings.
	top       store.Offset
	lastEpoch int32
	tell      bool
	// blockedSince is when an open transaction, or a log that ends below the bound, was first seen to be in the way;
	// zero when nothing is. stable and high are the last stable offset and the high watermark then.
	blockedSince time.Time
	stable, high store.Offset
}

// event is what a stream hands to the restore that reads it: a chunk, its end, or an error.
type event struct {
	s     *stream
	chunk chunk
	// next is the position after the chunk, epoch the leader epoch of its last batch (-1: none).
	next  store.Offset
	epoch int32
	// held is what the chunk takes of the budget; it is released when the chunk was applied. counted: it is one of the
	// stream's pending events.
	held    int64
	counted bool
	last    bool
	err     error
	// seen is the stream's when the chunk came; whole says that nothing beyond it was decided then.
	seen  time.Time
	whole bool
	// For a standby: top of the stream, the answer's high watermark, whether next is the bound of then, and what
	// the stream had seen before the answer.
	since     time.Time
	top, high store.Offset
	atBound   bool
}

// mark is a high watermark and when it was asked for.
type mark struct {
	sent time.Time
	high store.Offset
}

// note takes in the high watermark that the answer to a fetch sent at a time told.
func (s *stream) note(sent time.Time, high store.Offset) {
	const most = 16
	if len(s.marks) == most { // the oldest are reached first, the newest is worth most
		s.marks = s.marks[:most-1]
	}
	s.marks = append(s.marks, mark{sent: sent, high: high})
	n := 0
	for n < len(s.marks) && s.marks[n].high <= s.next {
		s.seen = s.marks[n].sent
		n++
	}
	s.marks = append(s.marks[:0], s.marks[n:]...)
	if s.pending == 0 {
		s.proven = s.seen
	}
}

// errOutOfRange reports that the position is no longer in the log.
var errOutOfRange = errors.New("offset out of range")

// divergedError reports that the log is another one behind some offset than what was read: it was truncated.
type divergedError struct {
	read, epoch int32
	end         store.Offset
}

func (e *divergedError) Error() string {
	return fmt.Sprintf("truncated: leader epoch %d ended at %d, read under %d", e.epoch, e.end, e.read)
}

// advanced takes in an answer without an error. It returns the event to hand over, if any. first says that the partition
// was the first of its request.
func (s *stream) advanced(p *kmsg.FetchResponseTopicPartition, first bool, now time.Time) (e event, ok bool) {
	s.high, s.stable = store.Offset(p.HighWatermark), store.Offset(p.LastStableOffset)
	if s.stable < 0 {
		s.stable = s.high
	}
	if s.next < s.stable {
		s.blockedSince = time.Time{}
	}
	next, epoch, err := survey(p.RecordBatches, s.next)
	if err != nil {
		s.state = finished
		return event{s: s, err: &CorruptLogError{Topic: s.topic, Partition: store.Partition(s.partition), Offset: next, Reason: err.Error()}}, true
	}
	s.lastErr, s.errSince, s.retryAt, s.fails, s.denied = nil, time.Time{}, time.Time{}, 0, 0
	if next > s.next {
		e = event{
			s: s, next: next, epoch: epoch, held: int64(len(p.RecordBatches)), last: next >= s.bound,
			chunk: chunk{from: s.next, raw: p.RecordBatches, aborted: p.AbortedTransactions},
		}
		if s.cut {
			next = min(next, s.bound)
			e.next, e.chunk.until = next, s.bound
		}
		s.next, s.blockedSince = next, time.Time{}
		s.pending++
		e.counted = true
		s.reached(&e)
		return e, true
	}
	switch {
	case s.next >= s.stable: // an open transaction begins here, or the log ends
		s.block(now)
	case !first:
		// The answer may have been full before it came to this partition: nothing is proven. Its turn will come.
	case len(p.RecordBatches) > 0:
		s.failed(fmt.Errorf("%d bytes from offset %d hold no whole batch", len(p.RecordBatches), s.next), now)
	case s.stable < s.bound: // the cleaner left nothing up to an open transaction
		s.next = s.stable
		s.block(now)
	default:
		// Everything up to the bound is decided, and nothing of it is left: the cleaner took the tail.
		s.next = s.bound
		e = event{s: s, next: s.bound, epoch: -1, last: true}
		s.reached(&e)
		return e, !s.follow
	}
	return event{}, false
}

// reached ends a stream whose last event this is, or lets it wait for another bound.
func (s *stream) reached(e *event) {
	switch {
	case !e.last:
	case s.follow:
		e.last, s.state = false, idle
	default:
		s.state = finished
	}
}

// told completes the event of an answer for a standby, or makes one of an answer that brought no data: when the stream has
// come further without any, since the cleaner took it, and when it was asked for. before is where the stream was.
func (s *stream) told(e event, ok bool, before store.Offset) (event, bool) {
	s.top = max(s.top, s.stable)
	switch {
	case ok:
		s.lastEpoch = e.epoch
	case s.next > before || s.tell:
		if s.next > before {
			s.lastEpoch = -1
		}
		e, ok = event{s: s, next: s.next, epoch: -1, counted: true, chunk: chunk{from: before}}, true
		s.pending++
	default:
		return e, false
	}
	s.tell = false
	e.since = s.seen
	e.top, e.high, e.atBound = s.top, max(s.high, s.stable), s.next == s.bound
	return e, ok
}

// failed takes in an error that may pass.
func (s *stream) failed(err error, now time.Time) {
	const first, last = 20 * time.Millisecond, time.Second
	s.lastErr, s.blockedSince = err, time.Time{}
	if s.errSince.IsZero() {
		s.errSince = now
	}
	s.retryAt = now.Add(min(first<<min(s.fails, 10), last))
	s.fails++
}

func (s *stream) block(now time.Time) {
	if s.blockedSince.IsZero() {
		s.blockedSince = now
	}
}

// turn orders the streams of a request: who has waited longest for something comes first, who is known to wait for
// others last. An answer may be full before it comes to the later ones, and only the first one's empty answer proves
// that there is nothing. Whoever is first is served, or done, or blocked, so everybody's turn comes.
func (s *stream) turn() int64 {
	if !s.blockedSince.IsZero() {
		return math.MaxInt64
	}
	return s.served
}

// stuck says why nothing can be expected any more, or is nil.
func (s *stream) stuck(now time.Time, hanging, stall time.Duration) error {
	if s.state == finished || s.pending > 0 {
		return nil
	}
	p := store.Partition(s.partition)
	if waited := now.Sub(s.errSince); s.lastErr != nil && waited >= stall {
		return &StalledError{Topic: s.topic, Partition: p, Next: s.next, Waited: waited, Err: s.lastErr}
	}
	if s.blockedSince.IsZero() {
		return nil
	}
	waited := now.Sub(s.blockedSince)
	switch {
	case s.high < s.bound && waited >= max(hanging, stall):
		return &StalledError{
			Topic: s.topic, Partition: p, Next: s.next, Waited: waited,
			Err: fmt.Errorf("the log ends at %d, below the restore bound %d", s.high, s.bound),
		}
	case s.high >= s.bound && waited >= hanging:
		return &HangingTransactionError{
			Store: s.store, Topic: s.topic, Partition: p, LastStable: s.stable, Bound: s.bound, Waited: waited,
		}
	default:
		return nil
	}
}
