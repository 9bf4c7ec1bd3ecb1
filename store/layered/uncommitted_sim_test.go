package layered_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestUncommittedFirst: the first reader after a while waits for the end of the batch in hand and wakes a writer that
// rests; a writer that nobody reads shows nothing; one whose batch takes long is not ready.
func TestUncommittedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		task := openTask(t, s, task0, disk)
		task.Commit(checkpoint(1, "d"))
		set(t, task, "d", "a", "1")
		task.Show(at(1)) // nobody asked
		set(t, task, "d", "a", "2")
		if _, err := task.SnapshotUncommitted(t.Context(), nil); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("a batch that does not end: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := task.SnapshotUncommitted(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		woken := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			<-woken
			task.Show(at(2))
		})
		snap, err := task.SnapshotUncommitted(t.Context(), func() { close(woken) })
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		equal(t, "shown", map[string]string{"a": "2"}, pinned(t, snap, "d"))
		snap.Close()

		time.Sleep(10 * time.Second) // nobody asks any more
		set(t, task, "d", "a", "3")
		task.Show(at(3))
		if _, err := task.SnapshotUncommitted(t.Context(), nil); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("an old view was given for the last batch: %v", err)
		}
		task.Show(at(3))
		snap, err = task.SnapshotUncommitted(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "shown again", map[string]string{"a": "3"}, pinned(t, snap, "d"))
		snap.Close()
		set(t, task, "d", "a", "4")
		task.Commit(checkpoint(2, "d"))
		snap, err = task.SnapshotUncommitted(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "a commit shows everything", map[string]string{"a": "4"}, pinned(t, snap, "d"))
		snap.Close()
		if err := errors.Join(task.Close(t.Context()), s.Close()); err != nil {
			t.Error(err)
		}
		if _, err := task.SnapshotUncommitted(t.Context(), nil); !errors.Is(err, store.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
