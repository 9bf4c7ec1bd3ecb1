package restore

import (
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Proof says how fresh a state is, by evidence that needs no clock but this machine's.
type Proof struct {
	// At: everything that was committed before this moment is in the state. As RoundsConfig.Now gave it.
	At time.Time
	// Inputs are the offsets that the group had committed then, for the inputs that have one; the state has all that is
	// before them. Shared: not to be changed.
	Inputs map[store.TopicPartition]store.Offset
	// Position is the same for queries: the last offset before each of Inputs. Shared: not to be changed.
	Position store.Position
	// Sequence is that of the last commit of the task then, 0 when unknown; StreamTime its stream time, Unix milliseconds, -1
	// when unknown.
	Sequence   store.Sequence
	StreamTime int64
}

// Watched is one task in the rounds. Safe for concurrent use.
type Watched struct {
	r      *Rounds
	task   store.TaskID
	inputs []store.TopicPartition // sorted

	mu sync.Mutex // alone, or with Rounds.mu held
	// stand is where the inputs are; replaced as a whole. nil before the first answer.
	stand   *standing
	logs    map[store.Name]*watchedLog
	changed chan struct{} // nil while nobody waits
	closed  bool
}

// watchedLog is one changelog of a task.
type watchedLog struct {
	topic     string
	id        [16]byte
	partition int32
	source    bool
	// ends are what the rounds told of the end, oldest first, both times and ends ascending. used is the newest that a proof
	// was made of.
	ends []watchedEnd
	used int
}

// watchedEnd is an answer: where the log ended (a source topic: where the group stood), when that was asked, under which
// leader epoch, and where the inputs stood before that.
type watchedEnd struct {
	asked time.Time
	end   store.Offset
	epoch int32
	stand *standing
}

// keptEnds is how many ends a log remembers. With less than that between a copy's position and the log's end no proof is older
// than it must be.
const keptEnds = 64

// add takes in an answer. It reports false for one that contradicts an earlier answer: the log was truncated, or the broker is
// not its leader any more.
func (l *watchedLog) add(e watchedEnd) bool {
	if n := len(l.ends); n > 0 {
		last := &l.ends[n-1]
		switch {
		case e.asked.Before(last.asked): // an answer that was overtaken
			return true
		case e.end < last.end && e.epoch > last.epoch:
			l.ends, l.used = l.ends[:0], 0
		case e.end < last.end:
			return false
		case e.end == last.end: // the older one proves nothing that this one does not
			*last = e
			return true
		}
	}
	if len(l.ends) == keptEnds {
		l.thin()
	}
	l.ends = append(l.ends, e)
	return true
}

// thin makes room: what is older than the last proof goes, else the answer that is missed least, for how old it is. So what a
// copy that is far behind proves is older than it must be by a part of its age. The last proof itself stays: while a
// transaction hangs there is no newer one.
func (l *watchedLog) thin() {
	if l.used > 0 {
		l.ends = slices.Delete(l.ends, 0, l.used)
		l.used = 0
		return
	}
	newest := l.ends[len(l.ends)-1].asked
	drop, least := 1, math.Inf(1)
	for i := 1; i < len(l.ends)-1; i++ {
		gap := l.ends[i+1].asked.Sub(l.ends[i-1].asked)
		if loss := float64(gap) / float64(newest.Sub(l.ends[i].asked)); loss < least {
			drop, least = i, loss
		}
	}
	l.ends = slices.Delete(l.ends, drop, drop+1)
}

// reached is the newest end that a position has come to.
func (l *watchedLog) reached(next store.Offset) (watchedEnd, bool) {
	i := sort.Search(len(l.ends), func(i int) bool { return l.ends[i].end > next }) - 1
	if i < 0 {
		return watchedEnd{}, false
	}
	l.used = max(l.used, i)
	return l.ends[i], true
}

// standing is where the inputs of a task stood. Immutable but for what is made of it when it is first asked for.
type standing struct {
	inputs []store.TopicPartition
	at     []Committed // by input

	once     sync.Once
	offsets  map[store.TopicPartition]store.Offset
	position store.Position
	sequence store.Sequence
	time     int64
}

func (s *standing) proof(at time.Time) Proof {
	if s == nil {
		return Proof{At: at, StreamTime: -1}
	}
	s.once.Do(func() {
		s.offsets, s.position, s.time = make(map[store.TopicPartition]store.Offset), store.Position{}, -1
		for i, tp := range s.inputs {
			c := s.at[i]
			if !c.Exists {
				continue
			}
			s.offsets[tp] = c.Next
			if c.Next > 0 {
				s.position.Set(tp.Topic, tp.Partition, c.Next-1)
			}
			s.sequence, s.time = max(s.sequence, c.Meta.Sequence), max(s.time, c.Meta.StreamTime)
		}
	})
	return Proof{At: at, Inputs: s.offsets, Position: s.position, Sequence: s.sequence, StreamTime: s.time}
}

// Proof says how fresh a state with these positions is: those of the snapshot that answers (Snapshot.Checkpoint().Changelogs),
// and not of anything newer. With several changelogs the oldest counts. ok is false while nothing is proven: no round since
// Watch has told an end that the state has reached, a changelog has no position, or is of another topic id.
func (w *Watched) Proof(applied map[store.Name]store.LogPosition) (p Proof, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var oldest watchedEnd
	for name, l := range w.logs {
		pos, have := applied[name]
		if !have || known(pos.TopicID) && known(l.id) && pos.TopicID != l.id {
			return Proof{}, false
		}
		e, reached := l.reached(pos.Next)
		if !reached {
			return Proof{}, false
		}
		if !ok || e.asked.Before(oldest.asked) {
			oldest, ok = e, true
		}
	}
	if !ok {
		return Proof{}, false
	}
	return oldest.stand.proof(oldest.asked), true
}

// Committed is the newest committed offset of an input that is known; ok is false before the first answer.
func (w *Watched) Committed(tp store.TopicPartition) (c Committed, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, found := slices.BinarySearchFunc(w.inputs, tp, compareInputs)
	if w.stand == nil || !found {
		return Committed{}, false
	}
	return w.stand.at[i], true
}

// Changed is closed when a round has told something new about the task, or Close was called. Take it before Proof.
func (w *Watched) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
		if w.closed {
			close(w.changed)
		}
	}
	return w.changed
}

