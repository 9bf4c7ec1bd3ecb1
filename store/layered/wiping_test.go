package layered_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/layered"
)

var errBroken = fmt.Errorf("database: write: %w", syscall.EIO)

// refusing is an engine that refuses some of its operations.
type refusing struct {
	engine.Engine
	what atomic.Pointer[string] // the operation; "writes" are all but Snapshot
}

func (r *refusing) Open(ctx context.Context, task store.TaskID, stores []engine.Declared) (engine.Space, error) {
	if err := r.check("open"); err != nil {
		return engine.Space{}, err
	}
	return r.Engine.Open(ctx, task, stores)
}

func (r *refusing) Move(ctx context.Context, moves ...engine.Move) error {
	if err := r.check("move"); err != nil {
		return err
	}
	return r.Engine.Move(ctx, moves...)
}

func (r *refusing) Drop(ctx context.Context, id engine.SpaceID) error {
	if err := r.check("drop"); err != nil {
		return err
	}
	return r.Engine.Drop(ctx, id)
}

func (r *refusing) Snapshot(id engine.SpaceID) (engine.Snapshot, error) {
	if err := r.check("snapshot"); err != nil {
		return nil, err
	}
	return r.Engine.Snapshot(id)
}

func (r *refusing) refuse(what string) { r.what.Store(&what) }

func (r *refusing) check(op string) error {
	if what := r.what.Load(); what != nil && (*what == op || *what == "writes" && op != "snapshot") {
		return fmt.Errorf("%s: %w", op, errBroken)
	}
	return nil
}

// openRefusing opens stores whose only database refuses what it is told to.
func openRefusing(tb testing.TB) (*layered.Stores, *refusing) {
	tb.Helper()
	r := &refusing{}
	s := openStores(tb, layered.Config{Dir: tb.TempDir(), Between: func(e engine.Engine) engine.Engine {
		r.Engine = e
		return r
	}})
	return s, r
}

// unfinished: a copy that is being wiped or loaded answers nobody, takes nothing, claims nothing, and nothing of it moves.
func unfinished(tb testing.TB, s *layered.Stores, task *layered.Task, name store.Name) {
	tb.Helper()
	if !task.Unfinished() {
		tb.Error("the task is said to be a copy")
	}
	if cp := task.Checkpoint(); !cp.Restoring || len(cp.Changelogs)+len(cp.Inputs) > 0 || cp.Sequence != 0 {
		tb.Errorf("checkpoint %+v", cp)
	}
	task.Commit(checkpoint(99, name))
	for _, h := range s.Held() {
		if h.ID == task.ID() && (!h.Checkpoint.Restoring || len(h.Checkpoint.Changelogs) > 0) {
			tb.Errorf("held as %+v", h.Checkpoint)
		}
	}
	_, whole := task.Snapshot()
	_, partial := task.SnapshotPartial()
	_, uncommitted := task.SnapshotUncommitted(tb.Context(), nil)
	_, get := kv(tb, task, name).Get([]byte("a"))
	put := kv(tb, task, name).Put([]byte("a"), store.Value{Data: []byte("2")})
	restored := task.Restore(name, []store.Change{{Key: []byte("a"), Value: []byte("2")}})
	for what, err := range map[string]error{
		"snapshot": whole, "partial snapshot": partial, "uncommitted snapshot": uncommitted, "get": get, "put": put, "restore": restored,
	} {
		if e, ok := errors.AsType[*store.NotReadyError](err); !ok || e.Reason != "a copy is being loaded" {
			tb.Errorf("%s: %v", what, err)
		}
	}
	if err := layered.MoveNow(s, task); err != nil {
		tb.Errorf("move: %v", err)
	}
}

