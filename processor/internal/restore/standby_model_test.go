package restore

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// modelLog is one changelog partition as a broker keeps it: what was ever written, of which the cleaner has taken some.
type modelLog struct {
	topic   string
	batches []modelBatch
	end     store.Offset
	open    map[int64]store.Offset // first offset of the open transaction, by producer
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	ends    []store.Offset // of their markers, by the index of aborted
	told    store.Offset   // the high watermark of the last answer
	commits []modelCommit  // of what was acknowledged
}

// modelCommit is when somebody was told that something is committed, and where its last record is.
type modelCommit struct {
	at   time.Time
	last store.Offset
}

type modelBatch struct {
	first, last store.Offset
	producer    int64
	tx, control bool
	commit      bool         // of a control batch
	fate        store.Offset // of transactional data: where its marker is; -1: still open
	kept        bool         // of the transaction: committed
	records     []modelRecord
	gone        bool // taken by the cleaner
}

type modelRecord struct {
	delta      int32
	key, value string
	gone       bool
}

func (l *modelLog) stable() store.Offset {
	at := l.end
	for _, first := range l.open {
		at = min(at, first)
	}
	return at
}

func (l *modelLog) write(producer int64, tx bool, records []modelRecord) {
	b := modelBatch{first: l.end, last: l.end + store.Offset(len(records)) - 1, producer: producer, tx: tx, fate: -1, records: records}
	for i := range records {
		records[i].delta = int32(i)
	}
	if tx {
		if _, ok := l.open[producer]; !ok {
			l.open[producer] = l.end
		}
	}
	l.batches = append(l.batches, b)
	l.end = b.last + 1
}

func (l *modelLog) finish(producer int64, commit bool) {
	first, ok := l.open[producer]
	if ok {
		for i := range l.batches {
			if b := &l.batches[i]; b.tx && b.producer == producer && b.fate < 0 {
				b.fate, b.kept = l.end, commit
			}
		}
		if !commit {
			l.aborted = append(l.aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: producer, FirstOffset: int64(first)})
			l.ends = append(l.ends, l.end)
		}
		delete(l.open, producer)
	}
	l.batches = append(l.batches, modelBatch{first: l.end, last: l.end, producer: producer, control: true, commit: commit})
	l.end++
}

// clean takes away, below some offset, the values for which there is a newer one there, and what was aborted; of a batch that
// loses all, sometimes an empty one stays. A marker goes when nothing of its transaction is left.
func (l *modelLog) clean(to store.Offset, choose func(int) int) {
	newest := map[string]store.Offset{}
	each := func(do func(b *modelBatch)) {
		for i := range l.batches {
			if b := &l.batches[i]; b.last < to {
				do(b)
			}
		}
	}
	each(func(b *modelBatch) {
		for _, r := range b.records {
			if !b.tx || b.kept {
				newest[r.key] = b.first + store.Offset(r.delta)
			}
		}
	})
	left := map[store.Offset]bool{} // markers that are needed
	each(func(b *modelBatch) {
		some := false
		for i := range b.records {
			r := &b.records[i]
			r.gone = r.gone || b.tx && !b.kept || newest[r.key] > b.first+store.Offset(r.delta)
			some = some || !r.gone
		}
		if !some && !b.control && !b.gone {
			b.gone = choose(3) > 0
		}
	})
	for _, b := range l.batches {
		if b.tx && !b.gone && b.fate >= 0 {
			left[b.fate] = true
		}
	}
	each(func(b *modelBatch) {
		if b.control && !left[b.first] && choose(2) == 0 {
			b.gone = true
			if i := slices.Index(l.ends, b.first); i >= 0 { // a broker's index of aborted transactions is cleaned with the log
				l.ends, l.aborted = slices.Delete(l.ends, i, i+1), slices.Delete(l.aborted, i, i+1)
			}
		}
	})
}

