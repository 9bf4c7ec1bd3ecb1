package layered_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

var (
	task0 = store.TaskID{}
	disk  = store.Spec{Name: "d", Kind: store.KindTimestampedKeyValue}
	plain = store.Spec{Name: "p", Kind: store.KindKeyValue}
	mem   = store.Spec{Name: "m", Kind: store.KindKeyValue, InMemory: true}
	local = store.Spec{Name: "l", Kind: store.KindKeyValue, NoChangelog: true}
)

func openTask(tb testing.TB, s *layered.Stores, id store.TaskID, specs ...store.Spec) *layered.Task {
	tb.Helper()
	task, err := s.OpenTask(tb.Context(), id, specs)
	if err != nil {
		tb.Fatal(err)
	}
	return task
}

func kv(tb testing.TB, task *layered.Task, name store.Name) store.KeyValue {
	tb.Helper()
	kv, err := task.KeyValue(name)
	if err != nil {
		tb.Fatal(err)
	}
	return kv
}

func set(tb testing.TB, task *layered.Task, name store.Name, pairs ...string) {
	tb.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := kv(tb, task, name).Put([]byte(pairs[i]), store.Value{Data: []byte(pairs[i+1]), Timestamp: 9}); err != nil {
			tb.Fatal(err)
		}
	}
}

func written(tb testing.TB, task *layered.Task, name store.Name) map[string]string {
	tb.Helper()
	it, err := kv(tb, task, name).Scan(store.Scan{})
	if err != nil {
		tb.Fatal(err)
	}
	return collect(tb, it)
}

func committed(tb testing.TB, task *layered.Task, name store.Name) map[string]string {
	tb.Helper()
	snap, err := task.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Close()
	return pinned(tb, snap, name)
}

func pinned(tb testing.TB, snap *layered.Snapshot, name store.Name) map[string]string {
	tb.Helper()
	r, err := snap.KeyValue(name)
	if err != nil {
		tb.Fatal(err)
	}
	it, err := r.Scan(tb.Context(), store.Scan{})
	if err != nil {
		tb.Fatal(err)
	}
	return collect(tb, it)
}

func collect(tb testing.TB, it store.Iterator) map[string]string {
	tb.Helper()
	defer it.Close()
	out := make(map[string]string)
	for it.Next() {
		out[string(it.Entry().Key)] = string(it.Entry().Data)
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}

func equal(tb testing.TB, what string, want, got any) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("%s: (-want +got)\n%s", what, d)
	}
}

