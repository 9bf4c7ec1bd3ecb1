package layered_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// copyModel runs a random history of stores of all kinds on a donor, of which copies are loaded elsewhere meanwhile.
type copyModel struct {
	t     *testing.T
	rng   *rand.Rand
	specs []store.Spec
	cfg   layered.Config

	s     *layered.Stores
	donor *layered.Task
	now   int64 // around which times are drawn
	last  int   // commit
	logs  map[store.Name][]logged
	keys  map[string]bool // that were ever used
}

// TestCopyModel loads copies of snapshots of random histories, through streams that break and receivers that are killed in
// the middle, while the donor goes on. The rows are those of the snapshot; with the rest of the changelog the state is that
// of a twin that replayed the whole of it, in every row and every kind of read, and from there on both do the same.
func TestCopyModel(t *testing.T) {
	t.Parallel()
	for name, inMemory := range map[string]func(*rand.Rand) bool{
		"disk":   func(*rand.Rand) bool { return false },
		"memory": func(*rand.Rand) bool { return true },
		"mixed":  func(rng *rand.Rand) bool { return rng.IntN(2) == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := storetest.Seed(t)
			for run := range uint64(storetest.Seeds()) {
				t.Run(fmt.Sprint("seed ", seed+run), func(t *testing.T) {
					runCopyModel(t, seed+run, inMemory)
					if t.Failed() {
						t.Logf("replay with -run 'TestCopyModel/%s' -seeds=1 -seed=%d", name, seed+run)
					}
				})
			}
		})
	}
}

func runCopyModel(t *testing.T, seed uint64, inMemory func(*rand.Rand) bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 17))
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	retention := ms([]int{1, 10, 100, 1000}[rng.IntN(4)])
	segment := max(min(retention, ms([]int{1, 3, 10, 100, 60_000}[rng.IntN(5)])), retention/200)
	m := &copyModel{
		t: t, rng: rng, now: int64(rng.IntN(2000)), logs: make(map[store.Name][]logged), keys: make(map[string]bool),
		specs: []store.Spec{
			{Name: "u", Kind: store.KindKeyValue, NoChangelog: true},
			{Name: "k", Kind: store.KindKeyValue},
			{Name: "t", Kind: store.KindTimestampedKeyValue},
			{Name: "w", Kind: store.KindTimestampedWindow, WindowSize: ms(1), Retention: retention, SegmentInterval: segment},
			{Name: "d", Kind: store.KindWindow, WindowSize: ms(1), Retention: retention, SegmentInterval: segment, RetainDuplicates: true},
			{Name: "s", Kind: store.KindSession, Retention: retention, SegmentInterval: segment},
			{Name: "v", Kind: store.KindVersioned, Retention: retention, SegmentInterval: segment},
		},
	}
	for i := range m.specs {
		m.specs[i].InMemory = inMemory(rng)
	}
	m.cfg = layered.Config{MoveBytes: 1 << uint(8+rng.IntN(16)), MemTableBytes: 1 << 20}
	m.s, m.donor = m.fresh()
	m.history(400)
	for range 3 {
		m.copy()
		if t.Failed() {
			return
		}
	}
}

// fresh opens an empty copy of the task on an instance of its own, as the first store of which the order is drawn.
func (m *copyModel) fresh() (*layered.Stores, *layered.Task) {
	cfg := m.cfg
	cfg.Dir = filepath.Join(m.t.TempDir(), "state")
	s := openStores(m.t, cfg)
	layered.LoadBytes(s, int64(1+m.rng.IntN(1<<12)))
	m.rng.Shuffle(len(m.specs), func(i, j int) { m.specs[i], m.specs[j] = m.specs[j], m.specs[i] })
	return s, openTask(m.t, s, task0, m.specs...)
}

// history lets the donor live for some steps.
func (m *copyModel) history(steps int) {
	for range steps {
		switch n := m.rng.IntN(100); {
		case n < 85:
			m.write()(m.donor)
		case n < 94:
			m.commit(m.donor)
		case n < 96:
			m.donor.Rollback()
		default:
			moveNow(m.t, m.s, m.donor)
		}
	}
	m.commit(m.donor)
}