// TestWipeThatFails: a wipe that stops anywhere leaves what is no copy, until another one succeeds or the task is closed. What it held
// comes back neither in part nor under an old position.
func TestWipeThatFails(t *testing.T) {
	t.Parallel()
	window := store.Spec{
		Name: "w", Kind: store.KindWindow, WindowSize: time.Second, Retention: 10 * time.Second, SegmentInterval: time.Second,
	}
	for _, op := range []string{"drop", "open", "snapshot"} {
		for _, end := range []string{"wipe", "load", "close"} {
			t.Run(op+", then "+end, func(t *testing.T) {
				t.Parallel()
				s, eng := openRefusing(t)
				specs := []store.Spec{disk, mem, window}
				task := openTask(t, s, task0, specs...)
				former := checkpoint(1, "d", "m", "w")
				windows, err := task.Window("w")
				if err != nil {
					t.Fatal(err)
				}
				set(t, task, "d", "a", "1")
				if err := windows.Put([]byte("a"), 20_000, store.Value{Data: []byte("1")}); err != nil {
					t.Fatal(err)
				}
				task.Commit(former)
				moveNow(t, s, task)
				set(t, task, "d", "b", "1") // recent, and on its way to the engine
				task.Commit(checkpoint(2, "d", "m", "w"))

				eng.refuse(op)
				h := copyHeader(specs, 20_000)
				h.Checkpoint.StoreTimes = map[store.Name]int64{"w": 20_000}
				if end == "load" {
					_, err = task.Load(t.Context(), h, time.Now())
				} else {
					err = task.Wipe(t.Context())
				}
				if !errors.Is(err, syscall.EIO) {
					t.Fatalf("%v, want what the disk said", err)
				}
				unfinished(t, s, task, "d")
				eng.refuse("nothing")
				unfinished(t, s, task, "d")
				switch end {
				case "wipe":
					if err := task.Wipe(t.Context()); err != nil {
						t.Fatal(err)
					}
				case "load":
					l, err := task.Load(t.Context(), h, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					unfinished(t, s, task, "d")
					if err := l.Finish(t.Context()); err != nil {
						t.Fatal(err)
					}
					if cp := task.Checkpoint(); task.Unfinished() || cp.Sequence != 7 {
						t.Errorf("a copy that was loaded: %+v", cp)
					}
					snapshot(t, task).Close()
					return
				case "close":
					if err := task.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					task = openTask(t, s, task0, specs...)
					if op == "drop" { // nothing was dropped: it is the copy of before, as far as it had moved
						if cp := task.Checkpoint(); cp.Changelogs["d"] != former.Changelogs["d"] {
							t.Errorf("the copy of before: %+v", cp)
						}
						return
					}
				}
				wiped(t, task, specs)
				set(t, task, "d", "c", "1")
				task.Commit(checkpoint(3, "d", "m", "w"))
				moveNow(t, s, task)
				snap := snapshot(t, task)
				defer snap.Close()
				if got := pinned(t, snap, "d"); len(got) != 1 || got["c"] != "1" {
					t.Errorf("after it: %v", got)
				}
			})
		}
	}
}

// TestLoadOnABrokenDisk: a load whose rows cannot be written, and whose half cannot be dropped either, is over and leaves what is no
// copy.
func TestLoadOnABrokenDisk(t *testing.T) {
	t.Parallel()
	s, eng := openRefusing(t)
	layered.LoadBytes(s, 1)
	specs := copySpecs(false)
	task := openTask(t, s, task0, specs...)
	h := copyHeader(specs, 20_000)
	l, err := task.Load(t.Context(), h, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Add(t.Context(), goodRows()[:4]); err != nil {
		t.Fatal(err)
	}
	eng.refuse("writes")
	if err := l.Add(t.Context(), goodRows()[4:]); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	unfinished(t, s, task, "k")
	if err := l.Abandon(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("abandoned: %v", err)
	}
	if err := errors.Join(l.Add(t.Context(), goodRows()[4:]), l.Finish(t.Context())); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a load that is over goes on: %v", err)
	}
	unfinished(t, s, task, "k")
	eng.refuse("nothing")
	if err := l.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	wiped(t, task, specs)

	// Nor does one go on that was given up in vain.
	if l, err = task.Load(t.Context(), h, time.Now()); err != nil {
		t.Fatal(err)
	}
	eng.refuse("drop")
	if err := l.Abandon(t.Context()); !errors.Is(err, syscall.EIO) {
		t.Errorf("abandoned: %v", err)
	}
	eng.refuse("nothing")
	if err := errors.Join(l.Add(t.Context(), goodRows()), l.Finish(t.Context())); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a load that was given up goes on: %v", err)
	}
	unfinished(t, s, task, "k")
	load(t, task, h, goodRows())
	snapshot(t, task).Close()
}
