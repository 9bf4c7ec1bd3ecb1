package processor

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

func TestPinFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes, rate int64
		want        time.Duration
	}{
		{0, 0, pinFloor},
		{0, 1, pinFloor},
		{100 * pinSlowest, 0, pinFloor + 100*time.Second},
		{100 * pinSlowest, 1 << 40, pinFloor + 100*time.Second},
		{100 << 20, 4 << 20, pinFloor + 100*time.Second}, // a MiB a second
		{1 << 20, 1, pinMost},
		{math.MaxInt64, 0, pinMost},
		{math.MaxInt64, 1, pinMost},
	} {
		if have := pinFor(c.bytes, c.rate); have != c.want {
			t.Errorf("%d bytes at %d a second: %s, want %s", c.bytes, c.rate, have, c.want)
		}
	}
}

// TestSimSnapshotExpires: no receiver has a copy pinned for longer than its size is worth, whether it reads slowly, comes back again
// and again, or does nothing at all.
func TestSimSnapshotExpires(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		tr := truth{}
		a := f.start("a")
		f.produce(tr, rng, 100, 50)
		f.waitCaughtUp(time.Minute)
		began := time.Now()
		idle, err := a.rt.OpenCopy(t.Context(), store.CopyRequest{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		first, err := a.rt.OpenCopy(t.Context(), store.CopyRequest{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		mark := &store.CopyMark{ID: first.ID()}
		first.Close()
		for err == nil {
			var c store.Copy
			if c, err = a.rt.OpenCopy(t.Context(), store.CopyRequest{After: mark}, 0); err != nil {
				break
			}
			_, _, err = c.Read(t.Context(), store.CopyPlace{}, 1)
			c.Close()
			time.Sleep(time.Duration(rng.Int64N(int64(keepCut))))
		}
		took := time.Since(began)
		if !errors.Is(err, store.ErrClosed) || took < pinFloor-keepCut || took > pinFloor+keepCut {
			t.Errorf("who comes back got %v after %s", err, took)
		}
		time.Sleep(pinFloor - time.Since(began) + 2*donorInterval)
		_, _, err = idle.Read(t.Context(), store.CopyPlace{}, 1)
		if e, ok := errors.AsType[*store.CopyExpiredError](err); !ok || e.After != pinFloor || !errors.Is(err, store.ErrOpenTooLong) {
			t.Errorf("who is late got %v", err)
		}
		if n := a.stores.OpenSnapshots(); n != 1 {
			t.Errorf("%d snapshots are open beside the one in use", n-1)
		}
		idle.Close()
		if n := a.stores.OpenSnapshots(); n != 0 {
			t.Errorf("%d snapshots are left", n)
		}
	})
}

// TestSimSnapshotTooSlow: a receiver that is sent a copy too slowly reads the changelog in the end.
func TestSimSnapshotTooSlow(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.withStandbys(1)
		n := newCopyNet(f)
		n.slow = 20 * time.Second
		tr := truth{}
		a := n.start("a")
		n.grow(tr, rng)
		b := n.start("b")
		f.eventually("copies", 20*time.Minute, func() error { return follows(1, 1, a, b) })
		if b.asked("expired") != 1 || b.asked("taken") != 0 {
			t.Errorf("%d copies expired and %d were taken, want one that expired", b.asked("expired"), b.asked("taken"))
		}
		if k := a.stores.OpenSnapshots(); k != 0 {
			t.Errorf("%d snapshots are open", k)
		}
		f.waitCaughtUp(time.Minute)
		f.check(tr, a, b)
	})
}
