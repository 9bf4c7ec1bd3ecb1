package layered_test

import (
	"context"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// moving says when commits move to the engine: never, so that reads come from the recent layer; at once, so that they
// come from the engine; or now and then, so that every layer has a part.
type moving int

const (
	never moving = iota
	atOnce
	sometimes
)

func TestKeyValue(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]store.Spec{"badger": {}, "memory": {InMemory: true}} {
		for when, m := range map[string]moving{"recent": never, "engine": atOnce, "mixed": sometimes} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				storetest.KeyValue(t, func(t *testing.T, kind store.Kind) storetest.Subject {
					spec := spec
					spec.Kind = kind
					return open(t, spec, m)
				})
			})
		}
	}
}

// open opens a store of a task of its own.
func open(t *testing.T, spec store.Spec, m moving) storetest.Subject {
	t.Helper()
	spec.Name = "s"
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task, err := s.OpenTask(t.Context(), store.TaskID{}, []store.Spec{spec})
	if err != nil {
		t.Fatal(err)
	}
	kv, err := task.KeyValue("s")
	if err != nil {
		t.Fatal(err)
	}
	commits := 0
	commit := func() {
		commits++
		task.Commit(checkpoint(commits, "s"))
		if m == atOnce || m == sometimes && commits%3 == 1 {
			if err := layered.MoveNow(s, task); err != nil {
				t.Fatal(err)
			}
		}
	}
	commit() // readers want a copy that is not restoring
	return storetest.Subject{
		Writer: kv,
		Commit: commit,
		Reader: func() store.KeyValueReader {
			snap, err := task.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(snap.Close)
			r, err := snap.KeyValue("s")
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		OpenIterators: s.OpenIterators,
	}
}

// openStores opens Stores that end with the test.
func openStores(tb testing.TB, cfg layered.Config) *layered.Stores {
	tb.Helper()
	s, err := layered.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, task := range layered.OpenTasks(s) {
			if err := task.Close(context.WithoutCancel(tb.Context())); err != nil {
				tb.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
		if n := s.OpenIterators(); n != 0 {
			tb.Errorf("%d iterators left open", n)
		}
	})
	return s
}

// checkpoint is that of the n-th commit; each store's changelog grows by ten with it.
func checkpoint(n int, stores ...store.Name) store.Checkpoint {
	cp := store.Checkpoint{
		Sequence: store.Sequence(n), StreamTime: int64(n),
		Changelogs: make(map[store.Name]store.LogPosition),
		Inputs:     map[store.TopicPartition]store.Offset{{Topic: "in"}: store.Offset(n)},
		Position:   store.Position{"in": {0: store.Offset(n - 1)}},
	}
	for _, name := range stores {
		cp.Changelogs[name] = store.LogPosition{TopicID: [16]byte{1}, LeaderEpoch: 3, Next: store.Offset(10 * n)}
	}
	return cp
}
