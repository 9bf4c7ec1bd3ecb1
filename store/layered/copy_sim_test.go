package layered_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/layered"
)

// TestCopyLeftOpen: a copy that is read for longer than a snapshot may be open ends with an error that says so, and lets go
// of what it held; one that asks for it is exempt.
func TestCopyLeftOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged safeBuffer
		s, err := layered.Open(t.Context(), layered.Config{
			Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		task := openTask(t, s, task0, disk)
		set(t, task, "d", "a", "1", "b", "2")
		task.Commit(checkpoint(1, "d"))
		slow, kept := snapshot(t, task), snapshot(t, task)
		slow.For("a slow peer")
		kept.Keep()
		read := func(snap *layered.Snapshot, after store.CopyPlace) (*layered.Copy, []store.CopyRow, bool, error) {
			c, err := snap.Copy()
			if err != nil {
				return nil, nil, false, err
			}
			rows, done, err := c.Read(t.Context(), after, 1)
			return c, rows, done, err
		}
		c, rows, done, err := read(slow, store.CopyPlace{})
		if err != nil || len(rows) != 1 || done {
			t.Fatal(rows, done, err)
		}
		after := rows[0].Place().Clone()
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if _, _, err := c.Read(t.Context(), after, 1); !errors.Is(err, store.ErrOpenTooLong) {
			t.Errorf("a copy that took too long: %v", err)
		}
		if _, _, _, err := read(slow, after); !errors.Is(err, store.ErrOpenTooLong) {
			t.Errorf("another of the same snapshot: %v", err)
		}
		if n := s.OpenSnapshots(); n != 1 || !strings.Contains(logged.String(), `user="a slow peer"`) {
			t.Errorf("%d snapshots open, log: %s", n, &logged)
		}
		if _, rows, done, err := read(kept, after); err != nil || len(rows) != 1 || !bytes.Equal(rows[0].Key, []byte("b")) {
			t.Error(rows, done, err)
		}
		slow.Close()
		kept.Close()
		cancel()
		if err := errors.Join(<-ended, task.Close(context.WithoutCancel(ctx)), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestCopyOfExpired: a copy whose segments expire and are given back while it is open ends with an error, and never
// without the rows that were in them.
func TestCopyOfExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		spec := store.Spec{Name: "w", Kind: store.KindWindow, WindowSize: time.Second, Retention: 10 * time.Second, SegmentInterval: time.Second}
		s := openStores(t, layered.Config{Dir: t.TempDir(), DropWait: time.Second})
		task := openTask(t, s, task0, spec)
		w, err := task.Window("w")
		if err != nil {
			t.Fatal(err)
		}
		for n, at := range []int64{1000, 2000, 60_000} {
			if err := w.Put([]byte("a"), at, store.Value{Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			task.Commit(checkpoint(n+1, "w"))
			moveNow(t, s, task)
			if n != 1 {
				continue
			}
			snap := snapshot(t, task)
			defer snap.Close()
			defer func() {
				c, err := snap.Copy()
				if err != nil {
					t.Fatal(err)
				}
				if rows, done, err := c.Read(t.Context(), store.CopyPlace{}, 1<<20); !errors.Is(err, engine.ErrDropped) {
					t.Errorf("what has expired since: %d rows, %t, %v", len(rows), done, err)
				}
			}()
		}
		layered.ReclaimNow(t, s)
		time.Sleep(2 * time.Second)
		layered.ReclaimNow(t, s)
	})
}
