package restore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

var _ Task = (*layered.Task)(nil)

// TestRestoreIntoLayeredStores: the stores there are, on disk and in memory: an interrupted restore, a restart of the
// instance, the rest. After a restart the store on disk goes on where it was, the one in memory begins again.
func TestRestoreIntoLayeredStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := writeLong(w, changelogTopic, 0, 1000)
		w.transaction("x", kgo.TryCommit, otherTopic, 0, kv{"s", "1", 7})
		w.commitOffset(0, 9, commitmeta.Meta{Sequence: 3, StreamTime: 30})
		dir := t.TempDir()
		id := store.TaskID{}
		specs := []store.Spec{
			{Name: countsStore, Kind: store.KindTimestampedKeyValue}, {Name: seenStore, Kind: store.KindKeyValue, InMemory: true},
		}
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes, c.CommitBytes = 4096, 4096, 1024 })
		run := func(use func(task *layered.Task)) {
			stores, err := layered.Open(t.Context(), layered.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				_ = stores.Run(ctx)
			}()
			defer func() {
				cancel()
				<-moved
				if err := stores.Close(); err != nil {
					t.Error(err)
				}
			}()
			task, err := stores.OpenTask(t.Context(), id, specs)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := task.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			use(task)
		}
		run(func(task *layered.Task) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := r.Restore(ctx, w.request(&cutting{Task: task, left: 500, cancel: cancel})); !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted: %v", err)
			}
			if _, err := task.Snapshot(); !errors.Is(err, store.ErrNotReady) {
				t.Errorf("snapshot of a half restored task: %v", err)
			}
		})
		run(func(task *layered.Task) {
			before := task.Checkpoint()
			at := before.Changelogs[countsStore].Next
			if _, ok := before.Changelogs[seenStore]; ok || !before.Restoring || at < 400 || at >= 1000 {
				t.Errorf("checkpoint after the restart: %+v", before)
			}
			res, err := r.Restore(t.Context(), w.request(task))
			if err != nil {
				t.Fatal(err)
			}
			if res.Records != int64(1000-at)+1 || res.Sequence != 3 || res.Rebuilt != "" {
				t.Errorf("result %+v, want the %d records left", res, 1000-at+1)
			}
			snap, err := task.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Close()
			if have := scan(t, snap, countsStore); !slices.Equal(have, want) {
				t.Errorf("%d entries, want %d", len(have), len(want))
			}
			if have := scan(t, snap, seenStore); !slices.Equal(have, []string{"s=1@-1"}) {
				t.Errorf("in memory: %v", have)
			}
		})
		// CR-19: a clean stop leaves nothing to replay but what only was in memory.
		run(func(task *layered.Task) {
			res, err := r.Restore(t.Context(), w.request(task))
			if err != nil || res.Records != 1 || res.Rebuilt != "" {
				t.Errorf("after a clean stop: %+v, %v", res, err)
			}
		})
	})
}

// cutting interrupts a restore after some records.
type cutting struct {
	Task
	left   int
	cancel context.CancelFunc
}

func (c *cutting) Restore(name store.Name, batch []store.Change) error {
	if name == countsStore {
		if c.left -= len(batch); c.left <= 0 {
			c.cancel()
		}
	}
	return c.Task.Restore(name, batch)
}

// scan renders a store as memoryTask.content does.
func scan(t *testing.T, snap *layered.Snapshot, name store.Name) (out []string) {
	t.Helper()
	kv, err := snap.KeyValue(name)
	if err != nil {
		t.Fatal(err)
	}
	it, err := kv.Scan(t.Context(), store.Scan{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.Next() {
		out = append(out, render(it.Entry()))
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