// commit commits what was written, and keeps its changes when it is the donor.
func (m *copyModel) commit(task *layered.Task) {
	m.last++
	for name, c := range task.Changes() {
		c.Key, c.Value = bytes.Clone(c.Key), bytes.Clone(c.Value)
		m.logs[name] = append(m.logs[name], logged{m.last, c})
	}
	task.Commit(checkpoint(m.last, m.logged()...))
}

func (m *copyModel) logged() (names []store.Name) {
	for _, s := range m.specs {
		if !s.NoChangelog {
			names = append(names, s.Name)
		}
	}
	return names
}

// at draws a time near where the history is; now and then that goes on.
func (m *copyModel) at() int64 {
	retention := m.retention()
	switch m.rng.IntN(60) {
	case 0:
		m.now += 1 + m.rng.Int64N(2*retention)
	case 1, 2, 3, 4, 5:
		m.now += m.rng.Int64N(3)
	}
	return max(0, m.now-m.rng.Int64N(retention+retention/4+2)+m.rng.Int64N(3))
}

func (m *copyModel) retention() (ms int64) {
	for _, s := range m.specs {
		ms = max(ms, s.Retention.Milliseconds())
	}
	return ms
}

// write draws a write, to be done to one task or more.
func (m *copyModel) write() func(*layered.Task) {
	key := make([]byte, 1+m.rng.IntN(3))
	for i := range key {
		key[i] = []byte{0, 0, 'a', 0xff}[m.rng.IntN(4)]
	}
	m.keys[string(key)] = true
	at, v := m.at(), store.Value{Timestamp: m.rng.Int64N(1000)}
	start := max(0, at-m.rng.Int64N(50))
	if m.rng.IntN(5) > 0 {
		v.Data = make([]byte, m.rng.IntN(30))
		for i := range v.Data {
			v.Data[i] = byte(m.rng.Uint32())
		}
	}
	name := []store.Name{"u", "k", "t", "w", "d", "s", "v", "v"}[m.rng.IntN(8)]
	return func(task *layered.Task) {
		m.t.Helper()
		var err error
		switch name {
		case "w", "d":
			w, werr := task.Window(name)
			if err = werr; err == nil {
				err = w.Put(key, at, v)
			}
		case "s":
			s, serr := task.Session(name)
			if err = serr; err == nil {
				err = s.Put(key, start, at, v)
			}
		case "v":
			vs, verr := task.Versioned(name)
			if err = verr; err == nil {
				_, err = vs.Put(key, store.Value{Data: v.Data, Timestamp: at})
			}
		default:
			err = kv(m.t, task, name).Put(key, v)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// copy loads a copy of the last commit while the donor goes on, replays the rest, and compares.
func (m *copyModel) copy() {
	snap := snapshot(m.t, m.donor)
	defer snap.Close()
	n := m.last
	h, want := rowsOf(m.t, snap, 1+m.rng.IntN(2000))
	s, task := m.fresh()
	if m.rng.IntN(2) == 0 { // what is there goes
		for range 50 {
			m.write()(task)
		}
		task.Commit(checkpoint(1, m.logged()...))
		moveNow(m.t, s, task)
	}
	s, task = m.receive(s, task, snap)
	m.same("copy", h, want, task)

	from := map[store.Name]int{}
	for name, pos := range task.Checkpoint().Changelogs {
		from[name] = int(pos.Next) / 10
	}
	if m.rng.IntN(2) == 0 { // a restart keeps what is on disk, and says so
		_, task = m.reopen(s, task)
		from = map[store.Name]int{}
		for name, pos := range task.Checkpoint().Changelogs {
			from[name] = int(pos.Next) / 10
		}
		for _, spec := range m.specs {
			if want := !spec.InMemory && !spec.NoChangelog; want != (from[spec.Name] == n && n > 0) {
				m.t.Fatalf("store %s, in memory %t: position of commit %d after a restart, want %d", spec.Name, spec.InMemory, from[spec.Name], n)
			}
		}
	}
	m.replay(task, from)
	_, twin := m.fresh()
	m.replay(twin, nil)
	last := snapshot(m.t, m.donor)
	defer last.Close()
	h, want = rowsOf(m.t, last, 1<<20)
	m.same("copy and the rest of the log", h, want, task)
	m.same("twin", h, want, twin)
	m.goOn(task, twin)
}

// receive loads a copy of a snapshot; the stream breaks and the receiver is killed at random.
func (m *copyModel) receive(s *layered.Stores, task *layered.Task, snap *layered.Snapshot) (*layered.Stores, *layered.Task) {
	m.t.Helper()
	var l *layered.Load
	var c *layered.Copy
	for {
		if c == nil || m.rng.IntN(10) == 0 {
			var err error
			if c, err = snap.Copy(); err != nil {
				m.t.Fatal(err)
			}
		}
		if l == nil {
			var err error
			if l, err = task.Load(m.t.Context(), c.Header(time.Now()), time.Now()); err != nil {
				m.t.Fatal(err)
			}
		}
		m.history(m.rng.IntN(20))
		rows, done, err := c.Read(m.t.Context(), l.Place(), 1+m.rng.IntN(1000))
		if err != nil {
			m.t.Fatal(err)
		}
		if len(rows) > 0 && m.rng.IntN(5) == 0 {
			rows, done = rows[:m.rng.IntN(len(rows))], false
		}
		if err := l.Add(m.t.Context(), rows); err != nil {
			m.t.Fatal(err)
		}
		m.hidden(task)
		switch {
		case m.rng.IntN(15) == 0:
			s, task = m.reopen(s, task)
			wiped(m.t, task, m.specs)
			l = nil
		case m.rng.IntN(40) == 0:
			if err := l.Abandon(m.t.Context()); err != nil {
				m.t.Fatal(err)
			}
			wiped(m.t, task, m.specs)
			l = nil
		case done:
			if err := l.Finish(m.t.Context()); err != nil {
				m.t.Fatal(err)
			}
			return s, task
		}
	}
}

// hidden: nothing of a copy that is not whole can be read or written over.
func (m *copyModel) hidden(task *layered.Task) {
	m.t.Helper()
	if snap, err := task.Snapshot(); !errors.Is(err, store.ErrNotReady) {
		m.t.Fatalf("a snapshot of a part: %v, %v", snap, err)
	}
	if _, err := kv(m.t, task, "k").Get([]byte("a")); !errors.Is(err, store.ErrNotReady) {
		m.t.Fatalf("a get out of a part: %v", err)
	}
	if err := task.Restore("k", []store.Change{{Key: []byte("a"), Value: []byte("a")}}); !errors.Is(err, store.ErrNotReady) {
		m.t.Fatalf("a replay into a part: %v", err)
	}
	task.Commit(checkpoint(m.last, m.logged()...))
	if cp := task.Checkpoint(); !cp.Restoring || len(cp.Changelogs) > 0 || cp.Sequence != 0 {
		m.t.Fatalf("a part has checkpoint %+v", cp)
	}
}

// reopen ends the receiver in some way and opens what it leaves.
func (m *copyModel) reopen(s *layered.Stores, task *layered.Task) (*layered.Stores, *layered.Task) {
	m.t.Helper()
	cfg := m.cfg
	cfg.Dir = filepath.Join(m.t.TempDir(), "state")
	kill := m.rng.IntN(2) == 0
	if kill {
		if err := storetest.KillImage(layered.Dir(s), cfg.Dir); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := errors.Join(task.Close(context.WithoutCancel(m.t.Context())), s.Close()); err != nil {
		m.t.Fatal(err)
	}
	if !kill {
		cfg.Dir = layered.Dir(s)
	}
	s = openStores(m.t, cfg)
	layered.LoadBytes(s, int64(1+m.rng.IntN(1<<12)))
	return s, openTask(m.t, s, task0, m.specs...)
}

// replay restores what the changelogs have behind the commits that the stores have.
func (m *copyModel) replay(task *layered.Task, from map[store.Name]int) {
	m.t.Helper()
	for _, name := range m.logged() {
		var batch []store.Change
		for _, c := range m.logs[name] {
			if c.commit > from[name] {
				batch = append(batch, c.Change)
			}
		}
		for part := range slices.Chunk(batch, 1+m.rng.IntN(100)) {
			if err := task.Restore(name, part); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	task.Commit(checkpoint(m.last, m.logged()...))
}

// same compares the whole of a task's logged state, row by row and read by read, with rows of another.
func (m *copyModel) same(what string, h store.CopyHeader, want []store.CopyRow, task *layered.Task) {
	m.t.Helper()
	snap := snapshot(m.t, task)
	defer snap.Close()
	own, got := rowsOf(m.t, snap, 1+m.rng.IntN(2000))
	for _, h := range []*store.CopyHeader{&own, &h} {
		h.Rows, h.Bytes, h.Age = 0, 0, 0
	}
	if d := cmp.Diff(h, own); d != "" {
		m.t.Fatalf("%s: header (-want +got)\n%s", what, d)
	}
	if d := cmp.Diff(want, got); d != "" {
		m.t.Fatalf("%s: rows (-want +got)\n%s", what, d)
	}
	if len(pinned(m.t, snap, "u")) > 0 {
		m.t.Fatalf("%s: a store without a changelog has rows", what)
	}
}

// goOn writes the same to both, which then have the same changes, rows and answers.
func (m *copyModel) goOn(a, b *layered.Task) {
	m.t.Helper()
	for range 30 {
		w := m.write()
		w(a)
		w(b)
	}
	if d := cmp.Diff(sortedChanges(b), sortedChanges(a)); d != "" {
		m.t.Fatalf("changes of the copy (-twin +copy)\n%s", d)
	}
	cp := checkpoint(m.last+1, m.logged()...)
	a.Commit(cp)
	b.Commit(cp)
	sa, sb := snapshot(m.t, a), snapshot(m.t, b)
	defer sa.Close()
	defer sb.Close()
	if d := cmp.Diff(m.answers(sb), m.answers(sa)); d != "" {
		m.t.Fatalf("answers of the copy (-twin +copy)\n%s", d)
	}
	_, rows := rowsOf(m.t, sb, 1<<20)
	_, got := rowsOf(m.t, sa, 1<<20)
	if d := cmp.Diff(rows, got); d != "" {
		m.t.Fatalf("rows of the copy (-twin +copy)\n%s", d)
	}
}

func sortedChanges(task *layered.Task) []string {
	var out []string
	for name, c := range task.Changes() {
		out = append(out, fmt.Sprintf("%s %q=%q@%d", name, c.Key, c.Value, c.Timestamp))
	}
	slices.Sort(out)
	return out
}

// answers are those to reads of every kind.
func (m *copyModel) answers(snap *layered.Snapshot) (out []string) {
	m.t.Helper()
	ctx := m.t.Context()
	say := func(what string, v any, err error) { out = append(out, fmt.Sprintf("%s: %+v, %v", what, v, err)) }
	scan := func(what string, it store.Iterator, err error) {
		if err != nil {
			m.t.Fatal(err)
		}
		defer it.Close()
		for it.Next() {
			say(what, it.Entry(), it.Err())
		}
	}
	must := func(err error) {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	for _, name := range []store.Name{"k", "t"} {
		r, err := snap.KeyValue(name)
		must(err)
		it, err := r.Scan(ctx, store.Scan{Reverse: true})
		scan(string(name), it, err)
		n, err := r.ApproximateCount(ctx)
		say(string(name), n, err)
	}
	all := store.WindowScan{To: math.MaxInt64}
	for _, name := range []store.Name{"w", "d"} {
		r, err := snap.Windows(name)
		must(err)
		it, err := r.Scan(ctx, all)
		scan(string(name), it, err)
		for key := range m.keys {
			v, err := r.Fetch(ctx, []byte(key), m.now)
			say(fmt.Sprintf("%s %q", name, key), v, err)
		}
	}
	sessions, err := snap.Sessions("s")
	must(err)
	it, err := sessions.Scan(ctx, store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
	scan("s", it, err)
	versions, err := snap.Versions("v")
	must(err)
	for key := range m.keys {
		v, err := versions.Get(ctx, []byte(key))
		say(fmt.Sprintf("v %q", key), v, err)
		it, err := versions.Scan(ctx, store.VersionScan{Key: []byte(key), To: math.MaxInt64})
		scan(fmt.Sprintf("v %q", key), it, err)
		for back := range int64(20) {
			at := max(0, m.now-back*m.retention()/16)
			v, err := versions.GetAsOf(ctx, []byte(key), at)
			say(fmt.Sprintf("v %q %d", key, at), v, err)
		}
	}
	slices.Sort(out)
	return out
}
