package layered_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
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

// naive is a window or session store as one would write it down: all rows in a map, looked at one by one.
type naive struct {
	spec store.Spec
	rows map[string]store.Value // by the bytes of the row
	time int64
	seq  int32
}

func (n *naive) clone() *naive {
	out := *n
	out.rows = maps.Clone(n.rows)
	return &out
}

// put sets a row whose time is at, unless it has expired.
func (n *naive) put(row []byte, at int64, v store.Value) {
	if at <= n.time-n.spec.Retention.Milliseconds() && n.time >= 0 {
		return
	}
	n.time = max(n.time, at)
	if v.Data == nil {
		delete(n.rows, string(row))
		return
	}
	if n.spec.Kind != store.KindTimestampedWindow {
		v.Timestamp = -1
	}
	n.rows[string(row)] = v
}

// putDuplicate adds a row to a window.
func (n *naive) putDuplicate(key []byte, start int64, v store.Value) {
	if v.Data == nil || start <= n.time-n.spec.Retention.Milliseconds() && n.time >= 0 {
		return
	}
	n.seq = (n.seq + 1) & store.MaxSeq
	n.put(store.WindowKey(key, start, n.seq), start, v)
}

// entry is what a scan returns for a row.
func (n *naive) entry(row string) store.Entry {
	e := store.Entry{Cursor: []byte(row), Value: n.rows[row]}
	if n.spec.Kind == store.KindSession {
		e.Key, e.Start, e.End, _ = store.ParseSessionKey(e.Cursor)
	} else {
		e.Key, e.Start, _, _ = store.ParseWindowKey(e.Cursor)
		e.End = e.Start + n.spec.WindowSize.Milliseconds()
	}
	return e
}

// scan lists the rows that are alive and that want selects, behind after.
func (n *naive) scan(reverse bool, after []byte, want func(e store.Entry) bool) []store.Entry {
	out := []store.Entry{}
	for row := range n.rows {
		e := n.entry(row)
		at := e.Start
		if n.spec.Kind == store.KindSession {
			at = e.End
		}
		behind := after == nil || bytes.Compare(e.Cursor, after) > 0 != reverse && !bytes.Equal(e.Cursor, after)
		if at > n.time-n.spec.Retention.Milliseconds() && behind && want(e) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return bytes.Compare(a.Cursor, b.Cursor) })
	if reverse {
		slices.Reverse(out)
	}
	return out
}

func inKeys(key, one, from, to []byte) bool {
	if one != nil {
		return bytes.Equal(key, one)
	}
	return (from == nil || bytes.Compare(key, from) >= 0) && (to == nil || bytes.Compare(key, to) <= 0)
}

func (n *naive) windows(s store.WindowScan) []store.Entry {
	return n.scan(s.Reverse, s.After, func(e store.Entry) bool {
		return e.Start >= s.From && e.Start <= s.To && inKeys(e.Key, s.Key, s.KeyFrom, s.KeyTo)
	})
}

func (n *naive) sessions(s store.SessionScan) []store.Entry {
	return n.scan(s.Reverse, s.After, func(e store.Entry) bool {
		return e.End >= s.EarliestEnd && e.End <= s.LatestEnd && e.Start <= s.LatestStart && inKeys(e.Key, s.Key, s.KeyFrom, s.KeyTo)
	})
}

// rowModel runs a random history on a task and on naive stores.
type rowModel struct {
	historied

	running map[store.Name]*naive
	history map[int]map[store.Name]*naive // by commit
	logs    map[store.Name][]logged
}

// logged is a change with the commit that it belongs to.
type logged struct {
	commit int
	store.Change
}

// TestRowModel compares random histories of window and session stores, crashes and replays of the changelog included,
// with naive ones.
func TestRowModel(t *testing.T) {
	t.Parallel()
	for name, inMemory := range map[string]bool{"disk": false, "memory": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := storetest.Seed(t)
			for run := range uint64(storetest.Seeds()) {
				t.Run(fmt.Sprint("seed ", seed+run), func(t *testing.T) {
					t.Parallel()
					runRowModel(t, seed+run, inMemory)
					if t.Failed() {
						t.Logf("replay with -run 'TestRowModel/%s' -seeds=1 -seed=%d", name, seed+run)
					}
				})
			}
		})
	}
}