// fetch answers a read_committed fetch with some batches.
func (l *modelLog) fetch(from store.Offset, most int, choose func(int) int) kmsg.FetchResponseTopicPartition {
	resp := kmsg.NewFetchResponseTopicPartition()
	stable := l.stable()
	// The high watermark of an answer may be older than the last stable offset beside it, but not than the answer before.
	resp.LastStableOffset, resp.HighWatermark = int64(stable), int64(l.told+store.Offset(choose(int(l.end-l.told)+1)))
	l.told = l.end
	upper := from
	for _, b := range l.batches {
		if b.gone || b.last < from || b.first >= stable || most == 0 {
			continue
		}
		most--
		attributes := int16(0)
		if b.tx {
			attributes = attrTransaction
		}
		upper = b.last + 1
		if b.control {
			typ := int16(0)
			if b.commit {
				typ = 1
			}
			resp.RecordBatches = append(resp.RecordBatches, marker(b.first, b.producer, typ)...)
			continue
		}
		var records []testRecord
		for _, r := range b.records {
			if r.gone {
				continue
			}
			tr := testRecord{delta: r.delta, key: []byte(r.key)}
			if r.value != "" {
				tr.value = []byte(r.value)
			}
			records = append(records, tr)
		}
		resp.RecordBatches = append(resp.RecordBatches, testBatch(b.first, b.last, attributes, b.producer, records...)...)
	}
	for i, a := range l.aborted {
		if l.ends[i] >= from && store.Offset(a.FirstOffset) < upper {
			resp.AbortedTransactions = append(resp.AbortedTransactions, a)
		}
	}
	return resp
}

// state is what whole commits have made up to an offset: a transaction counts if its marker is before it.
func (l *modelLog) state(to store.Offset) []string {
	kv := map[string]string{}
	for _, b := range l.batches {
		if b.control || b.tx && (!b.kept || b.fate >= to) {
			continue
		}
		for _, r := range b.records {
			switch {
			case b.first+store.Offset(r.delta) >= to:
			case r.value == "":
				delete(kv, r.key)
			default:
				kv[r.key] = fmt.Sprintf("%s=%s@1000", r.key, r.value)
			}
		}
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(kv)) {
		out = append(out, kv[k])
	}
	return out
}

// model is a standby of one or two changelogs, and their brokers, without a network.
type model struct {
	t      *testing.T
	choose func(n int) int
	r      *Restorer
	task   *memoryTask
	logs   map[store.Name]*modelLog
	s      *Standby
	out    chan event
	w      *worker
	rounds *Rounds
	watch  *Watched
	now    time.Time
	seq    int
	trace  []string
	// exact publications, and those that were not.
	exact, inexact int
}

// heavy claims to hold so much that what is applied is committed at once.
type heavy struct{ *memoryTask }

func (h heavy) UncommittedBytes() int64 { return 2000 * h.memoryTask.UncommittedBytes() }

func newModel(t *testing.T, choose func(n int) int) *model {
	m := &model{t: t, choose: choose, task: newMemoryTask(t, 0), logs: map[store.Name]*modelLog{}, now: time.Unix(1e6, 0)}
	metrics, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{BufferBytes: 1 << 20, CommitBytes: 1}.withDefaults()
	m.r = &Restorer{
		cfg: cfg, log: cfg.Logger, metrics: metrics, budget: newBudget(1 << 20), decoders: make(chan *decoder, 1),
		workers: map[int32]*worker{}, standbys: &standbySet{standbyMetrics: newStandbyMetrics()},
	}
	m.r.decoders <- newDecoder()
	m.w = &worker{r: m.r, wake: make(chan struct{}, 1)}
	m.r.workers[0] = m.w
	changelogs := map[store.Name]Changelog{}
	for i := range 1 + choose(2) {
		name := store.Name(fmt.Sprint("s", i))
		m.logs[name] = &modelLog{topic: fmt.Sprint("log", i), open: map[int64]store.Offset{}}
		changelogs[name] = Changelog{Topic: m.logs[name].topic}
	}
	if m.rounds, err = newRounds(RoundsConfig{Now: func() time.Time { return m.now }}, nil); err != nil {
		t.Fatal(err)
	}
	m.watch = m.rounds.Watch(m.task.ID(), nil, changelogs)
	m.start()
	return m
}

