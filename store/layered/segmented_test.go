package layered_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// everywhere runs a suite over both engines, with all in the recent layer, all in the engine, or in both.
func everywhere(t *testing.T, run func(t *testing.T, inMemory bool, m moving)) {
	t.Helper()
	for name, inMemory := range map[string]bool{"badger": false, "memory": true} {
		for when, m := range map[string]moving{"recent": never, "engine": atOnce, "mixed": sometimes} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				run(t, inMemory, m)
			})
		}
	}
}

func TestWindow(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, inMemory bool, m moving) {
		t.Helper()
		storetest.Window(t, func(t *testing.T, spec store.Spec) storetest.WindowSubject {
			spec.InMemory = inMemory
			o := openSegmented(t, spec, m)
			w, err := o.task.Window("s")
			if err != nil {
				t.Fatal(err)
			}
			var last *layered.Snapshot
			return storetest.WindowSubject{
				Writer: w, Commit: o.commit, Expired: o.expired, OpenIterators: o.stores.OpenIterators,
				Close: func() { last.Close() },
				Reader: func() store.WindowReader {
					last = o.snapshot(t)
					r, err := last.Windows("s")
					if err != nil {
						t.Fatal(err)
					}
					return r
				},
			}
		})
	})
}

func TestSession(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, inMemory bool, m moving) {
		t.Helper()
		storetest.Session(t, func(t *testing.T, spec store.Spec) storetest.SessionSubject {
			spec.InMemory = inMemory
			o := openSegmented(t, spec, m)
			w, err := o.task.Session("s")
			if err != nil {
				t.Fatal(err)
			}
			return storetest.SessionSubject{
				Writer: w, Commit: o.commit, Expired: o.expired, OpenIterators: o.stores.OpenIterators,
				Reader: func() store.SessionReader {
					r, err := o.snapshot(t).Sessions("s")
					if err != nil {
						t.Fatal(err)
					}
					return r
				},
			}
		})
	})
}

// opened is a store of a task of its own.
type opened struct {
	stores  *layered.Stores
	task    *layered.Task
	commit  func()
	expired func() int
}

func openSegmented(t *testing.T, spec store.Spec, m moving) opened {
	t.Helper()
	spec.Name = "s"
	reg := prometheus.NewRegistry()
	s := openStores(t, layered.Config{Dir: t.TempDir(), Registerer: reg})
	task := openTask(t, s, task0, spec)
	commits := 0
	commit := func() {
		commits++
		task.Commit(checkpoint(commits, "s"))
		if m == atOnce || m == sometimes && commits%3 == 1 {
			moveNow(t, s, task)
		}
	}
	commit() // readers want a copy that is not restoring
	return opened{s, task, commit, func() int { return expired(t, reg) }}
}

func (o opened) snapshot(t *testing.T) *layered.Snapshot {
	t.Helper()
	snap, err := o.task.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Close)
	return snap
}

// expired is how many writes were dropped.
func expired(tb testing.TB, reg prometheus.Gatherer) int {
	tb.Helper()
	families, err := reg.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() == "statemesh_store_expired_records_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}
