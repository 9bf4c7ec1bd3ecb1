package layered_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestRun: a quiet store becomes durable after MoveInterval, a full one at once, both in one move when they are due
// together, and while nothing is committed nothing is written.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		s, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir(), Registerer: reg, MoveBytes: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		a, b := openTask(t, s, task0, disk), openTask(t, s, store.TaskID{Partition: 1}, disk)
		moves := func() (n float64) {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "statemesh_store_moves_total" {
					for _, m := range f.GetMetric() {
						n += m.GetCounter().GetValue()
					}
				}
			}
			return n
		}
		want := func(n float64, what string) {
			t.Helper()
			if got := moves(); got != n {
				t.Errorf("%s: %v moves, want %v", what, got, n)
			}
		}
		time.Sleep(time.Hour)
		want(0, "an idle hour")

		set(t, a, "d", "k", "1")
		a.Commit(checkpoint(1, "d"))
		time.Sleep(3 * time.Second)
		set(t, b, "d", "k", "1")
		b.Commit(checkpoint(1, "d"))
		want(0, "before it is due")
		time.Sleep(1900 * time.Millisecond)
		want(0, "just before it is due")
		time.Sleep(200 * time.Millisecond)
		want(1, "due")
		time.Sleep(5 * time.Second)
		want(2, "the other, which was too young to go with it")

		a.Commit(checkpoint(2, "d"))
		time.Sleep(time.Second)
		b.Commit(checkpoint(2, "d"))
		time.Sleep(4100 * time.Millisecond)
		want(3, "two that are due together")
		time.Sleep(time.Hour)
		want(3, "another idle hour")

		if err := a.Restore("d", manyChanges(3000)); err != nil {
			t.Fatal(err)
		}
		a.Commit(checkpoint(3, "d"))
		time.Sleep(10 * time.Millisecond)
		want(4, "a full one")

		b.Commit(checkpoint(3, "d"))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want(5, "the last before the end")
		for _, task := range []*layered.Task{a, b} {
			if err := task.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
		want(5, "nothing is left for Close")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func manyChanges(n int) []store.Change {
	out := make([]store.Change, n)
	for i := range out {
		out[i] = store.Change{Key: benchKey(nil, i), Value: make([]byte, 100), Timestamp: 1}
	}
	return out
}
