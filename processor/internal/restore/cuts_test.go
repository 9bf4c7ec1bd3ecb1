package restore

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// piecemaker builds the bytes of a log for a test.
type piecemaker []byte

func (p piecemaker) data(first, last store.Offset, producer int64) piecemaker {
	attributes := int16(0)
	if producer >= 0 {
		attributes = attrTransaction
	}
	records := make([]testRecord, last-first+1)
	for i := range records {
		records[i] = testRecord{delta: int32(i), key: []byte("k")}
	}
	return append(p, testBatch(first, last, attributes, producer, records...)...)
}

// holed is a batch that has lost records, or all of them.
func (p piecemaker) holed(first, last store.Offset, producer int64, left int) piecemaker {
	records := make([]testRecord, left)
	for i := range records {
		records[i] = testRecord{delta: int32(i), key: []byte("k")}
	}
	return append(p, testBatch(first, last, attrTransaction, producer, records...)...)
}

func (p piecemaker) end(at store.Offset, producer int64) piecemaker {
	return append(p, marker(at, producer, 1)...)
}

// TestCuts goes through what one answer may show: where the last cut is, and the last exact one; -1 for none.
func TestCuts(t *testing.T) {
	for _, c := range []struct {
		name         string
		before       cuts
		raw          piecemaker
		next, top    store.Offset
		whole, exact store.Offset
		hole         bool
	}{
		{"what is not transactional is closed at once", cuts{}, piecemaker{}.data(0, 1, -1).data(2, 2, -1), 3, 9, 3, 3, false},
		{"a transaction", cuts{}, piecemaker{}.data(0, 1, 1).end(2, 1), 3, 9, 3, 3, false},
		{"an open transaction", cuts{}, piecemaker{}.data(0, 1, -1).data(2, 3, 1), 4, 9, 2, 2, false},
		{"nothing but an open transaction", cuts{}, piecemaker{}.data(0, 1, 1), 2, 9, -1, -1, false},
		{"a marker of another producer ends nothing", cuts{}, piecemaker{}.data(0, 1, 1).end(2, 7).data(3, 3, 1), 4, 9, -1, -1, false},
		{"interleaved: one end is not enough", cuts{}, piecemaker{}.data(0, 0, 1).data(1, 1, 2).end(2, 1), 3, 9, -1, -1, false},
		{"interleaved: both ends", cuts{}, piecemaker{}.data(0, 0, 1).data(1, 1, 2).end(2, 1).end(3, 2), 4, 9, 4, 4, false},
		{"an emptied batch opens nothing", cuts{}, piecemaker{}.data(0, 0, -1).holed(1, 2, 5, 0), 3, 3, 3, 3, true},
		{"a marker where there was data", cuts{}, piecemaker{}.end(0, 1).end(1, 2), 2, 9, 2, 2, false},
		{"a batch that is missing", cuts{}, piecemaker{}.data(0, 1, -1).data(4, 5, -1), 6, 9, 6, 2, true},
		{"a batch that is missing, at the last stable offset", cuts{}, piecemaker{}.data(0, 1, -1).data(4, 5, -1), 6, 6, 6, 6, true},
		{"a record that is missing", cuts{}, piecemaker{}.data(0, 1, -1).holed(2, 4, 1, 2).end(5, 1), 6, 9, 6, 2, true},
		{"the first is missing", cuts{}, piecemaker{}.data(1, 1, -1), 2, 9, 2, -1, true},
		{"the last is missing", cuts{}, piecemaker{}.data(0, 1, -1), 5, 9, 5, 2, true},
		{"all is missing", cuts{}, nil, 5, 5, 5, 5, true},
		{"nothing new", cuts{next: 4}, nil, 4, 9, 4, 4, false},
		{"inside a batch", cuts{next: 1}, piecemaker{}.data(0, 2, -1), 3, 9, 3, 3, false},
		{"not exact before", cuts{target: 5}, piecemaker{}.data(0, 2, -1).data(3, 3, -1), 4, 9, 4, -1, false},
		{"exact from the target on", cuts{target: 5}, piecemaker{}.data(0, 2, -1).data(3, 4, -1).data(5, 5, -1), 6, 9, 6, 6, false},
		{"the first answer says how far", cuts{unsure: true}, piecemaker{}.data(0, 2, -1), 3, 9, 3, -1, false},
		{"the first answer says that it is here", cuts{unsure: true}, piecemaker{}.data(0, 2, -1), 3, 3, 3, 3, false},
		{"a source topic is whole at the committed offset only", cuts{source: true}, piecemaker{}.data(0, 2, -1).data(3, 5, -1), 4, 9, -1, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.before
			e := event{chunk: chunk{raw: c.raw}, next: c.next, top: c.top, high: c.top}
			whole, exact, hole, err := b.scan(&e)
			if err != nil {
				t.Fatal(err)
			}
			at := func(p cutPoint) store.Offset {
				if !p.exists() {
					return -1
				}
				return p.next
			}
			if at(whole) != c.whole || at(exact) != c.exact || hole != c.hole {
				t.Errorf("cut at %d, exact at %d, hole %t; want %d, %d, %t", at(whole), at(exact), hole, c.whole, c.exact, c.hole)
			}
			if whole.exists() && whole.at > len(c.raw) {
				t.Errorf("cut at byte %d of %d", whole.at, len(c.raw))
			}
			if b.next != c.next {
				t.Errorf("looked at up to %d, want %d", b.next, c.next)
			}
		})
	}
}

