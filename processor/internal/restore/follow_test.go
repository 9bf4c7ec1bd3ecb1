package restore

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// following is a follower of one partition whose log has 10 offsets, in the hands of a test.
func following(t *testing.T, req FollowRequest) (*Follower, *worker, *stream, chan event) {
	m, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &Restorer{metrics: m, budget: newBudget(1 << 20), decoders: make(chan *decoder, 1), workers: map[int32]*worker{}}
	r.decoders <- newDecoder()
	out := make(chan event, 8)
	s := &stream{topic: "log", bound: 1 << 40, follow: true, state: fetching, out: out}
	f := &Follower{
		r: r, req: req, streams: []*stream{s}, from: []store.Offset{0}, ends: []store.Offset{10},
		applied: []store.LogPosition{{}}, behind: map[*stream]struct{}{}, began: time.Unix(50, 0),
	}
	return f, &worker{r: r}, s, out
}

// TestFailedChunkProvesNothing: the age of a copy that lacks a chunk ends before it, also while the stream goes on.
func TestFailedChunkProvesNothing(t *testing.T) {
	f, w, s, out := following(t, FollowRequest{Apply: func([]Record) error { return errors.New("full") }})
	before, sent := time.Unix(60, 0), time.Unix(100, 0)
	s.proven = before
	w.answered(s, &kmsg.FetchResponseTopicPartition{RecordBatches: testBatch(0, 9, 0, -1, testRecord{key: []byte("k")}), HighWatermark: 10, LastStableOffset: 10}, true, sent, sent)
	e := <-out
	if err := f.take(t.Context(), e); err == nil {
		t.Fatal("no error")
	}
	if p := f.Proven(); p.After(before) {
		t.Errorf("proven %s by a chunk that failed", p)
	}
	w.answered(s, &kmsg.FetchResponseTopicPartition{HighWatermark: 10, LastStableOffset: 10}, true, sent.Add(time.Second), sent)
	if p := f.Proven(); p.After(before) {
		t.Errorf("proven %s behind a chunk that failed", p)
	}
}

// TestFollowOverATailThatIsGone: what is left of a log may end below its stable offset, after a chunk as well as before the
// first one. No other chunk says then that the end is reached.
func TestFollowOverATailThatIsGone(t *testing.T) {
	ready := false
	var pos store.LogPosition
	f, w, s, out := following(t, FollowRequest{
		Apply:   func([]Record) error { return nil },
		Applied: func(_ store.Partition, p store.LogPosition, _ bool) { pos = p },
		Ready:   func(m map[store.Partition]store.LogPosition) { ready = true; pos = m[0] },
	})
	sent := time.Unix(100, 0)
	w.answered(s, &kmsg.FetchResponseTopicPartition{RecordBatches: testBatch(0, 6, 0, -1, testRecord{key: []byte("k")}), HighWatermark: 10, LastStableOffset: 10}, true, sent, sent)
	if err := f.take(t.Context(), <-out); err != nil {
		t.Fatal(err)
	}
	f.review()
	w.answered(s, &kmsg.FetchResponseTopicPartition{HighWatermark: 10, LastStableOffset: 10}, true, sent, sent)
	f.review()
	if !ready || pos.Next != 10 {
		t.Errorf("ready %t at %d", ready, pos.Next)
	}
}
