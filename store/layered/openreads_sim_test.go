package layered_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestReadsLeftOpen: an iterator and a snapshot that a query forgets are closed after the limit, and reported with who
// opened them; those that are in time, and the writer's, are not.
func TestReadsLeftOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged safeBuffer
		reg := prometheus.NewRegistry()
		s, err := layered.Open(t.Context(), layered.Config{
			Dir: t.TempDir(), Registerer: reg, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError})),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		task := openTask(t, s, task0, disk)
		for _, k := range []string{"a", "b", "c"} {
			set(t, task, "d", k, "1")
		}
		task.Commit(checkpoint(1, "d"))

		user := store.WithUser(t.Context(), "a test")
		forgotten, err := task.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		forgotten.For("a test too")
		it := scan(t, user, forgotten)
		w := kv(t, task, "d")
		own, err := w.Scan(store.Scan{})
		if err != nil || !own.Next() {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Minute)
		late, err := task.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		lateIt := scan(t, user, late)
		if age := gauge(t, reg, "statemesh_store_oldest_iterator_seconds"); age < 200 || age > 240 {
			t.Errorf("oldest iterator: %v s, it has been open for 240", age)
		}
		synctest.Wait()
		if logged.String() != "" || s.OpenSnapshots() != 2 || s.OpenIterators() != 3 {
			t.Fatalf("before the limit: %d snapshots, %d iterators, log: %s", s.OpenSnapshots(), s.OpenIterators(), &logged)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		if n, m := s.OpenSnapshots(), s.OpenIterators(); n != 1 || m != 2 {
			t.Errorf("after the limit: %d snapshots, %d iterators, want 1 and 2", n, m)
		}
		if it.Next() || !errors.Is(it.Err(), store.ErrOpenTooLong) || !errors.Is(it.Err(), store.ErrClosed) {
			t.Errorf("the iterator ends with %v", it.Err())
		}
		it.Close()
		if _, err := reader(t, forgotten).Get(t.Context(), []byte("a")); !errors.Is(err, store.ErrOpenTooLong) {
			t.Errorf("get: %v", err)
		}
		forgotten.Close()
		for _, want := range []string{"what=iterator", "what=snapshot", `user="a test"`, `user="a test too"`, "store=d"} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("the report lacks %s:\n%s", want, &logged)
			}
		}
		if n := gauge(t, reg, "statemesh_store_expired_reads_total"); n != 2 {
			t.Errorf("%v reads counted, want 2", n)
		}
		if rows := collect(t, lateIt); len(rows) != 3 || lateIt.Err() != nil {
			t.Errorf("a scan within the limit: %v, %v", rows, lateIt.Err())
		}
		late.Close()
		if rows := collect(t, own); len(rows) != 2 || own.Err() != nil {
			t.Errorf("the writer's iterator: %v, %v", rows, own.Err())
		}
		if n, m := s.OpenSnapshots(), s.OpenIterators(); n != 0 || m != 0 {
			t.Errorf("at the end: %d snapshots, %d iterators", n, m)
		}
		cancel()
		if err := errors.Join(<-ended, task.Close(context.WithoutCancel(ctx)), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestReadOfEndedRequest: an iterator whose context has ended is closed although nobody asks it for more.
func TestReadOfEndedRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		task := openTask(t, s, task0, disk)
		set(t, task, "d", "a", "1")
		task.Commit(checkpoint(1, "d"))
		snap, err := task.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		request, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		it := scan(t, request, snap)
		time.Sleep(70 * time.Second)
		if n := s.OpenIterators(); n != 0 {
			t.Errorf("%d iterators are open, long after their request has ended", n)
		}
		if it.Next() || !errors.Is(it.Err(), context.DeadlineExceeded) {
			t.Errorf("it ends with %v", it.Err())
		}
		it.Close()
		snap.Close()
		cancel()
		if err := errors.Join(<-ended, task.Close(context.WithoutCancel(ctx)), s.Close()); err != nil {
			t.Error(err)
		}
	})
}

// safeBuffer is a buffer that several goroutines write to and read.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func reader(t *testing.T, snap *layered.Snapshot) store.KeyValueReader {
	t.Helper()
	r, err := snap.KeyValue("d")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func scan(t *testing.T, ctx context.Context, snap *layered.Snapshot) store.Iterator { //nolint:revive // t comes first in tests
	t.Helper()
	it, err := reader(t, snap).Scan(ctx, store.Scan{})
	if err != nil {
		t.Fatal(err)
	}
	return it
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
