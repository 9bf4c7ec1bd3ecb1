package layered_test

import (
	"bytes"
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

// versionModel runs a random history on a task with a versioned store and on a naive one.
type versionModel struct {
	historied
	keys []string

	running *storetest.VersionModel
	history map[int]*storetest.VersionModel // by commit
	log     []logged
}

// TestVersionModel compares random histories of a versioned store, crashes and replays of the changelog included, with a
// naive one (QS-10).
func TestVersionModel(t *testing.T) {
	t.Parallel()
	for name, inMemory := range map[string]bool{"disk": false, "memory": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := storetest.Seed(t)
			for run := range uint64(storetest.Seeds()) {
				t.Run(fmt.Sprint("seed ", seed+run), func(t *testing.T) {
					t.Parallel()
					runVersionModel(t, seed+run, inMemory)
					if t.Failed() {
						t.Logf("replay with -run 'TestVersionModel/%s' -seeds=1 -seed=%d", name, seed+run)
					}
				})
			}
		})
	}
}

func runVersionModel(t *testing.T, seed uint64, inMemory bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	retention := ms([]int{1, 10, 100, 1000}[rng.IntN(4)])
	segment := min(retention, ms([]int{1, 3, 10, 100, 60_000}[rng.IntN(5)]))
	segment = max(segment, retention/200)
	spec := store.Spec{Name: "v", Kind: store.KindVersioned, Retention: retention, SegmentInterval: segment, InMemory: inMemory}
	cfg := layered.Config{Dir: filepath.Join(t.TempDir(), "state"), MoveBytes: 1 << uint(8+rng.IntN(16)), MemTableBytes: 1 << 20}
	m := &versionModel{
		historied: historied{machine: &machine{t: t, cfg: cfg, specs: []store.Spec{spec}}, rng: rng, now: int64(rng.IntN(2000))},
		running:   storetest.NewVersionModel(retention.Milliseconds()),
	}
	for range 1 + rng.IntN(12) {
		m.keys = append(m.keys, m.newKey())
	}
	m.history = map[int]*storetest.VersionModel{0: m.running.Clone()}
	m.open()
	defer func() { m.close() }()
	defer m.release()
	m.task.Commit(checkpoint(0, "v"))
	for m.step = range 1000 {
		m.random()
		if t.Failed() {
			return
		}
	}
	m.commit()
	m.compacted()
}

