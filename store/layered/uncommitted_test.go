package layered_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

func at(o store.Offset) func() store.Position {
	return func() store.Position {
		p := store.Position{}
		p.Set("in", 0, o)
		return p
	}
}

// uncommitted is what a reader at READ_UNCOMMITTED sees.
func uncommitted(t *testing.T, task *layered.Task) *layered.Snapshot {
	t.Helper()
	snap, err := task.SnapshotUncommitted(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Close)
	return snap
}

// TestUncommitted: a reader sees whole batches, keeps what it pinned through later batches and commits, and is told when
// a rollback takes it away.
func TestUncommitted(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "a", "1", "b", "1")
	task.Commit(checkpoint(1, "d"))
	moveNow(t, s, task)

	first := uncommitted(t, task)
	equal(t, "only the commit", map[string]string{"a": "1", "b": "1"}, pinned(t, first, "d"))
	if _, ok := first.Uncommitted(); ok {
		t.Error("a commit is called uncommitted")
	}
	set(t, task, "d", "a", "2", "c", "2")
	task.Show(at(7))
	second := uncommitted(t, task)
	if pos, ok := second.Uncommitted(); !ok || pos["in"][0] != 7 {
		t.Errorf("position %v, uncommitted %v", pos, ok)
	}
	equal(t, "sequence", store.Sequence(1), second.Checkpoint().Sequence)
	two := map[string]string{"a": "2", "b": "1", "c": "2"}
	equal(t, "batch", two, pinned(t, second, "d"))

	set(t, task, "d", "a", "3")
	del(t, task, "d", "b")
	equal(t, "the batch in hand is not shown", two, pinned(t, uncommitted(t, task), "d"))
	task.Show(at(8))
	third := uncommitted(t, task)
	three := map[string]string{"a": "3", "c": "2"}
	equal(t, "next batch", three, pinned(t, third, "d"))
	equal(t, "what was pinned", two, pinned(t, second, "d"))
	equal(t, "committed readers", map[string]string{"a": "1", "b": "1"}, committed(t, task, "d"))

	task.Commit(checkpoint(2, "d"))
	set(t, task, "d", "a", "4")
	moveNow(t, s, task)
	equal(t, "pinned through a commit", two, pinned(t, second, "d"))
	equal(t, "and the newer one", three, pinned(t, third, "d"))
	task.Show(at(9))
	fourth := uncommitted(t, task)
	r, err := fourth.KeyValue("d")
	if err != nil {
		t.Fatal(err)
	}
	it, err := r.Scan(t.Context(), store.Scan{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if !it.Next() || string(it.Entry().Data) != "4" {
		t.Errorf("first row %+v, %v", it.Entry(), it.Err())
	}
	task.Rollback()
	if it.Next() || !errors.Is(it.Err(), store.ErrNotReady) {
		t.Errorf("a scan goes on over a rollback: %+v, %v", it.Entry(), it.Err())
	}
	if _, err := r.Get(t.Context(), []byte("a")); !errors.Is(err, store.ErrNotReady) {
		t.Errorf("a get of what was rolled back: %v", err)
	}
	if _, _, err := r.GetMany(t.Context(), [][]byte{[]byte("a")}); !errors.Is(err, store.ErrNotReady) {
		t.Errorf("a multi-get of what was rolled back: %v", err)
	}
	equal(t, "committed meanwhile", three, pinned(t, third, "d"))
	equal(t, "after the rollback", three, pinned(t, uncommitted(t, task), "d"))
}

// TestUncommittedRace: whatever the writer does, a reader sees whole batches (every key has the batch's number), or is
// told that they were rolled back; and never what is older than a commit it has seen.
func TestUncommittedRace(t *testing.T) {
	t.Parallel()
	const keys = 40
	seed := storetest.Seed(t)
	rng := rand.New(rand.NewPCG(seed, 7))
	s := openStores(t, layered.Config{Dir: t.TempDir(), MoveBytes: 32 << 10})
	task := openTask(t, s, task0, disk)
	put := func(batch int) {
		for i := range keys {
			set(t, task, "d", fmt.Sprintf("k%02d", i), fmt.Sprintf("%08d", batch))
		}
	}
	put(0)
	task.Commit(checkpoint(1, "d"))
	var done atomic.Bool
	var readers sync.WaitGroup
	ctx := t.Context()
	var cuts, wholes atomic.Int64
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				old, err := task.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				base := pinned(t, old, "d")["k00"]
				old.Close()
				rows, err := readBatch(ctx, task)
				switch {
				case errors.Is(err, store.ErrNotReady):
					cuts.Add(1)
				case err != nil:
					t.Error(err)
					return
				default:
					wholes.Add(1)
					for k, v := range rows {
						if v != rows["k00"] {
							t.Errorf("a torn batch: %s=%s, k00=%s", k, v, rows["k00"])
							return
						}
					}
					if len(rows) != keys || rows["k00"] < base {
						t.Errorf("%d rows, batch %s after commit %s", len(rows), rows["k00"], base)
						return
					}
				}
			}
		})
	}
	committedBatch, n := 0, 1
	for batch := 1; batch < 1500; batch++ {
		put(batch)
		task.Show(at(store.Offset(batch)))
		switch rng.IntN(6) {
		case 0:
			n++
			task.Commit(checkpoint(n, "d"))
			committedBatch = batch
		case 1:
			task.Rollback()
			put(committedBatch) // so that numbers never go back behind a commit
			n++
			task.Commit(checkpoint(n, "d"))
		case 2:
			if err := layered.MoveNow(s, task); err != nil {
				t.Fatal(err)
			}
		}
	}
	done.Store(true)
	readers.Wait()
	if wholes.Load() == 0 {
		t.Error("no read succeeded")
	}
	t.Logf("%d whole reads, %d cut (seed %d)", wholes.Load(), cuts.Load(), seed)
}

