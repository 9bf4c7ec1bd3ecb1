package layered_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestReadsEndInTheMiddle: reads go on while the limit, which is very short, ends them: each ends with all of its rows or
// with an error.
func TestReadsEndInTheMiddle(t *testing.T) {
	t.Parallel()
	const rows = 2000
	s := openStores(t, layered.Config{Dir: t.TempDir(), IteratorMaxAge: 10 * time.Millisecond})
	task := openTask(t, s, task0, disk)
	for i := range rows {
		set(t, task, "d", fmt.Sprintf("%05d", i), "v")
	}
	task.Commit(checkpoint(1, "d"))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx) })
	whole, cut := 0, 0
	for cut < 20 || whole == 0 {
		snap, err := task.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		it := scan(t, t.Context(), snap)
		n := 0
		for it.Next() {
			n++
			for start := time.Now(); cut < 20 && n == rows/2 && time.Since(start) < 30*time.Millisecond; {
				runtime.Gosched()
			}
		}
		switch {
		case it.Err() == nil && n == rows:
			whole++
		case errors.Is(it.Err(), store.ErrOpenTooLong):
			cut++
		default:
			t.Fatalf("%d rows of %d, %v", n, rows, it.Err())
		}
		it.Close()
		snap.Close()
	}
	cancel()
	wg.Wait()
	if n, m := s.OpenSnapshots(), s.OpenIterators(); n != 0 || m != 0 {
		t.Errorf("at the end: %d snapshots, %d iterators", n, m)
	}
}

// TestOpenSnapshotsCounts: a snapshot counts from its opening to its first Close, whether it is the application's own or not, and
// whoever closes it.
func TestOpenSnapshotsCounts(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk)
	task.Commit(checkpoint(1, "d"))
	open := make([]*layered.Snapshot, 20)
	for i := range open {
		snap, err := task.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if open[i] = snap; i%2 == 0 {
			snap.Keep()
			snap.Keep()
		}
	}
	if n := s.OpenSnapshots(); n != int64(len(open)) {
		t.Errorf("%d open, want %d", n, len(open))
	}
	for i, snap := range open {
		var wg sync.WaitGroup
		wg.Go(snap.Keep)
		wg.Go(snap.Close)
		wg.Go(snap.Close)
		wg.Wait()
		if n := s.OpenSnapshots(); n != int64(len(open)-i-1) {
			t.Fatalf("%d open, want %d", n, len(open)-i-1)
		}
	}
}

// TestSnapshotIsSmall: a query allocates one, and more than this is the next size class.
func TestSnapshotIsSmall(t *testing.T) {
	t.Parallel()
	if layered.SnapshotBytes > 128 {
		t.Errorf("%d bytes", layered.SnapshotBytes)
	}
}
