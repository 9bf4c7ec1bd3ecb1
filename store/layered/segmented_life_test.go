package layered_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

var (
	windows  = store.Spec{Name: "w", Kind: store.KindTimestampedWindow, WindowSize: time.Millisecond, Retention: 100 * time.Millisecond, SegmentInterval: 10 * time.Millisecond}
	sessions = store.Spec{Name: "s", Kind: store.KindSession, Retention: 100 * time.Millisecond, SegmentInterval: 10 * time.Millisecond}
)

func inMemory(s store.Spec) store.Spec {
	s.InMemory = true
	return s
}

func windowOf(tb testing.TB, task *layered.Task, name store.Name) store.Window {
	tb.Helper()
	w, err := task.Window(name)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func sessionOf(tb testing.TB, task *layered.Task, name store.Name) store.Session {
	tb.Helper()
	s, err := task.Session(name)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func putAt(tb testing.TB, task *layered.Task, key string, starts ...int64) {
	tb.Helper()
	for _, start := range starts {
		v := store.Value{Data: fmt.Append(nil, start), Timestamp: start}
		if err := windowOf(tb, task, "w").Put([]byte(key), start, v); err != nil {
			tb.Fatal(err)
		}
	}
}

// startsOf lists "key@start=value" of what the writer sees.
func startsOf(tb testing.TB, task *layered.Task) string {
	tb.Helper()
	it, err := windowOf(tb, task, "w").Scan(store.WindowScan{To: math.MaxInt64})
	return list(tb, it, err)
}

func list(tb testing.TB, it store.Iterator, err error) string {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
	defer it.Close()
	var out []string
	for it.Next() {
		e := it.Entry()
		out = append(out, fmt.Sprintf("%s@%d=%s", e.Key, e.Start, e.Data))
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return strings.Join(out, " ")
}

// TestExpiredSegments: what has expired is told to the engine when the time that kills it is durable, at each move and
// after opening, and goes; readers of before keep it.
func TestExpiredSegments(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]store.Spec{"disk": windows, "memory": inMemory(windows)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStores(t, layered.Config{Dir: t.TempDir()})
			task := openTask(t, s, task0, spec)
			segments := func() []uint64 { return layered.EngineSegments(t, task, "w", 60) }
			putAt(t, task, "k", 0, 5, 15, 25, 105)
			task.Commit(checkpoint(1, "w"))
			moveNow(t, s, task)
			equal(t, "segments of a store that has expired nothing but its first row", []uint64{1, 2, 3, 11}, segments())
			old, err := task.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			putAt(t, task, "k", 130)
			task.Commit(checkpoint(2, "w"))
			layered.ReclaimNow(t, s)
			equal(t, "segments before the move", []uint64{1, 2, 3, 11}, segments())
			moveNow(t, s, task)
			r, err := old.Windows("w")
			if err != nil {
				t.Fatal(err)
			}
			it, err := r.Scan(t.Context(), store.WindowScan{To: math.MaxInt64})
			equal(t, "a snapshot of before", "k@15=15 k@25=25 k@105=105", list(t, it, err))
			old.Close()
			layered.ReclaimNow(t, s)
			equal(t, "segments after the move", []uint64{11, 14}, segments())
			equal(t, "rows", "k@105=105 k@130=130", startsOf(t, task))

			// A late row of a dead segment is refused, so the segment stays away.
			putAt(t, task, "k", 30)
			putAt(t, task, "k", 31)
			task.Commit(checkpoint(3, "w"))
			moveNow(t, s, task)
			equal(t, "segments with a late row that has just not expired", []uint64{4, 11, 14}, segments())
		})
	}
}