// TestCutsOfSourceTopic: whole where the group has committed, whatever transactions wrote it.
func TestCutsOfSourceTopic(t *testing.T) {
	c := cuts{source: true}
	e := event{chunk: chunk{raw: piecemaker{}.data(0, 2, 1).data(3, 5, 1)}, next: 4, top: 9, high: 9, atBound: true}
	whole, exact, hole, err := c.scan(&e)
	if err != nil || hole || whole.next != 4 || exact.next != 4 || c.data != 4 {
		t.Errorf("cut %+v, exact %+v, hole %t, data %d, %v", whole, exact, hole, c.data, err)
	}
}

// TestDoubts: a marker that never comes ends its transaction when all is read that was there after its data was seen, as the
// answer after it tells: that of the same answer may be older than what the answer lets through.
func TestDoubts(t *testing.T) {
	c := cuts{}
	c.doubt(unknownProducer)
	step := func(raw piecemaker, next, high store.Offset) store.Offset {
		t.Helper()
		whole, _, _, err := c.scan(&event{chunk: chunk{raw: raw}, next: next, top: high, high: high})
		if err != nil {
			t.Fatal(err)
		}
		if !whole.exists() {
			return -1
		}
		return whole.next
	}
	if at := step(piecemaker{}.data(0, 1, 3), 2, 5); at != -1 || !c.wondering() {
		t.Errorf("cut at %d, wondering %t", at, c.wondering())
	}
	if at := step(piecemaker{}.data(2, 3, -1), 4, 8); at != -1 || c.wondering() {
		t.Errorf("cut at %d below the 5 up to which something may belong to what was before", at)
	}
	if at := step(piecemaker{}.data(4, 6, -1), 7, 9); at != -1 || len(c.open) != 1 {
		t.Errorf("cut at %d, %d open: what was open before is decided, 3 is not", at, len(c.open))
	}
	if at := step(piecemaker{}.data(7, 7, -1), 8, 9); at != 8 {
		t.Errorf("cut at %d, want 8: the answer after that with its data ended there", at)
	}
	step(piecemaker{}.data(8, 8, 3), 9, 20)
	step(piecemaker{}.data(9, 10, -1), 11, 13)
	if at := step(piecemaker{}.data(11, 12, 3), 13, 30); at != -1 {
		t.Errorf("cut at %d: the end of the last transaction is no end of the next one", at)
	}
	if at := step(piecemaker{}.end(13, 3), 14, 30); at != 14 {
		t.Errorf("cut at %d behind the marker", at)
	}
}