func moveNow(tb testing.TB, s *layered.Stores, task *layered.Task) {
	tb.Helper()
	if err := layered.MoveNow(s, task); err != nil {
		tb.Fatal(err)
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk, plain, local)
	changes := func() map[string]string {
		out := make(map[string]string)
		for name, c := range task.Changes() {
			v := string(c.Value)
			if c.Value == nil {
				v = "-"
			}
			out[string(name)+" "+string(c.Key)] = fmt.Sprint(v, "@", c.Timestamp)
		}
		return out
	}
	if task.Dirty() || task.UncommittedBytes() != 0 {
		t.Error("a new task is dirty")
	}
	if err := task.Restore("d", []store.Change{{Key: []byte("r"), Value: []byte("1")}, {Key: []byte("w"), Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	set(t, task, "d", "a", "1", "a", "2", "w", "2")
	set(t, task, "p", "x", "")
	set(t, task, "l", "y", "1")
	if err := kv(t, task, "p").Put([]byte("z"), store.Value{Timestamp: 11}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"d a": "2@9", "d w": "2@9", "p x": "@9", "p z": "-@11"}
	equal(t, "changes", want, changes())
	equal(t, "changes again", want, changes())
	if !task.Dirty() || task.UncommittedBytes() < 6 {
		t.Errorf("dirty %t, %d bytes", task.Dirty(), task.UncommittedBytes())
	}
	var kept []store.Change // as a producer keeps them while it waits for acknowledgements
	for _, c := range task.Changes() {
		kept = append(kept, c)
	}
	copies := make([]string, len(kept))
	for i, c := range kept {
		copies[i] = string(c.Value)
	}
	set(t, task, "d", "a", "3", "w", "3")
	set(t, task, "p", "x", "3", "z", "3")
	for i, c := range kept {
		if string(c.Value) != copies[i] {
			t.Errorf("a later write changed what Changes had yielded: %q to %q", copies[i], c.Value)
		}
	}
	task.Commit(checkpoint(1, "d", "p"))
	equal(t, "after the commit", map[string]string{}, changes())
	if task.Dirty() || task.UncommittedBytes() != 0 {
		t.Error("dirty after the commit")
	}
	set(t, task, "d", "a", "4")
	task.Rollback()
	equal(t, "after a rollback", map[string]string{}, changes())
	equal(t, "state", map[string]string{"a": "3", "r": "1", "w": "3"}, written(t, task, "d"))
}

func TestRollback(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk, mem)
	for _, name := range []store.Name{"d", "m"} {
		set(t, task, name, "a", "1", "b", "1")
	}
	task.Commit(checkpoint(1, "d", "m"))
	for round := range 3 {
		before, err := kv(t, task, "d").Scan(store.Scan{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []store.Name{"d", "m"} {
			set(t, task, name, "a", "2", "c", "2")
			if _, _, err := kv(t, task, name).Delete([]byte("b")); err != nil {
				t.Fatal(err)
			}
		}
		within, err := kv(t, task, "d").Scan(store.Scan{})
		if err != nil || !within.Next() {
			t.Fatal(err)
		}
		task.Rollback()
		for within.Next() {
		}
		if !errors.Is(within.Err(), store.ErrClosed) {
			t.Errorf("an iterator over what was rolled back ends with %v", within.Err())
		}
		within.Close()
		want := map[string]string{"a": "1", "b": "1"}
		equal(t, "an iterator from before", want, collect(t, before))
		for _, name := range []store.Name{"d", "m"} {
			equal(t, "state", want, written(t, task, name))
			equal(t, "snapshot", want, committed(t, task, name))
		}
		if round == 1 {
			moveNow(t, s, task)
		}
	}
}

// TestRestoreBatch is CR-05: tombstones in a restore batch, split at every position.
func TestRestoreBatch(t *testing.T) {
	t.Parallel()
	c := func(key, value string) store.Change {
		ch := store.Change{Key: []byte(key), Timestamp: 3}
		if value != "" {
			ch.Value = []byte(value)
		}
		return ch
	}
	batch := []store.Change{c("k1", "v1"), c("k2", "v2"), c("k1", ""), c("k3", ""), c("k2", "v2b"), c("k2", ""), c("k2", "v2c")}
	for _, spec := range []store.Spec{disk, mem} {
		s := openStores(t, layered.Config{Dir: t.TempDir()})
		for split := range len(batch) + 1 {
			task := openTask(t, s, store.TaskID{Partition: store.Partition(split)}, spec)
			for i, part := range [][]store.Change{batch[:split], batch[split:]} {
				if err := task.Restore(spec.Name, part); err != nil {
					t.Fatal(err)
				}
				task.Commit(checkpoint(i+1, spec.Name))
				if split%2 == 0 {
					moveNow(t, s, task)
				}
			}
			want := map[string]string{"k2": "v2c"}
			equal(t, "CR-05", want, committed(t, task, spec.Name))
			if n, err := kv(t, task, spec.Name).ApproximateCount(); n != 1 || err != nil {
				t.Errorf("CR-05 split at %d: count %d, %v", split, n, err)
			}
			if err := task.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			equal(t, "CR-05 opened again", want, written(t, openTask(t, s, task.ID(), spec), spec.Name))
		}
	}
}

// TestCleanStop is CR-19: after a clean stop nothing is replayed, and an empty checkpoint is never offset 0.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  func(t *testing.T, s *layered.Stores, task *layered.Task)
		want int
	}{
		"before any record": {func(*testing.T, *layered.Stores, *layered.Task) {}, 0},
		"with recent writes": {func(t *testing.T, _ *layered.Stores, task *layered.Task) {
			set(t, task, "d", "a", "1")
			task.Commit(checkpoint(1, "d"))
		}, 1},
		"without recent writes": {func(t *testing.T, s *layered.Stores, task *layered.Task) {
			set(t, task, "d", "a", "1")
			task.Commit(checkpoint(1, "d"))
			moveNow(t, s, task)
		}, 1},
		"only inputs moved": {func(t *testing.T, s *layered.Stores, task *layered.Task) {
			task.Commit(checkpoint(1, "d"))
			moveNow(t, s, task)
			task.Commit(checkpoint(2, "d"))
		}, 2},
		"after a restore": {func(t *testing.T, _ *layered.Stores, task *layered.Task) {
			if err := task.Restore("d", []store.Change{{Key: []byte("a"), Value: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			task.Commit(checkpoint(3, "d"))
		}, 3},
		"in a commit": {func(t *testing.T, _ *layered.Stores, task *layered.Task) {
			task.Commit(checkpoint(1, "d"))
			set(t, task, "d", "a", "uncommitted")
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := openStores(t, layered.Config{Dir: dir})
			task := openTask(t, s, task0, disk)
			c.run(t, s, task)
			if err := task.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := task.Close(t.Context()); err != nil {
				t.Errorf("closed twice: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openStores(t, layered.Config{Dir: dir})
			cp := openTask(t, s, task0, disk).Checkpoint()
			if c.want == 0 {
				if _, known := cp.Changelogs["d"]; known || cp.Sequence != 0 || !cp.Restoring || cp.StreamTime != -1 {
					t.Errorf("CR-19: an empty copy says %+v", cp)
				}
				if n := len(s.Held()); n != 1 {
					t.Errorf("%d tasks are held, the open one is", n)
				}
				return
			}
			equal(t, "CR-19", checkpoint(c.want, "d"), cp)
		})
	}
}

// TestMixedCheckpoint is CR-17: the record on disk names only what is on disk.
func TestMixedCheckpoint(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStores(t, layered.Config{Dir: dir})
	task := openTask(t, s, task0, disk, mem, local)
	set(t, task, "d", "a", "1")
	set(t, task, "m", "a", "1")
	set(t, task, "l", "a", "1")
	task.Commit(checkpoint(1, "d", "m"))
	other := openTask(t, s, store.TaskID{Partition: 1}, disk)
	other.Commit(checkpoint(7, "d"))
	for _, task := range []*layered.Task{task, other} {
		if err := task.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// The process goes on: what is in memory is there.
	task = openTask(t, s, task0, disk, mem, local)
	equal(t, "same process", checkpoint(1, "d", "m"), task.Checkpoint())
	equal(t, "same process", map[string]string{"a": "1"}, committed(t, task, "m"))
	if err := errors.Join(task.Close(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openStores(t, layered.Config{Dir: dir})
	task = openTask(t, s, task0, disk, mem, local)
	want := checkpoint(1, "d")
	want.Restoring = true
	equal(t, "CR-17: new process", want, task.Checkpoint())
	if _, err := task.Snapshot(); !errors.Is(err, store.ErrNotReady) {
		t.Errorf("a copy that lacks a store is read: %v", err)
	}
	equal(t, "on disk", map[string]string{"a": "1"}, written(t, task, "d"))
	equal(t, "without changelog", map[string]string{"a": "1"}, written(t, task, "l"))
	equal(t, "in memory", map[string]string{}, written(t, task, "m"))
	held := s.Held()
	if len(held) != 2 || !held[0].Open || held[1].Open || held[1].Checkpoint.Sequence != 7 {
		t.Errorf("held: %+v", held)
	}
}

// TestTopologyChanges: a store that comes back, whose data has no position or that changes its kind, begins empty: what
// lay there cannot be brought up to date from the changelog.
func TestTopologyChanges(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	commits := 0
	reopen := func(specs ...store.Spec) *layered.Task {
		t.Helper()
		return openTask(t, s, task0, specs...)
	}
	end := func(task *layered.Task, names ...store.Name) {
		t.Helper()
		commits++
		task.Commit(checkpoint(commits, names...))
		if err := task.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	task := reopen(disk, plain)
	set(t, task, "d", "a", "1")
	set(t, task, "p", "a", "1")
	end(task, "d", "p")

	task = reopen(disk)
	equal(t, "kept", map[string]string{"a": "1"}, written(t, task, "d"))
	end(task, "d")

	task = reopen(disk, plain)
	if _, known := task.Checkpoint().Changelogs["p"]; known || !task.Checkpoint().Restoring {
		t.Errorf("a store that was away has a position: %+v", task.Checkpoint())
	}
	equal(t, "back", map[string]string{}, written(t, task, "p"))
	set(t, task, "p", "b", "2")
	end(task, "d") // the commit does not name the position of p

	task = reopen(disk, plain)
	equal(t, "without a position", map[string]string{}, written(t, task, "p"))
	end(task, "d", "p")

	changed := disk
	changed.Kind = store.KindKeyValue
	task = reopen(changed, plain)
	equal(t, "another kind", map[string]string{}, written(t, task, "d"))
	inMemory := changed
	inMemory.InMemory = true
	end(task, "d", "p")
	task = reopen(inMemory)
	equal(t, "now in memory", map[string]string{}, written(t, task, "d"))
	end(task, "d")
}

func TestLifeOfATask(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk, mem)
	if _, err := s.OpenTask(t.Context(), task0, []store.Spec{disk}); !errors.Is(err, store.ErrTaskOpen) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.DropTask(t.Context(), task0); !errors.Is(err, store.ErrTaskOpen) {
		t.Errorf("dropped while open: %v", err)
	}
	_, err := task.KeyValue("nope")
	if e, ok := errors.AsType[*store.UnknownStoreError](err); !ok || !slices.Equal(e.Known, []store.Name{"d", "m"}) {
		t.Errorf("unknown store: %v", err)
	}
	if _, err := task.Snapshot(); !errors.Is(err, store.ErrNotReady) {
		t.Errorf("a copy that has proved nothing is read: %v", err)
	}
	set(t, task, "d", "a", "1")
	set(t, task, "m", "a", "1")
	task.Commit(checkpoint(1, "d", "m"))
	recent, err := task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	moveNow(t, s, task)
	moved, err := task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	set(t, task, "d", "a", "2")
	if err := task.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, snap := range []*layered.Snapshot{recent, moved} {
		for _, name := range []store.Name{"d", "m"} {
			equal(t, "a snapshot after its task", map[string]string{"a": "1"}, pinned(t, snap, name))
		}
	}
	// Closed tasks answer nothing and change nothing.
	if _, err := task.Snapshot(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("snapshot of a closed task: %v", err)
	}
	if err := kv(t, task, "d").Put([]byte("a"), store.Value{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("put to a closed task: %v", err)
	}
	if _, err := kv(t, task, "d").Get([]byte("a")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get from a closed task: %v", err)
	}
	task.Commit(checkpoint(2, "d", "m"))

	task = openTask(t, s, task0, disk, mem)
	equal(t, "opened again", checkpoint(1, "d", "m"), task.Checkpoint())
	if err := task.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cp := task.Checkpoint(); cp.Sequence != 0 || len(cp.Changelogs) != 0 || !cp.Restoring {
		t.Errorf("wiped: %+v", cp)
	}
	for _, name := range []store.Name{"d", "m"} {
		equal(t, "wiped", map[string]string{}, written(t, task, name))
		equal(t, "a snapshot from before the wipe", map[string]string{"a": "1"}, pinned(t, moved, name))
	}
	set(t, task, "d", "b", "1")
	task.Commit(checkpoint(1, "d", "m"))
	equal(t, "after the wipe", map[string]string{"b": "1"}, committed(t, task, "d"))
	if err := errors.Join(task.Close(t.Context()), s.DropTask(t.Context(), task0)); err != nil {
		t.Fatal(err)
	}
	if held := s.Held(); len(held) != 0 {
		t.Errorf("dropped, but held: %+v", held)
	}
	task = openTask(t, s, task0, disk, mem)
	equal(t, "dropped", map[string]string{}, written(t, task, "d"))

	r, err := recent.KeyValue("d")
	if err != nil {
		t.Fatal(err)
	}
	recent.Close()
	recent.Close()
	if _, err := r.Get(t.Context(), []byte("a")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get after Close of the snapshot: %v", err)
	}
	if _, err := r.Scan(t.Context(), store.Scan{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("scan after Close of the snapshot: %v", err)
	}
	moved.Close()
}

// TestStoresClose: what is still open then ends with an error, not with an end of results.
func TestStoresClose(t *testing.T) {
	t.Parallel()
	s, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	task := openTask(t, s, task0, disk)
	for i := range 100 {
		set(t, task, "d", fmt.Sprint(i), "v")
	}
	task.Commit(checkpoint(1, "d"))
	moveNow(t, s, task)
	snap, err := task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	r, _ := snap.KeyValue("d")
	it, err := r.Scan(t.Context(), store.Scan{})
	if err != nil || !it.Next() {
		t.Fatal(err)
	}
	if err := s.Close(); !errors.Is(err, store.ErrTaskOpen) {
		t.Errorf("closed under an open task: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	for it.Next() {
	}
	if !errors.Is(it.Err(), store.ErrClosed) {
		t.Errorf("an iterator ends with %v", it.Err())
	}
	it.Close()
	if _, err := r.Get(t.Context(), []byte("1")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get: %v", err)
	}
	snap.Close()
	if _, err := s.OpenTask(t.Context(), task0, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("open: %v", err)
	}
	if n := s.OpenIterators() + s.OpenSnapshots(); n != 0 {
		t.Errorf("%d left open", n)
	}
}

// TestReopenRace is SE-09: a task that is given back and taken again at once waits for its own past.
func TestReopenRace(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	for i := range 50 {
		task := openTask(t, s, task0, disk)
		if got := int(task.Checkpoint().Sequence); got != i {
			t.Fatalf("SE-09 round %d: commit %d is there", i, got)
		}
		set(t, task, "d", "k", fmt.Sprint(i))
		task.Commit(checkpoint(i+1, "d"))
		var wg sync.WaitGroup
		wg.Go(func() { // a mover that may be in the middle when the task closes
			if err := layered.MoveNow(s, task); err != nil {
				t.Error(err)
			}
		})
		if err := task.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
	}
}

// TestCloseGivesUp is RB-12: a move that stalls holds up Close no longer than its context, and the copy cannot be opened
// before the stall has ended.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "k", "1")
	task.Commit(checkpoint(1, "d"))
	stalled := layered.StallMoves(task)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := task.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("RB-12: close: %v", err)
	}
	if _, err := s.OpenTask(ctx, task0, []store.Spec{disk}); !errors.Is(err, store.ErrTaskOpen) {
		t.Errorf("RB-12: opened while a move runs: %v", err)
	}
	layered.EndStall(s, stalled)
	equal(t, "RB-12: what was not moved", store.Sequence(0), openTask(t, s, task0, disk).Checkpoint().Sequence)
}

// TestReadersAndWriter runs everything at once; each snapshot must be a whole commit, and nobody may see time go back.
func TestReadersAndWriter(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir(), MoveInterval: time.Millisecond, MoveBytes: 300 << 10})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	task := openTask(t, s, task0, disk, mem)
	task.Commit(checkpoint(0, "d", "m"))
	stop := make(chan struct{})
	const keys = 300
	for range 3 {
		wg.Go(func() {
			last := 0
			for {
				select {
				case <-stop:
					return
				default:
				}
				snap, err := task.Snapshot()
				if err != nil {
					t.Error(err)
					return
				}
				n := int(snap.Checkpoint().Sequence)
				for _, name := range []store.Name{"d", "m"} {
					got := pinned(t, snap, name)
					r, _ := snap.KeyValue(name)
					v, err := r.Get(t.Context(), []byte("k007"))
					for k, v := range got {
						if v != fmt.Sprint(n) {
							t.Errorf("commit %d: %s has %q", n, k, v)
						}
					}
					if n < last || n > 0 && (len(got) != keys || err != nil || string(v.Data) != fmt.Sprint(n)) {
						t.Errorf("commit %d after %d: %d keys, %q, %v", n, last, len(got), v.Data, err)
					}
				}
				last = n
				snap.Close()
			}
		})
	}
	for n := 1; n <= 150; n++ {
		for i := range keys {
			set(t, task, "d", fmt.Sprintf("k%03d", i), fmt.Sprint(n))
			set(t, task, "m", fmt.Sprintf("k%03d", i), fmt.Sprint(n))
		}
		if n%10 == 5 {
			task.Rollback()
			n--
			if n%3 == 0 {
				n++
			} else {
				for i := range keys {
					set(t, task, "d", fmt.Sprintf("k%03d", i), fmt.Sprint(n+1))
					set(t, task, "m", fmt.Sprintf("k%03d", i), fmt.Sprint(n+1))
				}
				n++
			}
			if !task.Dirty() {
				continue
			}
		}
		task.Commit(checkpoint(n, "d", "m"))
	}
	close(stop)
	cancel()
	wg.Wait()
}

// TestLeak: an iterator that nobody closed is found.
func TestLeak(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "a", "1")
	task.Commit(checkpoint(1, "d"))
	snap, err := task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	func() {
		r, _ := snap.KeyValue("d")
		it, err := r.Scan(t.Context(), store.Scan{})
		if err != nil || !it.Next() {
			t.Fatal(err)
		}
	}()
	if n := s.OpenIterators(); n != 1 {
		t.Fatalf("%d iterators are open", n)
	}
	for deadline := time.Now().Add(20 * time.Second); s.OpenIterators() != 0 && time.Now().Before(deadline); {
		runtime.GC()
	}
	if n := layered.Leaks(s); n != 1 || s.OpenIterators() != 0 {
		t.Errorf("%d leaks found, %d iterators open", n, s.OpenIterators())
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	small := store.Spec{Name: "s", Kind: store.KindKeyValue, ChangelogConfig: map[string]string{"max.message.bytes": "2000"}}
	task := openTask(t, s, task0, disk, small, local)
	for _, c := range []struct {
		store   store.Name
		key     int
		value   int
		setting string // "": taken
	}{
		{"d", 10, 900_000, ""},
		{"d", 10, 1_000_000, "MaxRecordBytes"},
		{"d", 64_000, 10, ""},
		{"d", 65_000, 10, "the engine's format"},
		{"s", 10, 1400, ""},
		{"s", 10, 1500, "max.message.bytes of the changelog"},
		{"l", 10, 1_000_000, ""},
		{"l", 10, 1_100_000, "MemTableBytes"},
	} {
		err := kv(t, task, c.store).Put(make([]byte, c.key), store.Value{Data: make([]byte, c.value)})
		if c.setting == "" && err != nil {
			t.Errorf("%+v: %v", c, err)
		} else if e, ok := errors.AsType[*store.TooLargeError](err); c.setting != "" && (!ok || e.Setting != c.setting) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	task.Commit(checkpoint(1, "d", "s"))
	moveNow(t, s, task) // what was taken the engine takes
	if _, err := s.OpenTask(t.Context(), store.TaskID{Partition: 1}, []store.Spec{{
		Name: "bad", Kind: store.KindKeyValue, ChangelogConfig: map[string]string{"max.message.bytes": "lots"},
	}}); err == nil || !strings.Contains(err.Error(), "lots") {
		t.Errorf("a limit that is no number: %v", err)
	}
}

// TestMetrics: what an operator sees.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := openStores(t, layered.Config{Dir: t.TempDir(), Registerer: reg})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "a", "1")
	task.Commit(checkpoint(1, "d"))
	moveNow(t, s, task)
	moveNow(t, s, task) // nothing to do: nothing is written
	task.Commit(checkpoint(1, "d"))
	moveNow(t, s, task) // a commit that changes nothing is none
	got := make(map[string]float64)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "statemesh_record_cache_") {
			continue // TestCacheMetrics
		}
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	want := map[string]float64{
		"statemesh_store_moves_total": 1, "statemesh_store_moved_bytes_total": 10, "statemesh_store_move_duration_seconds": 1,
		"statemesh_store_open_tasks": 1, "statemesh_store_open_iterators": 0, "statemesh_store_open_snapshots": 0,
		"statemesh_store_undone_moves_total": 0, "statemesh_store_quarantined_directories_total": 0, "statemesh_store_leaks_total": 0,
		"statemesh_store_recent_bytes": 0, "statemesh_store_compactions_total": 0, "statemesh_store_oldest_iterator_seconds": 0,
		"statemesh_store_oldest_snapshot_seconds": 0, "statemesh_store_expired_reads_total": 0,
	}
	equal(t, "metrics", want, got)
	equal(t, "names", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
}