// TestExpiryOverReopen: time and rows survive the process, and what was dead is not asked for again (QS-11).
func TestExpiryOverReopen(t *testing.T) {
	t.Parallel()
	cfg := layered.Config{Dir: t.TempDir()}
	s := openStores(t, cfg)
	task := openTask(t, s, task0, windows, sessions)
	putAt(t, task, "k", 10, 25, 121)
	if err := sessionOf(t, task, "s").Put([]byte("k"), 3, 50, store.Value{Data: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	task.Commit(checkpoint(1, "w", "s"))
	want := map[store.Name]int64{"w": 121, "s": 50}
	equal(t, "times", want, task.Checkpoint().StoreTimes)
	if err := task.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStores(t, cfg)
	task = openTask(t, s, task0, windows, sessions)
	equal(t, "times after opening", want, task.Checkpoint().StoreTimes)
	if task.Checkpoint().Restoring {
		t.Error("restoring")
	}
	equal(t, "rows after opening", "k@25=25 k@121=121", startsOf(t, task))
	putAt(t, task, "late", 21)
	equal(t, "a late row after opening", "k@25=25 k@121=121", startsOf(t, task))
	layered.ReclaimNow(t, s)
	equal(t, "segments after opening", []uint64{3, 13}, layered.EngineSegments(t, task, "w", 60))
}

// TestLayoutChanged: rows lie where retention and segment interval say. With others the copy is dropped and restored,
// and claims nothing until then, also when they are changed back before anything was moved.
func TestLayoutChanged(t *testing.T) {
	t.Parallel()
	longer, finer := windows, windows
	longer.Retention *= 2
	finer.SegmentInterval /= 2
	size := windows
	size.WindowSize *= 2
	for name, c := range map[string]struct {
		spec store.Spec
		kept bool
	}{
		"retention": {longer, false}, "segment interval": {finer, false}, "window size": {size, true},
		"kind": {store.Spec{Name: "w", Kind: store.KindKeyValue}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStores(t, layered.Config{Dir: t.TempDir()})
			task := openTask(t, s, task0, windows, disk)
			putAt(t, task, "k", 10, 20)
			set(t, task, "d", "a", "1")
			task.Commit(checkpoint(1, "w", "d"))
			for _, spec := range []store.Spec{c.spec, windows} {
				if err := task.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				task = openTask(t, s, task0, spec, disk)
				cp := task.Checkpoint()
				_, known := cp.Changelogs["w"]
				_, timed := cp.StoreTimes["w"]
				if known != c.kept || timed != c.kept || cp.Restoring == c.kept {
					t.Errorf("position known: %t, time known: %t, restoring: %t; kept %t", known, timed, cp.Restoring, c.kept)
				}
				if _, ok := cp.Changelogs["d"]; !ok {
					t.Error("the other store lost its position")
				}
				equal(t, "the other store", map[string]string{"a": "1"}, written(t, task, "d"))
			}
			want := ""
			if c.kept {
				want = "k@10=10 k@20=20"
			}
			equal(t, "rows", want, startsOf(t, task))
			// As a restore would, and then it is complete again.
			if err := task.Restore("w", []store.Change{{Key: store.WindowKey([]byte("r"), 30, 0), Value: []byte("30")}}); err != nil {
				t.Fatal(err)
			}
			task.Commit(checkpoint(2, "w", "d"))
			if err := task.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			task = openTask(t, s, task0, windows, disk)
			if cp := task.Checkpoint(); cp.Restoring || cp.StoreTimes["w"] != 30 {
				t.Errorf("after a restore: %+v", cp)
			}
			equal(t, "rows", strings.TrimSpace(want+" r@30=30"), startsOf(t, task))
		})
	}
}

// TestDuplicatesOverRestart: the numbers of rows go on, so that no row takes the place of an older one.
func TestDuplicatesOverRestart(t *testing.T) {
	t.Parallel()
	spec := windows
	spec.RetainDuplicates = true
	unlogged := spec
	unlogged.NoChangelog = true
	for name, spec := range map[string]store.Spec{"logged": spec, "unlogged": unlogged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := layered.Config{Dir: t.TempDir()}
			var log []store.Change
			want := ""
			for round := range 3 {
				s := openStores(t, cfg)
				task := openTask(t, s, task0, spec)
				putAt(t, task, "k", 10, 10)
				task.Rollback()
				putAt(t, task, "k", 10, 10)
				for _, c := range task.Changes() {
					log = append(log, store.Change{Key: bytes.Clone(c.Key), Value: bytes.Clone(c.Value)})
				}
				task.Commit(checkpoint(round+1, "w"))
				want = strings.TrimSpace(want + " k@10=10 k@10=10")
				equal(t, "rows", want, startsOf(t, task))
				if err := task.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if spec.NoChangelog {
				return
			}
			s := openStores(t, layered.Config{Dir: t.TempDir()})
			task := openTask(t, s, task0, spec)
			if err := task.Restore("w", log); err != nil {
				t.Fatal(err)
			}
			putAt(t, task, "k", 10)
			equal(t, "rows after a restore and another put", want+" k@10=10", startsOf(t, task))
		})
	}
}