func runRowModel(t *testing.T, seed uint64, inMemory bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	retention := ms([]int{1, 10, 100, 1000}[rng.IntN(4)])
	segment := min(retention, ms([]int{1, 3, 10, 100, 60_000}[rng.IntN(5)]))
	segment = max(segment, retention/200)
	specs := []store.Spec{
		{Name: "w", Kind: store.KindTimestampedWindow, WindowSize: ms(1)},
		{Name: "d", Kind: store.KindWindow, WindowSize: ms(1), RetainDuplicates: true},
		{Name: "s", Kind: store.KindSession},
	}
	for i := range specs {
		specs[i].Retention, specs[i].SegmentInterval, specs[i].InMemory = retention, segment, inMemory
	}
	cfg := layered.Config{Dir: filepath.Join(t.TempDir(), "state"), MoveBytes: 1 << uint(8+rng.IntN(16)), MemTableBytes: 1 << 20}
	m := &rowModel{
		historied: historied{machine: &machine{t: t, cfg: cfg, specs: specs}, rng: rng, now: int64(rng.IntN(2000))},
		running:   make(map[store.Name]*naive), logs: make(map[store.Name][]logged),
	}
	for _, s := range specs {
		m.running[s.Name] = &naive{spec: s, rows: make(map[string]store.Value), time: -1}
	}
	m.history = map[int]map[store.Name]*naive{0: m.cloned()}
	m.open()
	defer func() { m.close() }()
	defer m.release()
	m.task.Commit(checkpoint(0, m.names()...))
	for m.step = range 1000 {
		m.random()
		if t.Failed() {
			return
		}
	}
}

func (m *rowModel) cloned() map[store.Name]*naive {
	out := make(map[store.Name]*naive, len(m.running))
	for name, n := range m.running {
		out[name] = n.clone()
	}
	return out
}

func (m *rowModel) random() {
	switch n := m.rng.IntN(1000); {
	case n < 600:
		m.write()
	case n < 750:
		m.compare("writer", m.running, m.writer())
	case n < 860:
		m.commit()
	case n < 890:
		m.Rollback()
		m.running = m.history[m.last]
		m.running = m.cloned()
	case n < 930:
		m.Move()
		m.moved = m.last
	case n < 960:
		m.pin()
	case n < 992:
		if len(m.held) > 0 {
			h := m.held[m.rng.IntN(len(m.held))]
			m.compare(fmt.Sprint("reader of commit ", h.n), m.history[h.n], m.reader(h.snap))
		}
	default:
		m.restart()
	}
}

// at draws a time near where the history is; now and then that goes on.
func (m *rowModel) at() int64 {
	retention := m.specs[0].Retention.Milliseconds()
	switch m.rng.IntN(40) {
	case 0:
		m.now += 1 + m.rng.Int64N(2*retention)
	case 1, 2, 3, 4, 5:
		m.now += m.rng.Int64N(3)
	}
	return max(0, m.now-m.rng.Int64N(retention+retention/2+2)+m.rng.Int64N(3))
}

func (m *rowModel) key() []byte {
	key := make([]byte, 1+m.rng.IntN(3))
	for i := range key {
		key[i] = []byte{0, 0, 'a', 0xff}[m.rng.IntN(4)]
	}
	return key
}

func (m *rowModel) value() store.Value {
	v := store.Value{Timestamp: m.rng.Int64N(1000)}
	if m.rng.IntN(5) > 0 {
		v.Data = bytes.Repeat([]byte{byte(m.step)}, m.rng.IntN(20))
		v.Data = append(v.Data, fmt.Sprint(m.step)...)
	}
	return v
}

func (m *rowModel) write() {
	key, at, v := m.key(), m.at(), m.value()
	var err error
	switch m.rng.IntN(4) {
	case 0, 1:
		m.running["w"].put(store.WindowKey(key, at, 0), at, v)
		err = m.window("w").Put(key, at, v)
	case 2:
		m.running["d"].putDuplicate(key, at, v)
		err = m.window("d").Put(key, at, v)
	default:
		start := max(0, at-m.rng.Int64N(50))
		m.running["s"].put(store.SessionKey(key, start, at), at, v)
		if v.Data == nil && m.rng.IntN(2) == 0 {
			err = m.session("s").Remove(key, start, at)
		} else {
			err = m.session("s").Put(key, start, at, v)
		}
	}
	if err != nil {
		m.t.Fatalf("step %d: %v", m.step, err)
	}
}