// Ask lets the next round begin soon; see Rounds.Ask.
func (w *Watched) Ask() { w.r.Ask() }

// Close ends the watching. Proofs stay as they are.
func (w *Watched) Close() {
	w.r.forget(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.tellLocked()
}

// tellLocked wakes those who wait for a change.
func (w *Watched) tellLocked() {
	if w.changed == nil {
		return
	}
	select {
	case <-w.changed: // closed, and stays so
	default:
		close(w.changed)
	}
	if !w.closed {
		w.changed = nil
	}
}

// stood takes in where the group stands, as it was asked for at a time. What is missing in the answer, as an offset that a
// transaction is about to change, stays what it was, and proves nothing about the store that is made of that input.
func (w *Watched) stood(asked time.Time, have map[store.TopicPartition]Committed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := &standing{inputs: w.inputs, at: make([]Committed, len(w.inputs))}
	same := w.stand != nil
	for i, tp := range w.inputs {
		c, ok := have[tp]
		switch {
		case ok:
		case w.stand != nil:
			c = w.stand.at[i]
		default:
			c = committedAs(-1, nil)
		}
		next.at[i] = c
		same = same && c == w.stand.at[i]
	}
	if !same {
		w.stand = next
	}
	told := !same
	for _, l := range w.logs {
		if !l.source {
			continue
		}
		c, ok := have[store.TopicPartition{Topic: l.topic, Partition: store.Partition(l.partition)}]
		if !ok {
			continue
		}
		told = true
		e := watchedEnd{asked: asked, stand: w.stand}
		if c.Exists {
			e.end = c.Next
		}
		if !l.add(e) { // the group's offsets were reset: what was proven before belongs to another state
			l.ends, l.used = append(l.ends[:0], e), 0
		}
	}
	if told {
		w.tellLocked()
	}
}

// ended takes in where a changelog ends. It reports false for an answer that contradicts an earlier one.
func (w *Watched) ended(l *watchedLog, e watchedEnd) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ok := l.add(e)
	if ok {
		w.tellLocked()
	}
	return ok
}

func (w *Watched) standing() *standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stand
}

func compareInputs(a, b store.TopicPartition) int {
	switch {
	case a.Topic < b.Topic:
		return -1
	case a.Topic > b.Topic:
		return 1
	default:
		return int(a.Partition) - int(b.Partition)
	}
}