// TestDuplicateNumbersWrap: after the greatest number comes 0, before and after a restore.
func TestDuplicateNumbersWrap(t *testing.T) {
	t.Parallel()
	spec := windows
	spec.RetainDuplicates = true
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, spec)
	row := func(seq int32) store.Change {
		return store.Change{Key: store.WindowKey([]byte("k"), 10, seq), Value: []byte("10")}
	}
	if err := task.Restore("w", []store.Change{row(store.MaxSeq - 1)}); err != nil {
		t.Fatal(err)
	}
	putAt(t, task, "k", 10, 10, 10)
	var seqs []int32
	it, err := windowOf(t, task, "w").Scan(store.WindowScan{To: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.Next() {
		_, _, seq, err := store.ParseWindowKey(it.Entry().Cursor)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, seq)
	}
	equal(t, "numbers", []int32{0, 1, store.MaxSeq - 1, store.MaxSeq}, seqs)
	// The last row in the log is the last that was put, not the greatest.
	task.Rollback()
	if err := task.Restore("w", []store.Change{row(store.MaxSeq), row(0), row(1)}); err != nil {
		t.Fatal(err)
	}
	putAt(t, task, "k", 10)
	equal(t, "rows", "k@10=10 k@10=10 k@10=10 k@10=10", startsOf(t, task))
}

// TestRowRollback: rows, times and numbers return to the last commit; an iterator over what is gone ends with an error.
func TestRowRollback(t *testing.T) {
	t.Parallel()
	for name, specs := range map[string][]store.Spec{
		"disk": {windows, sessions}, "memory": {inMemory(windows), inMemory(sessions)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStores(t, layered.Config{Dir: t.TempDir()})
			task := openTask(t, s, task0, specs...)
			putAt(t, task, "k", 10, 20)
			task.Commit(checkpoint(1, "w", "s"))
			for range 3 {
				before, err := windowOf(t, task, "w").Scan(store.WindowScan{To: math.MaxInt64})
				if err != nil {
					t.Fatal(err)
				}
				putAt(t, task, "k", 15, 10_000)
				if err := sessionOf(t, task, "s").Put([]byte("k"), 0, 5, store.Value{Data: []byte("v")}); err != nil {
					t.Fatal(err)
				}
				equal(t, "within the commit", "k@10000=10000", startsOf(t, task))
				within, err := windowOf(t, task, "w").Scan(store.WindowScan{To: math.MaxInt64})
				if err != nil {
					t.Fatal(err)
				}
				task.Rollback()
				if within.Next() || !errors.Is(within.Err(), store.ErrClosed) {
					t.Errorf("an iterator over what was rolled back: %v", within.Err())
				}
				within.Close()
				equal(t, "an iterator of before", "k@10=10 k@20=20", list(t, before, nil))
				equal(t, "after the rollback", "k@10=10 k@20=20", startsOf(t, task))
				putAt(t, task, "k", 12) // which the rolled back time would have expired
				equal(t, "time after the rollback", "k@10=10 k@12=12 k@20=20", startsOf(t, task))
				task.Rollback()
				task.Commit(checkpoint(1, "w", "s"))
				equal(t, "times", map[store.Name]int64{"w": 20}, task.Checkpoint().StoreTimes)
				moveNow(t, s, task)
			}
		})
	}
}

// TestRowChanges: the key of a change is the row's, as upstream's changelogs have it, deletes of windows included; what
// came too late goes nowhere.
func TestRowChanges(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, windows, sessions)
	putAt(t, task, "a", 1000, 1000)
	putAt(t, task, "a", 5)
	if err := windowOf(t, task, "w").Put([]byte("b"), 999, store.Value{Timestamp: 7}); err != nil {
		t.Fatal(err)
	}
	ses := sessionOf(t, task, "s")
	if err := ses.Put([]byte("a"), 50, 100, store.Value{Data: []byte("v"), Timestamp: 99}); err != nil {
		t.Fatal(err)
	}
	if err := ses.Remove([]byte("a"), 20, 30); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, c := range task.Changes() {
		got[fmt.Sprintf("%s %x", name, c.Key)] = fmt.Sprintf("%s@%d %t", c.Value, c.Timestamp, c.Value == nil)
	}
	equal(t, "changes", map[string]string{
		"w 6100000000000003e800000000":         "1000@1000 false",
		"w 6200000000000003e700000000":         "@7 true",
		"s 6100000000000000640000000000000032": "v@99 false",
		"s 61000000000000001e0000000000000014": "@0 true",
	}, got)
	for what, c := range map[string]struct {
		name store.Name
		key  []byte
	}{
		"a short window row": {"w", []byte("short")}, "a short session row": {"s", []byte("short")},
		"a session that ends before it starts": {"s", store.SessionKey([]byte("a"), 9, 8)},
	} {
		if err := task.Restore(c.name, []store.Change{{Key: c.key, Value: []byte("v")}}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("restore of %s: %v", what, err)
		}
	}
}