func (m *model) note(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func (m *model) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

// start is a standby that begins at the copy's checkpoint.
func (m *model) start() {
	req := StandbyRequest{Task: heavy{m.task}, Changelogs: map[store.Name]Changelog{}, Watched: m.watch, PendingBytes: 1 << 16}
	if m.choose(3) == 0 {
		req.PendingBytes = int64(1 + m.choose(400))
	}
	facts := map[string]logFacts{}
	for name, l := range m.logs {
		req.Changelogs[name] = Changelog{Topic: l.topic}
		facts[l.topic] = logFacts{leaderEpoch: 5, end: l.end}
	}
	req.Published = func() {}
	m.s = newStandby(m.r, req)
	m.s.job = newJob(m.r, Request{Task: heavy{m.task}, Changelogs: req.Changelogs})
	if err := m.s.resume(m.t.Context(), facts); err != nil {
		m.fatal("start: %v", err)
	}
	m.note("start at %v, restoring %t, pending %d", m.s.cp.Changelogs, m.task.Checkpoint().Restoring, req.PendingBytes)
	var streams []*stream
	for _, f := range m.s.logs {
		streams = append(streams, f.s)
	}
	m.out = make(chan event, len(streams)*(depth+1))
	for _, st := range streams {
		st.out, st.state = m.out, ready
	}
	m.s.commit(m.t.Context())
	m.check()
}

// stop ends the standby, as when its context ends; a kill leaves what was committed, and no more.
func (m *model) stop(kill bool) {
	var streams []*stream
	for _, f := range m.s.logs {
		streams = append(streams, f.s)
	}
	m.r.close(streams, m.out)
	if kill {
		for _, f := range m.s.logs {
			for i := range f.waiting {
				m.s.release(&f.waiting[i])
			}
		}
		m.s.caughtUp()
		m.task.Rollback()
	} else {
		m.s.leave(m.t.Context())
	}
	m.note("stop, kill %t", kill)
	m.check()
	if used, waiting, active := m.r.budget.used(), m.r.standbys.waiting.Load(), m.r.active.Load(); used != 0 || waiting != 0 || active != 0 {
		m.fatal("%d bytes in use, %d waiting, %d catching up after the end", used, waiting, active)
	}
}

// step is one thing that happens.
func (m *model) step() {
	m.now = m.now.Add(time.Millisecond)
	names := slices.Sorted(maps.Keys(m.logs))
	name := names[m.choose(len(names))]
	l := m.logs[name]
	switch m.choose(12) {
	case 0, 1, 2: // data
		producer := int64(m.choose(4)) - 1
		records := make([]modelRecord, 1+m.choose(3))
		for i := range records {
			m.seq++
			records[i] = modelRecord{key: string(rune('a' + m.choose(5))), value: fmt.Sprint("v", m.seq)}
			if m.choose(5) == 0 {
				records[i].value = ""
			}
		}
		l.write(producer, producer >= 0, records)
		if producer < 0 {
			l.commits = append(l.commits, modelCommit{at: m.now, last: l.end - 1})
		}
		m.note("%s: %d writes %d records, end %d", name, producer, len(records), l.end)
	case 3, 4: // the end of a transaction, which whoever commits may have been told of before the marker was written
		producer := int64(m.choose(3))
		commit := m.choose(3) > 0
		_, open := l.open[producer]
		last := store.Offset(-1)
		for _, b := range l.batches {
			if b.tx && b.producer == producer && b.fate < 0 {
				last = b.last
			}
		}
		told := m.now
		if m.choose(2) == 0 {
			m.now = m.now.Add(time.Millisecond)
			m.round() // between the answer and the marker
		}
		l.finish(producer, commit)
		if commit && open {
			l.commits = append(l.commits, modelCommit{at: told, last: last})
		}
		m.note("%s: marker of %d, commit %t, open %t, end %d", name, producer, commit, open, l.end)
	case 5:
		to := store.Offset(m.choose(int(l.stable()) + 1))
		l.clean(to, m.choose)
		m.note("%s: cleaned to %d of %d", name, to, l.stable())
	case 6:
		m.round()
	case 7:
		switch m.choose(8) {
		case 0:
			m.stop(false)
			m.start()
		case 1:
			m.stop(true)
			m.start()
		}
	default:
		m.fetch(name, l)
	}
}

func (m *model) fetch(name store.Name, l *modelLog) {
	for _, f := range m.s.logs {
		if f.name != name || f.s.state == parked || f.s.state == finished {
			continue
		}
		f.s.state = fetching
		p := l.fetch(f.s.next, 1+m.choose(5), m.choose)
		m.note("%s: fetched from %d: %d bytes, stable %d, high %d", name, f.s.next, len(p.RecordBatches), p.LastStableOffset, p.HighWatermark)
		m.r.budget.charge(m.w.answered(f.s, &p, true, m.now, m.now))
		if f.s.state == fetching {
			f.s.state = ready
			if f.s.pending >= depth {
				f.s.state = parked
			}
		}
	}
	if m.choose(3) > 0 {
		m.take()
	}
}

// take applies what has come.
func (m *model) take() {
	for {
		select {
		case e := <-m.out:
			if err := m.s.take(m.t.Context(), e); err != nil {
				m.fatal("take: %v", err)
			}
			m.check()
		default:
			return
		}
	}
}

// round tells where the logs end.
func (m *model) round() {
	asked := m.now
	m.now = m.now.Add(time.Millisecond)
	for _, name := range slices.Sorted(maps.Keys(m.logs)) {
		if m.choose(4) > 0 {
			m.watch.ended(m.watch.logs[name], watchedEnd{asked: asked, end: m.logs[name].end})
		}
	}
	m.note("round at %s", asked.Format("05.000"))
}

// check looks at what is published: exact states, made of whole commits, as young as they claim to be.
func (m *model) check() {
	cp := m.task.Checkpoint()
	if m.s.Exact() != (!cp.Restoring && len(cp.Changelogs) == len(m.logs)) {
		m.fatal("exact %t with checkpoint %+v", m.s.Exact(), cp)
	}
	if !m.s.Exact() {
		m.inexact++
		return
	}
	m.exact++
	p, proven := m.watch.Proof(cp.Changelogs)
	for name, l := range m.logs {
		pos := cp.Changelogs[name]
		if have, want := m.task.content(name), l.state(pos.Next); !slices.Equal(have, want) {
			for _, b := range l.batches {
				m.note("%+v", b)
			}
			m.note("aborted %+v ends %v", l.aborted, l.ends)
			m.fatal("%s at %d:\n%v, want\n%v", name, pos.Next, have, want)
		}
		if cut := m.s.Token(name, pos); cut.Next > pos.Next {
			m.fatal("%s at %d: token %d", name, pos.Next, cut.Next)
		}
		for _, c := range l.commits {
			if proven && c.at.Before(p.At) && c.last >= pos.Next {
				m.fatal("%s at %d: proven as of %s, and offset %d was committed at %s", name, pos.Next,
					p.At.Format("05.000"), c.last, c.at.Format("05.000"))
			}
		}
	}
}

// end lets everything come to rest: the copy must be exact, at the end, and proven as of the last round.
func (m *model) end() {
	for _, l := range m.logs {
		for producer := range int64(3) {
			if _, ok := l.open[producer]; ok {
				l.finish(producer, true)
			}
		}
	}
	for range 5000 {
		left := int64(0)
		for _, name := range slices.Sorted(maps.Keys(m.logs)) {
			m.fetch(name, m.logs[name])
			left += int64(m.logs[name].end - m.task.Checkpoint().Changelogs[name].Next)
		}
		m.take()
		if left == 0 && m.s.Exact() {
			break
		}
	}
	m.now = m.now.Add(time.Second)
	asked := m.now
	for name, wl := range m.watch.logs {
		m.watch.ended(wl, watchedEnd{asked: asked, end: m.logs[name].end})
	}
	cp := m.task.Checkpoint()
	for name, l := range m.logs {
		if cp.Changelogs[name].Next != l.end {
			m.fatal("%s ends at %d of %d", name, cp.Changelogs[name].Next, l.end)
		}
	}
	if p, ok := m.watch.Proof(cp.Changelogs); !m.s.Exact() || m.s.Lag() != 0 || !ok || !p.At.Equal(asked) {
		m.fatal("at rest: exact %t, lag %d, proof %+v %t", m.s.Exact(), m.s.Lag(), p, ok)
	}
	m.check()
	m.stop(false)
}

// TestStandbyModel: under any order of writes of several producers, commits, aborts (CR-08), markers of nothing, cleaning,
// rounds, answers of any size, restarts and kills (CR-01), what is published is an exact state of whole commits that is no older than it is
// said to be; and when all rests it is the last one.
func TestStandbyModel(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 200
	}
	exact, inexact := 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 7))
		m := newModel(t, rng.IntN)
		m.note("seed %d", seed)
		for range 20 + rng.IntN(150) {
			m.step()
		}
		m.end()
		exact, inexact = exact+m.exact, inexact+m.inexact
	}
	t.Logf("%d exact publications, %d looks at a copy that was not", exact, inexact)
	if exact < 10*int(seeds) || inexact < int(seeds) {
		t.Errorf("%d exact publications, %d looks at a copy that was not: the model no longer tries much", exact, inexact)
	}
}