func (m *versionModel) random() {
	switch n := m.rng.IntN(1000); {
	case n < 650:
		m.write()
	case n < 780:
		m.compare("writer", m.running, m.writer())
	case n < 880:
		m.commit()
	case n < 900:
		m.Rollback()
		m.running = m.history[m.last].Clone()
	case n < 940:
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

// newKey draws a key; many are prefixes, or rows, of others.
func (m *versionModel) newKey() string {
	key := make([]byte, 1+m.rng.IntN(3))
	for i := range key {
		key[i] = []byte{0, 0, 'a', 0xff}[m.rng.IntN(4)]
	}
	if len(m.keys) > 0 && m.rng.IntN(3) == 0 {
		key = store.VersionKey([]byte(m.keys[m.rng.IntN(len(m.keys))]), m.at())
	}
	return string(key)
}

func (m *versionModel) key() string { return m.keys[m.rng.IntN(len(m.keys))] }

// at draws a time near where the history is; now and then that goes on.
func (m *versionModel) at() int64 {
	retention := m.specs[0].Retention.Milliseconds()
	switch m.rng.IntN(40) {
	case 0:
		m.now += 1 + m.rng.Int64N(2*retention)
	case 1, 2, 3, 4, 5:
		m.now += m.rng.Int64N(3)
	}
	return max(0, m.now-m.rng.Int64N(retention+retention/4+2)+m.rng.Int64N(3))
}

func (m *versionModel) versioned() store.Versioned {
	v, err := m.task.Versioned("v")
	if err != nil {
		m.t.Fatal(err)
	}
	return v
}

func (m *versionModel) write() {
	key, at := m.key(), m.at()
	if m.rng.IntN(8) == 0 {
		want := m.running.AsOf(key, at)
		if m.running.Put(key, at, nil) == store.NotPut {
			want = nil
		}
		v, err := m.versioned().Delete([]byte(key), at)
		m.one(fmt.Sprintf("delete %q at %d", key, at), want, v, err)
		return
	}
	val := store.Value{Timestamp: at}
	var data *string
	if m.rng.IntN(4) > 0 {
		val.Data = bytes.Repeat([]byte{byte(m.step)}, m.rng.IntN(20)*m.rng.IntN(2))
		s := string(val.Data)
		data = &s
	}
	want := m.running.Put(key, at, data)
	got, err := m.versioned().Put([]byte(key), val)
	if err != nil || got != want {
		m.t.Fatalf("step %d: put %q at %d ends at %d, %v, want %d", m.step, key, at, got, err, want)
	}
}

// one compares one version with the model's, nil for none.
func (m *versionModel) one(what string, want *store.Version, v store.Version, err error) {
	m.t.Helper()
	if want == nil {
		if !errors.Is(err, store.ErrNotFound) {
			m.t.Fatalf("step %d: %s: %+v, %v; it is not there", m.step, what, v, err)
		}
		return
	}
	if d := cmp.Diff(*want, v); err != nil || d != "" {
		m.t.Fatalf("step %d: %s: %v (-want +got)\n%s", m.step, what, err, d)
	}
}

// versionsFace is how the model reads, as the writer or at a snapshot.
type versionsFace struct {
	get  func(key []byte) (store.Version, error)
	asOf func(key []byte, asOf int64) (store.Version, error)
	scan func(store.VersionScan) (store.Iterator, error)
}

func (m *versionModel) writer() versionsFace {
	w := m.versioned()
	return versionsFace{w.Get, w.GetAsOf, w.Scan}
}

func (m *versionModel) reader(snap *layered.Snapshot) versionsFace {
	ctx := m.t.Context()
	r, err := snap.Versions("v")
	if err != nil {
		m.t.Fatal(err)
	}
	return versionsFace{
		func(key []byte) (store.Version, error) { return r.Get(ctx, key) },
		func(key []byte, asOf int64) (store.Version, error) { return r.GetAsOf(ctx, key, asOf) },
		func(s store.VersionScan) (store.Iterator, error) { return r.Scan(ctx, s) },
	}
}

// compare reads a key at random in every way.
func (m *versionModel) compare(who string, want *storetest.VersionModel, f versionsFace) {
	m.t.Helper()
	key, at := m.key(), m.at()
	v, err := f.get([]byte(key))
	m.one(fmt.Sprintf("%s: get %q", who, key), want.Latest(key), v, err)
	v, err = f.asOf([]byte(key), at)
	m.one(fmt.Sprintf("%s: get %q as of %d", who, key, at), want.AsOf(key, at), v, err)

	s := store.VersionScan{Key: []byte(key), Reverse: m.rng.IntN(2) == 0, To: math.MaxInt64}
	if m.rng.IntN(3) > 0 {
		s.From = m.at()
		s.To = s.From + m.rng.Int64N(50) - 2
	}
	if m.rng.IntN(4) == 0 {
		s.After = store.VersionKey([]byte(key), m.at())
	}
	expect := slices.DeleteFunc(want.Scan(s), func(v store.Version) bool {
		if s.After == nil {
			return false
		}
		c := bytes.Compare(store.VersionKey(s.Key, v.Timestamp), s.After)
		return s.Reverse && c >= 0 || !s.Reverse && c <= 0
	})
	it, err := f.scan(s)
	if err != nil {
		m.t.Fatal(err)
	}
	defer it.Close()
	got := []store.Version{}
	for it.Next() {
		got = append(got, store.Version{Value: it.Entry().Value, ValidTo: it.Entry().End})
	}
	if d := cmp.Diff(expect, got); d != "" || it.Err() != nil {
		m.t.Fatalf("step %d: %s: scan %+v at %d: %v (-want +got)\n%s", m.step, who, s, want.Time, it.Err(), d)
	}
}

func (m *versionModel) commit() {
	m.last++
	for range 1 + m.rng.IntN(2) {
		m.log = slices.DeleteFunc(m.log, func(c logged) bool { return c.commit == m.last }) // every call yields all
		for _, c := range m.task.Changes() {
			c.Key, c.Value = bytes.Clone(c.Key), bytes.Clone(c.Value)
			m.log = append(m.log, logged{m.last, c})
		}
		if m.rng.IntN(4) == 0 {
			m.write()
			m.log = slices.DeleteFunc(m.log, func(c logged) bool { return c.commit == m.last })
			for _, c := range m.task.Changes() {
				c.Key, c.Value = bytes.Clone(c.Key), bytes.Clone(c.Value)
				m.log = append(m.log, logged{m.last, c})
			}
		}
	}
	m.Commit(m.last)
	m.history[m.last] = m.running.Clone()
	m.times("commit")
}

func (m *versionModel) times(when string) {
	m.t.Helper()
	at, ok := m.task.Checkpoint().StoreTimes["v"]
	if want := m.history[m.last].Time; ok != (want >= 0) || ok && at != want {
		m.t.Fatalf("step %d: store time after a %s is %d, %v, want %d", m.step, when, at, ok, want)
	}
}

// restart ends the task in some way. What is there then is one commit; the changelog brings the rest back, or all of it
// when nothing outlived.
func (m *versionModel) restart() {
	n, whole, end := m.end()
	if whole {
		m.running = m.history[n].Clone()
		for range 5 {
			m.compare(fmt.Sprintf("writer after end %d", end), m.running, m.writer())
		}
	}
	m.replay(slices.DeleteFunc(slices.Clone(m.log), func(c logged) bool { return c.commit <= n }))
	m.running = m.history[m.last].Clone()
	if m.moved = n; m.rng.IntN(2) == 0 {
		m.Move()
		m.moved = m.last
	}
	m.times("replay")
	for range 10 {
		m.compare(fmt.Sprintf("writer after a replay from %d to %d", n, m.last), m.running, m.writer())
	}
}

// replay restores a changelog.
func (m *versionModel) replay(log []logged) {
	m.t.Helper()
	var batch []store.Change
	for i, c := range log {
		batch = append(batch, c.Change)
		if i+1 < len(log) && m.rng.IntN(5) > 0 {
			continue
		}
		if err := m.task.Restore("v", batch); err != nil {
			m.t.Fatal(err)
		}
		batch = nil
	}
	m.Commit(m.last)
}

// compacted restores a changelog of which compaction has left the last record of each key in some first part: the latest
// version of each key is right, and nothing is there that never was.
func (m *versionModel) compacted() {
	m.release()
	m.Restart(storetest.EndWipe)
	cut := len(m.log)
	if m.rng.IntN(2) == 0 {
		cut = m.rng.IntN(cut + 1)
	}
	lastOf := make(map[string]int)
	for i, c := range m.log[:cut] {
		lastOf[string(c.Key)] = i
	}
	var left []logged
	for i, c := range m.log {
		if i >= cut || lastOf[string(c.Key)] == i && (c.Value != nil || m.rng.IntN(2) == 0) { // old tombstones go, too
			left = append(left, c)
		}
	}
	m.replay(left)
	m.Move()
	want, f := m.history[m.last], m.writer()
	for _, key := range m.keys {
		v, err := f.get([]byte(key))
		m.one(fmt.Sprintf("get %q from a compacted log", key), want.Latest(key), v, err)
		it, err := f.scan(store.VersionScan{Key: []byte(key), To: math.MaxInt64})
		if err != nil {
			m.t.Fatal(err)
		}
		for it.Next() {
			e := it.Entry()
			if data := want.Keys[key][e.Start]; data == nil || *data != string(e.Data) {
				m.t.Errorf("a compacted log brings %q from %d", e.Data, e.Start)
			}
		}
		it.Close()
	}
}
