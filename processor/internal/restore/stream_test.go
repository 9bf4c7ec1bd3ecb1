package restore

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// TestAnswersMoveAStream goes through what a broker may answer for one partition.
func TestAnswersMoveAStream(t *testing.T) {
	const bound = 10
	whole := func(first, last store.Offset) []byte { return testBatch(first, last, 0, -1) }
	now := time.Unix(100, 0)
	for _, c := range []struct {
		name         string
		batches      []byte
		stable, high int64
		first        bool

		event, last, blocked bool
		next                 store.Offset
	}{
		{"records", whole(4, 6), 20, 20, false, true, false, false, 7},
		{"records up to the bound", whole(4, 9), 20, 20, false, true, true, false, 10},
		{"records beyond the bound", whole(4, 15), 20, 20, false, true, true, false, 16},
		{"batch that begins before the position", whole(0, 5), 20, 20, false, true, false, false, 6},
		{"batch before the position only", whole(0, 3), 20, 20, false, false, false, false, 4},
		{"a part of a batch", whole(4, 9)[:50], 20, 20, false, false, false, false, 4},
		{"a part of a batch, first in the request", whole(4, 9)[:50], 20, 20, true, false, false, false, 4},
		{"a whole batch and a part", append(whole(4, 5), whole(6, 9)[:30]...), 20, 20, false, true, false, false, 6},
		{"nothing, others were served first", nil, 20, 20, false, false, false, false, 4},
		{"nothing, though first in the request", nil, 20, 20, true, true, true, false, 10},
		{"nothing, stable exactly to the bound", nil, 10, 20, true, true, true, false, 10},
		{"nothing, a transaction is open", nil, 4, 20, true, false, false, true, 4},
		{"nothing, a transaction is open behind a hole", nil, 8, 20, true, false, false, true, 8},
		{"nothing, a transaction is open behind a hole or what others were served before", nil, 8, 20, false, false, false, false, 4},
		{"nothing, the log ends below the bound", nil, 4, 4, true, false, false, true, 4},
		{"no last stable offset", nil, -1, 20, true, true, true, false, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &stream{topic: "log", bound: bound, next: 4, state: fetching, lastErr: errors.New("before"), errSince: now}
			e, ok := s.advanced(&kmsg.FetchResponseTopicPartition{
				RecordBatches: c.batches, LastStableOffset: c.stable, HighWatermark: c.high,
			}, c.first, now)
			if ok != c.event || e.last != c.last || s.blockedSince.IsZero() == c.blocked || s.next != c.next {
				t.Errorf("event %t, last %t, blocked %t, next %d; want %t, %t, %t, %d",
					ok, e.last, !s.blockedSince.IsZero(), s.next, c.event, c.last, c.blocked, c.next)
			}
			if (s.state == finished) != c.last {
				t.Errorf("state %s", s.state)
			}
			if broken := c.name == "a part of a batch, first in the request"; (s.lastErr != nil) != broken || s.retryAt.After(now) != broken {
				t.Errorf("last error %v, again at %s", s.lastErr, s.retryAt)
			}
		})
	}
}

func TestStuck(t *testing.T) {
	const hanging, stall = time.Minute, 2 * time.Minute
	now := time.Unix(1000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	cause := errors.New("refused connection")
	for _, c := range []struct {
		name string
		s    stream
		want any
	}{
		{"nothing wrong", stream{}, nil},
		{"errors not yet too long", stream{lastErr: cause, errSince: ago(time.Minute)}, nil},
		{"errors too long", stream{lastErr: cause, errSince: ago(stall)}, &StalledError{}},
		{"errors too long, but there is something to apply", stream{lastErr: cause, errSince: ago(stall), pending: 1}, nil},
		{"transaction not yet too long", stream{blockedSince: ago(59 * time.Second), high: 20, bound: 10}, nil},
		{"transaction too long", stream{blockedSince: ago(hanging), high: 20, bound: 10}, &HangingTransactionError{}},
		{"log too short, not yet too long", stream{blockedSince: ago(hanging), high: 5, bound: 10}, nil},
		{"log too short", stream{blockedSince: ago(stall), high: 5, bound: 10}, &StalledError{}},
		{"finished", stream{state: finished, lastErr: cause, errSince: ago(time.Hour)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.s.stuck(now, hanging, stall)
			var ok bool
			switch c.want.(type) {
			case *StalledError:
				_, ok = errors.AsType[*StalledError](err)
			case *HangingTransactionError:
				_, ok = errors.AsType[*HangingTransactionError](err)
			default:
				ok = err == nil
			}
			if !ok {
				t.Errorf("%v, want %T", err, c.want)
			}
		})
	}
}

// TestTurns: who is known to wait for others never keeps somebody from being first.
func TestTurns(t *testing.T) {
	blocked := &stream{served: 1, blockedSince: time.Unix(1, 0)}
	long, short := &stream{served: 3}, &stream{served: 8}
	if long.turn() >= short.turn() || short.turn() >= blocked.turn() {
		t.Errorf("turns %d, %d, %d", long.turn(), short.turn(), blocked.turn())
	}
	// The transaction ends: there is something to read, though this answer was full.
	blocked.next, blocked.bound, blocked.state = 5, 10, fetching
	if _, ok := blocked.advanced(&kmsg.FetchResponseTopicPartition{HighWatermark: 10, LastStableOffset: 10}, false, time.Unix(2, 0)); ok || blocked.turn() != 1 {
		t.Errorf("event %t, turn %d; want none, 1", ok, blocked.turn())
	}
}