// readBatch reads every key, some by get and all by a scan.
func readBatch(ctx context.Context, task *layered.Task) (map[string]string, error) {
	snap, err := task.SnapshotUncommitted(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	r, err := snap.KeyValue("d")
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	it, err := r.Scan(ctx, store.Scan{})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Next() {
		out[string(it.Entry().Key)] = string(it.Entry().Data)
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	for _, key := range []string{"k00", "k21"} {
		v, err := r.Get(ctx, []byte(key))
		if err != nil {
			return nil, err
		}
		if string(v.Data) != out[key] {
			return nil, fmt.Errorf("%s: %s by get, %s by scan", key, v.Data, out[key])
		}
	}
	return out, nil
}

func del(t *testing.T, task *layered.Task, name store.Name, key string) {
	t.Helper()
	if _, _, err := kv(t, task, name).Delete([]byte(key)); err != nil {
		t.Fatal(err)
	}
}

// TestUncommittedKinds: every kind of read sees the overlay that is shown, and every one ends with an error once it is
// rolled back (CA-08).
func TestUncommittedKinds(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	specs := []store.Spec{
		{Name: "k", Kind: store.KindKeyValue},
		{Name: "w", Kind: store.KindWindow, Retention: time.Minute, WindowSize: time.Second},
		{Name: "d", Kind: store.KindWindow, Retention: time.Minute, WindowSize: time.Second, RetainDuplicates: true},
		{Name: "s", Kind: store.KindSession, Retention: time.Minute},
		{Name: "v", Kind: store.KindVersioned, Retention: time.Minute},
		{Name: "m", Kind: store.KindTimestampedKeyValue, InMemory: true},
	}
	task := openTask(t, s, task0, specs...)
	task.Commit(checkpoint(0, "k", "w", "d", "s", "v", "m"))
	key, value := []byte("key"), store.Value{Data: []byte("1"), Timestamp: 5}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []store.Name{"k", "m"} {
		must(kv(t, task, name).Put(key, value))
	}
	for _, name := range []store.Name{"w", "d"} {
		w, err := task.Window(name)
		must(err)
		must(w.Put(key, 5, value))
	}
	ses, err := task.Session("s")
	must(err)
	must(ses.Put(key, 5, 7, value))
	vers, err := task.Versioned("v")
	must(err)
	_, err = vers.Put(key, value)
	must(err)
	task.ShowNow(at(1))

	snap, ctx := uncommitted(t, task), t.Context()
	k, err := snap.KeyValue("k")
	must(err)
	m, err := snap.KeyValue("m")
	must(err)
	w, err := snap.Windows("w")
	must(err)
	d, err := snap.Windows("d")
	must(err)
	r, err := snap.Sessions("s")
	must(err)
	v, err := snap.Versions("v")
	must(err)
	gets := map[string]func() error{
		"get":           func() error { _, err := k.Get(ctx, key); return err },
		"get in memory": func() error { _, err := m.Get(ctx, key); return err },
		"multi-get":     func() error { _, _, err := k.GetMany(ctx, [][]byte{key}); return err },
		"fetch":         func() error { _, err := w.Fetch(ctx, key, 5); return err },
		"duplicates":    func() error { _, err := d.Fetch(ctx, key, 5); return err },
		"session":       func() error { _, err := r.Fetch(ctx, key, 5, 7); return err },
		"latest":        func() error { _, err := v.Get(ctx, key); return err },
		"as of":         func() error { _, err := v.GetAsOf(ctx, key, 6); return err },
	}
	scans := map[string]func() (store.Iterator, error){
		"scan":       func() (store.Iterator, error) { return k.Scan(ctx, store.Scan{}) },
		"reverse":    func() (store.Iterator, error) { return m.Scan(ctx, store.Scan{Reverse: true}) },
		"windows":    func() (store.Iterator, error) { return w.Scan(ctx, store.WindowScan{To: 10}) },
		"duplicates": func() (store.Iterator, error) { return d.Scan(ctx, store.WindowScan{Key: key, To: 10}) },
		"sessions":   func() (store.Iterator, error) { return r.Scan(ctx, store.SessionScan{LatestEnd: 10, LatestStart: 10}) },
		"versions":   func() (store.Iterator, error) { return v.Scan(ctx, store.VersionScan{Key: key, To: 10}) },
	}
	for name, get := range gets {
		if err := get(); err != nil {
			t.Errorf("%s of the overlay: %v", name, err)
		}
	}
	open := make(map[string]store.Iterator)
	for name, scan := range scans {
		it, err := scan()
		must(err)
		if !it.Next() || string(it.Entry().Data) != "1" {
			t.Errorf("%s of the overlay: %+v, %v", name, it.Entry(), it.Err())
		}
		it.Close()
		open[name], err = scan()
		must(err)
		defer open[name].Close()
	}
	task.Rollback()
	for name, get := range gets {
		if err := get(); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("%s after a rollback: %v", name, err)
		}
	}
	for name, it := range open {
		if it.Next() || !errors.Is(it.Err(), store.ErrNotReady) {
			t.Errorf("%s after a rollback: %+v, %v", name, it.Entry(), it.Err())
		}
	}
}
