package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
)

// flushEvery is the longest time that an event waits in memory while events come: what a killed recorder loses.
const flushEvery = 100 * time.Millisecond

// Options of a recorder.
type Options struct {
	// Seed and Note go into the header.
	Seed uint64
	Note string
	// Now is the clock: time since any fixed moment, never going back. nil: the monotonic clock.
	Now func() time.Duration
}

// Recorder writes one history. Safe for concurrent use: an event gets its time and its place in the file in one step, so
// that their order is that of the file. An error of the file ends the recording, silently until [Recorder.Close] or
// [Recorder.Err]: the work that is recorded is not disturbed.
type Recorder struct {
	mu      sync.Mutex
	out     *bufio.Writer
	file    io.Closer // nil: not ours
	now     func() time.Duration
	zero    time.Duration
	last    time.Duration // of the last event
	flushed time.Duration
	next    int64
	closed  bool
	err     error
}

// New records to w, which must take whole writes. Close flushes, and leaves w open.
func New(w io.Writer, o Options) *Recorder {
	if o.Now == nil {
		began := time.Now()
		o.Now = func() time.Duration { return time.Since(began) }
	}
	r := &Recorder{out: bufio.NewWriterSize(w, 1<<16), now: o.Now, zero: o.Now()}
	r.record(Event{Kind: KindHeader, Header: &Header{Version: Version, Started: time.Now().UTC(), Seed: o.Seed, Note: o.Note}})
	return r
}

// Create records to a new file. One that exists is refused: the times of two recorders do not compare.
func Create(path string, o Options) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	r := New(f, o)
	r.file = f
	return r, nil
}

// Store declares what the values of a store are. To be called before it is written or read.
func (r *Recorder) Store(name string, m Model) {
	r.record(Event{Kind: KindStore, Store: &Store{Name: name, Model: m}})
}

// Write notes a record right before it is sent.
func (r *Recorder) Write(w Write) Writing {
	return Writing{r: r, id: r.begin(Event{Kind: KindWrite, Write: &w})}
}

// Read notes a question right before it is asked, and before the token that it insists on is taken.
func (r *Recorder) Read(q Read) Reading {
	return Reading{r: r, id: r.begin(Event{Kind: KindRead, Read: &q})}
}

// Fault notes that something is broken, right before it is.
func (r *Recorder) Fault(kind, target string) Faulting {
	return Faulting{r: r, id: r.begin(Event{Kind: KindFault, Fault: &Fault{Kind: kind, Target: target}})}
}

// Final notes a row as an instance shows it when everything has come to rest.
func (r *Recorder) Final(row Row) { r.record(Event{Kind: KindFinal, Row: &row}) }

// Log notes what the records that the input log really holds make of a row: a truth above all acknowledgements.
func (r *Recorder) Log(row Row) { r.record(Event{Kind: KindLog, Row: &row}) }

// Err is what ended the recording, nil while it goes on.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close ends the history. What is recorded later is passed over. Idempotent.
func (r *Recorder) Close() error {
	r.record(Event{Kind: KindEnd})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.err
	}
	r.closed = true
	r.fail(r.out.Flush())
	if r.file != nil {
		r.fail(r.file.Close())
	}
	return r.err
}

func (r *Recorder) fail(err error) {
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("history: %w", err))
	}
}

func (r *Recorder) begin(e Event) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	e.ID = r.next
	r.put(e)
	return e.ID
}

func (r *Recorder) record(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(e)
}

func (r *Recorder) put(e Event) {
	if r.closed || r.err != nil {
		return
	}
	r.last = max(r.last, r.now()-r.zero)
	e.At = r.last
	line, err := json.Marshal(e)
	if err != nil {
		r.fail(err)
		return
	}
	if _, err := r.out.Write(append(line, '\n')); err != nil {
		r.fail(err)
		return
	}
	if r.last-r.flushed >= flushEvery {
		r.flushed = r.last
		r.fail(r.out.Flush())
	}
}

// Writing is a record under way. One of its methods is called, once.
type Writing struct {
	r  *Recorder
	id int64
}

// Acked notes where the record is. A reader that insists on the latest must be able to know the place by now.
func (w Writing) Acked(p store.Partition, o store.Offset) {
	w.r.record(Event{Kind: KindAcked, ID: w.id, Place: &Place{Partition: p, Offset: o}})
}

// Unknown notes that the record may or may not be in the log, now or later.
func (w Writing) Unknown(reason string) {
	w.r.record(Event{Kind: KindUnknown, ID: w.id, Reason: reason})
}

// Refused notes that the record is not in the log and never will be: its transaction was aborted, or it was never sent.
func (w Writing) Refused(reason string) {
	w.r.record(Event{Kind: KindRefused, ID: w.id, Reason: reason})
}

// Reading is a question under way. One of its methods is called, once.
type Reading struct {
	r  *Recorder
	id int64
}

// Answered notes the answer; "not found" is one.
func (r Reading) Answered(a Answer) { r.r.record(Event{Kind: KindAnswered, ID: r.id, Answer: &a}) }

// Failed notes that there was none. Reason is one of few: figures are given by reason.
func (r Reading) Failed(reason string) { r.r.record(Event{Kind: KindFailed, ID: r.id, Reason: reason}) }

// Faulting is a fault that lasts.
type Faulting struct {
	r  *Recorder
	id int64
}

// Mended notes that nothing is broken any more by this fault.
func (f Faulting) Mended() { f.r.record(Event{Kind: KindMended, ID: f.id}) }