// TestPartsOfAnAbort: an aborted transaction of which the cleaner has taken the beginning spans a cut; what is left of it
// behind the cut stays hidden, and what its producer commits after it does not.
func TestPartsOfAnAbort(t *testing.T) {
	record := func(key string) testRecord { return testRecord{key: []byte(key), value: []byte("1")} }
	front := testBatch(4, 4, 0, -1, record("shown"))
	back := testBatch(5, 5, attrTransaction, 3, record("aborted"))
	back = append(back, marker(6, 3, 0)...)
	back = append(back, testBatch(7, 7, attrTransaction, 3, record("committed"))...)
	back = append(back, marker(8, 3, 1)...)
	c := chunk{from: 4, raw: front, hidden: abortedBy([]kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 3, FirstOffset: 1}})}
	have, _, err := decodeAll(t, newDecoder(), c)
	if err != nil {
		t.Fatal(err)
	}
	c.from, c.raw = 5, back
	more, _, err := decodeAll(t, newDecoder(), c)
	if err != nil {
		t.Fatal(err)
	}
	if have = append(have, more...); len(have) != 2 || have[0] != `"shown"="1"(true)@1000` || have[1] != `"committed"="1"(true)@1000` {
		t.Errorf("%q", have)
	}
}

// TestStandbyStream: what an answer means for the stream of a standby.
func TestStandbyStream(t *testing.T) {
	answer := func(raw []byte, stable, high int64) *kmsg.FetchResponseTopicPartition {
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches, p.LastStableOffset, p.HighWatermark = raw, stable, high
		return &p
	}
	fresh := func() (*worker, *stream, chan event) {
		out := make(chan event, depth+1)
		w := &worker{r: &Restorer{workers: map[int32]*worker{}, budget: newBudget(1 << 20), unresolvedWake: make(chan struct{}, 1)}, wake: make(chan struct{}, 1)}
		w.r.workers[0] = w
		return w, &stream{topic: "log", bound: 1 << 40, follow: true, standby: true, state: fetching, lastEpoch: 5, out: out}, out
	}
	now := testTime
	w, s, out := fresh()
	w.answered(s, answer(nil, 0, 0), true, now, now)
	if len(out) != 0 {
		t.Error("an event of an answer that tells nothing")
	}
	s.tell = true
	w.answered(s, answer(nil, 0, 7), true, now, now)
	if e := <-out; e.next != 0 || e.high != 7 || e.top != 0 || s.tell || s.pending != 1 {
		t.Errorf("asked for: %+v, pending %d", e, s.pending)
	}
	w.answered(s, answer(nil, 7, 7), true, now, now) // the cleaner left nothing
	e := <-out
	if e.next != 7 || e.epoch != -1 || e.held != 0 || s.lastEpoch != -1 || s.pending != 2 {
		t.Errorf("over a hole: %+v, last epoch %d", e, s.lastEpoch)
	}
	w.r.applied(e)
	if s.pending != 1 {
		t.Errorf("%d pending after one was applied", s.pending)
	}
	w, s, out = fresh()
	diverged := answer(nil, 7, 7)
	diverged.DivergingEpoch.Epoch, diverged.DivergingEpoch.EndOffset = 4, 3
	w.answered(s, diverged, true, now, now)
	if e := <-out; e.err == nil || s.state != finished || e.err.Error() != "truncated: leader epoch 4 ended at 3, read under 5" {
		t.Errorf("diverged: %v, state %s", e.err, s.state)
	}

	// A bound that is raised: the stream rests at it, and goes on.
	w, s, out = fresh()
	s.cut, s.bound = true, 3
	w.answered(s, answer(testBatch(0, 5, 0, -1, make([]testRecord, 6)...), 6, 6), true, now, now)
	if e := <-out; e.next != 3 || !e.atBound || e.last || s.state != idle {
		t.Errorf("at the bound: %+v, state %s", e, s.state)
	}
	w.r.raise(s, 2)
	if s.bound != 3 || s.state != idle {
		t.Errorf("a bound went back to %d, state %s", s.bound, s.state)
	}
	w.r.raise(s, 6)
	if s.state != ready || len(w.queue) != 1 {
		t.Errorf("state %s, %d queued", s.state, len(w.queue))
	}
	s.state = fetching
	w.answered(s, answer(nil, 6, 6), true, now, now)
	if e := <-out; e.next != 6 || !e.atBound || s.state != idle {
		t.Errorf("a tail that is gone: %+v, state %s", e, s.state)
	}
}