func (m *rowModel) window(name store.Name) store.Window {
	w, err := m.task.Window(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return w
}

func (m *rowModel) session(name store.Name) store.Session {
	s, err := m.task.Session(name)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// rowFace is how the model reads, as the writer or at a snapshot.
type rowFace struct {
	windows  func(store.Name, store.WindowScan) (store.Iterator, error)
	sessions func(store.Name, store.SessionScan) (store.Iterator, error)
	window   func(store.Name, []byte, int64) (store.Value, error)
	session  func(store.Name, []byte, int64, int64) (store.Value, error)
}

func (m *rowModel) writer() rowFace {
	return rowFace{
		func(n store.Name, s store.WindowScan) (store.Iterator, error) { return m.window(n).Scan(s) },
		func(n store.Name, s store.SessionScan) (store.Iterator, error) { return m.session(n).Scan(s) },
		func(n store.Name, k []byte, at int64) (store.Value, error) { return m.window(n).Fetch(k, at) },
		func(n store.Name, k []byte, from, to int64) (store.Value, error) {
			return m.session(n).Fetch(k, from, to)
		},
	}
}

func (m *rowModel) reader(snap *layered.Snapshot) rowFace {
	ctx := m.t.Context()
	windows := func(n store.Name) store.WindowReader {
		r, err := snap.Windows(n)
		if err != nil {
			m.t.Fatal(err)
		}
		return r
	}
	sessions := func(n store.Name) store.SessionReader {
		r, err := snap.Sessions(n)
		if err != nil {
			m.t.Fatal(err)
		}
		return r
	}
	return rowFace{
		func(n store.Name, s store.WindowScan) (store.Iterator, error) { return windows(n).Scan(ctx, s) },
		func(n store.Name, s store.SessionScan) (store.Iterator, error) { return sessions(n).Scan(ctx, s) },
		func(n store.Name, k []byte, at int64) (store.Value, error) { return windows(n).Fetch(ctx, k, at) },
		func(n store.Name, k []byte, from, to int64) (store.Value, error) {
			return sessions(n).Fetch(ctx, k, from, to)
		},
	}
}

// bounds draws bounds of time.
func (m *rowModel) bounds() (from, to int64) {
	if m.rng.IntN(3) == 0 {
		return 0, math.MaxInt64
	}
	from = m.at()
	return from, from + m.rng.Int64N(50) - 2
}

// compare reads a store at random, by scan or by fetch.
func (m *rowModel) compare(who string, want map[store.Name]*naive, f rowFace) {
	m.t.Helper()
	names := []store.Name{"w", "d", "s"}
	name := names[m.rng.IntN(3)]
	var key, from, to, after []byte
	switch m.rng.IntN(4) {
	case 0, 1:
		key = m.key()
	case 2:
		from, to = m.key(), m.key()
	}
	reverse := m.rng.IntN(2) == 0
	if rows := slices.Sorted(maps.Keys(want[name].rows)); len(rows) > 0 && m.rng.IntN(4) == 0 {
		after = []byte(rows[m.rng.IntN(len(rows))])
	}
	first, last := m.bounds()
	var it store.Iterator
	var err error
	var expect []store.Entry
	var what string
	if name == "s" {
		s := store.SessionScan{Key: key, KeyFrom: from, KeyTo: to, After: after, Reverse: reverse, EarliestEnd: first, LatestEnd: math.MaxInt64, LatestStart: last}
		if m.rng.IntN(3) == 0 {
			s.LatestEnd, s.LatestStart = last, m.at()
		}
		expect, what = want[name].sessions(s), fmt.Sprintf("%+v", s)
		it, err = f.sessions(name, s)
	} else {
		s := store.WindowScan{Key: key, KeyFrom: from, KeyTo: to, After: after, Reverse: reverse, From: max(0, first), To: max(0, last)}
		expect, what = want[name].windows(s), fmt.Sprintf("%+v", s)
		it, err = f.windows(name, s)
	}
	m.compareRows(fmt.Sprintf("step %d: %s of %s: %s", m.step, who, name, what), expect, it, err)
	m.compareFetch(who, want, f)
}

func (m *rowModel) compareRows(what string, want []store.Entry, it store.Iterator, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	defer it.Close()
	got := []store.Entry{}
	for it.Next() {
		got = append(got, it.Entry())
	}
	if err := it.Err(); err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		m.t.Fatalf("%s (-want +got)\n%s", what, d)
	}
}

// compareFetch looks for one row, one that was there more often than not.
func (m *rowModel) compareFetch(who string, want map[store.Name]*naive, f rowFace) {
	m.t.Helper()
	name := []store.Name{"w", "d", "s"}[m.rng.IntN(3)]
	n := want[name]
	key, start := m.key(), m.at()
	end := start + m.rng.Int64N(5)
	if rows := slices.Sorted(maps.Keys(n.rows)); len(rows) > 0 && m.rng.IntN(4) > 0 {
		e := n.entry(rows[m.rng.IntN(len(rows))])
		key, start, end = e.Key, e.Start, e.End
	}
	var rows []store.Entry
	var v store.Value
	var err error
	if name == "s" {
		rows = n.scan(false, nil, func(e store.Entry) bool { return bytes.Equal(e.Key, key) && e.Start == start && e.End == end })
		v, err = f.session(name, key, start, end)
	} else {
		rows = n.windows(store.WindowScan{Key: key, From: start, To: start})
		v, err = f.window(name, key, start)
	}
	if len(rows) == 0 {
		if !errors.Is(err, store.ErrNotFound) {
			m.t.Fatalf("step %d: %s of %s: fetch %q %d %d: %q, %v; it is not there", m.step, who, name, key, start, end, v.Data, err)
		}
		return
	}
	if d := cmp.Diff(rows[0].Value, v); err != nil || d != "" {
		m.t.Fatalf("step %d: %s of %s: fetch %q %d %d: %v (-want +got)\n%s", m.step, who, name, key, start, end, err, d)
	}
}

func (m *rowModel) commit() {
	m.last++
	for name, c := range m.task.Changes() {
		c.Key, c.Value = bytes.Clone(c.Key), bytes.Clone(c.Value)
		m.logs[name] = append(m.logs[name], logged{m.last, c})
	}
	m.Commit(m.last)
	m.history[m.last] = m.cloned()
	m.times("commit")
}

// times compares the stores' own times with those of the last commit.
func (m *rowModel) times(when string) {
	m.t.Helper()
	var want map[store.Name]int64
	for name, n := range m.history[m.last] {
		if n.time < 0 {
			continue
		}
		if want == nil {
			want = make(map[store.Name]int64)
		}
		want[name] = n.time
	}
	if d := cmp.Diff(want, m.task.Checkpoint().StoreTimes); d != "" {
		m.t.Fatalf("step %d: store times after a %s (-want +got)\n%s", m.step, when, d)
	}
}

// restart ends the task in some way. What is there then is one commit; the changelog brings the rest back, with the same
// rows and times (QS-11), or all of it when nothing outlived.
func (m *rowModel) restart() {
	n, whole, end := m.end()
	if whole {
		m.running = m.history[n]
		for range 5 {
			m.compare(fmt.Sprintf("writer after end %d", end), m.running, m.writer())
		}
	}
	for _, s := range m.specs {
		var batch []store.Change
		flush := func() {
			if err := m.task.Restore(s.Name, batch); err != nil {
				m.t.Fatal(err)
			}
			batch = nil
		}
		for _, c := range m.logs[s.Name] {
			if c.commit <= n {
				continue
			}
			if batch = append(batch, c.Change); m.rng.IntN(5) == 0 {
				flush()
			}
		}
		flush()
	}
	m.Commit(m.last)
	m.running = m.history[m.last]
	m.running = m.cloned()
	if m.moved = n; m.rng.IntN(2) == 0 {
		m.Move()
		m.moved = m.last
	}
	m.times("replay")
	for range 10 {
		m.compare(fmt.Sprintf("writer after a replay from %d to %d", n, m.last), m.running, m.writer())
	}
}