// TestWrongKind: a store answers as what it is.
func TestWrongKind(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, windows, sessions, disk)
	task.Commit(checkpoint(1, "w", "s", "d"))
	snap, err := task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	second := func(_ any, err error) error { return err }
	for name, may := range map[store.Name]string{"w": "window", "s": "session", "d": "key-value", "none": ""} {
		for face, errs := range map[string][2]error{
			"key-value": {second(task.KeyValue(name)), second(snap.KeyValue(name))},
			"window":    {second(task.Window(name)), second(snap.Windows(name))},
			"session":   {second(task.Session(name)), second(snap.Sessions(name))},
		} {
			for _, err := range errs {
				switch {
				case may == "" && !errors.Is(err, store.ErrUnknownStore), may == face && err != nil,
					may != "" && may != face && !errors.Is(err, store.ErrWrongKind):
					t.Errorf("store %s as %s: %v", name, face, err)
				}
			}
		}
	}
	bad := windows
	bad.Retention = 0
	if _, err := s.OpenTask(t.Context(), store.TaskID{Partition: 1}, []store.Spec{bad}); err == nil || !strings.Contains(err.Error(), "store w: retention") {
		t.Errorf("a window store without retention: %v", err)
	}
}

// TestRowIsolation: each snapshot shows one commit whole, while the writer goes on and rows move and expire (QS-12). Run
// it with -race.
func TestRowIsolation(t *testing.T) {
	t.Parallel()
	for name, specs := range map[string][]store.Spec{
		"disk": {windows, sessions}, "memory": {inMemory(windows), inMemory(sessions)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := prometheus.NewRegistry()
			s := openStores(t, layered.Config{Dir: t.TempDir(), Registerer: reg, MoveBytes: 1 << 10})
			task := openTask(t, s, task0, specs...)
			const keys, commits = 8, 300
			commit := func(n int) {
				w, ses := windowOf(t, task, "w"), sessionOf(t, task, "s")
				for k := range keys {
					key := []byte{byte('a' + k)}
					v := store.Value{Data: fmt.Append(nil, n), Timestamp: int64(n)}
					if err := errors.Join(w.Put(key, int64(n), v), w.Put(key, int64(max(0, n-30)), v)); err != nil {
						t.Error(err)
					}
					if n > 0 {
						if err := ses.Remove(key, 0, int64(n-1)); err != nil {
							t.Error(err)
						}
					}
					if err := ses.Put(key, 0, int64(n), v); err != nil {
						t.Error(err)
					}
				}
				task.Commit(checkpoint(n+1, "w", "s"))
			}
			commit(0)
			var done atomic.Bool
			var wg sync.WaitGroup
			for reader := range 3 {
				wg.Go(func() {
					for !done.Load() && !t.Failed() {
						readWhole(t, task, reader, keys)
					}
				})
			}
			for n := 1; n < commits; n++ {
				commit(n)
				if n%10 == 0 {
					moveNow(t, s, task)
				}
			}
			done.Store(true)
			wg.Wait()
		})
	}
}

// readWhole checks that one snapshot is one commit's.
func readWhole(t *testing.T, task *layered.Task, reader, keys int) {
	t.Helper()
	snap, err := task.Snapshot()
	if err != nil {
		t.Error(err)
		return
	}
	defer snap.Close()
	n := int64(snap.Checkpoint().Sequence) - 1
	r, err := snap.Windows("w")
	if err != nil {
		t.Error(err)
		return
	}
	it, err := r.Scan(t.Context(), store.WindowScan{To: math.MaxInt64, Reverse: reader%2 == 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer it.Close()
	rows := 0
	for it.Next() {
		e := it.Entry()
		want := e.Start
		if n >= e.Start+30 { // written again
			want = e.Start + 30
		} else if e.Start == 0 { // with each of the first commits
			want = n
		}
		if e.Timestamp != want || string(e.Data) != fmt.Sprint(want) || e.Start <= n-100 {
			t.Errorf("QS-12: commit %d shows %q@%d = %s (%d), want %d", n, e.Key, e.Start, e.Data, e.Timestamp, want)
		}
		rows++
	}
	if err := it.Err(); err != nil {
		t.Error(err)
	}
	if want := keys * int(min(n+1, 100)); rows != want {
		t.Errorf("QS-12: commit %d shows %d windows, want %d", n, rows, want)
	}
	ses, err := snap.Sessions("s")
	if err != nil {
		t.Error(err)
		return
	}
	found, err := ses.Scan(t.Context(), store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
	if err != nil {
		t.Error(err)
		return
	}
	defer found.Close()
	rows = 0
	for found.Next() {
		if e := found.Entry(); e.End != n || string(e.Data) != fmt.Sprint(n) {
			t.Errorf("QS-12: commit %d shows session %q [%d,%d] = %s", n, e.Key, e.Start, e.End, e.Data)
		}
		rows++
	}
	if err := found.Err(); err != nil || rows != keys {
		t.Errorf("QS-12: commit %d shows %d sessions, want %d; %v", n, rows, keys, err)
	}
}