// FuzzStandbyModel is TestStandbyModel with the choices in the hands of the fuzzer.
func FuzzStandbyModel(f *testing.F) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 9))
		choices := make([]byte, 300)
		for i := range choices {
			choices[i] = byte(rng.IntN(256))
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 2000 {
			return
		}
		m := newModel(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0])
			choices = choices[1:]
			return c % n
		})
		for len(choices) > 0 {
			m.step()
		}
		m.end()
	})
}

// TestCleanedBehindTheStandby: a hole may have been a deletion that is kept no longer, when what was before it was read longer
// ago than deletions are kept. So the copy is dropped, and only then.
func TestCleanedBehindTheStandby(t *testing.T) {
	for name, c := range map[string]struct {
		read    time.Duration // ago
		hole    bool
		rebuilt bool
	}{
		"long ago, a hole": {2 * time.Hour, true, true}, "long ago, no hole": {2 * time.Hour, false, false}, "lately, a hole": {time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, func(int) int { return 0 })
			f := m.s.logs[0]
			f.log.Retention = time.Hour
			l := m.logs[f.name]
			l.write(-1, false, []modelRecord{{key: "a", value: "1"}})
			l.write(-1, false, []modelRecord{{key: "a", value: "2"}})
			l.batches[0].gone = c.hole
			f.s.state, f.read = fetching, time.Now().Add(-c.read)
			p := l.fetch(0, 9, m.choose)
			m.r.budget.charge(m.w.answered(f.s, &p, true, m.now, m.now))
			err := m.s.take(t.Context(), <-m.out)
			if _, rebuilt := errors.AsType[*rebuildError](err); rebuilt != c.rebuilt || err != nil && !rebuilt {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestWhatWaitsIsBounded: by a standby's own share, and by that of all together; and nothing of it is left behind.
func TestWhatWaitsIsBounded(t *testing.T) {
	set := standbySet{}
	if !set.reserve(60, 100) || set.reserve(41, 100) || !set.reserve(40, 100) || set.reserve(1, 100) {
		t.Error("more was reserved than there is")
	}
	set.unreserve(100)
	if n := set.waiting.Load(); n != 0 {
		t.Errorf("%d left", n)
	}
	r := &Restorer{cfg: Config{BufferBytes: 1 << 20}, log: slog.New(slog.DiscardHandler)}
	for pending, want := range map[int64]int64{0: 1 << 16, 1000: 1000, 1 << 30: 1 << 18} {
		if s := newStandby(r, StandbyRequest{Task: newMemoryTask(t, 0), PendingBytes: pending}); s.pending != want {
			t.Errorf("%d bytes may wait of %d, want %d", s.pending, pending, want)
		}
	}
}
