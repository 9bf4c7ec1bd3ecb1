package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

var aLane = laneKey{endpoint: "peer:1", store: "s"}

func (l *lanes) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.m) == 0
}

// answerAll answers each rider with its key.
func answerAll(batch []*rider) {
	for _, r := range batch {
		r.value.Data, r.found = r.key, true
	}
}

// TestLaneSharesCalls: the first ones go alone, at once; who comes meanwhile goes together.
func TestLaneSharesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		var mu sync.Mutex
		var sizes []int
		var wg sync.WaitGroup
		const riders = 50
		for i := range riders {
			wg.Go(func() {
				r := &rider{item: item{key: fmt.Appendf(nil, "key-%d", i)}}
				err := l.ride(t.Context(), aLane, r, func(_ context.Context, batch []*rider) error {
					mu.Lock()
					sizes = append(sizes, len(batch))
					mu.Unlock()
					<-time.After(time.Millisecond)
					answerAll(batch)
					return nil
				})
				if err != nil || string(r.value.Data) != string(r.key) {
					t.Errorf("%s: %s, %v", r.key, r.value.Data, err)
				}
			})
		}
		wg.Wait()
		if len(sizes) != 3 || sizes[0] != 1 || sizes[1] != 1 || sizes[2] != riders-2 {
			t.Errorf("batches of %v, want 1, 1 and the rest", sizes)
		}
		if !l.empty() {
			t.Error("a lane is left")
		}
	})
}

// TestLaneBoundsBatches: neither too many keys nor too many bytes travel together, and a key above the bound goes alone.
func TestLaneBoundsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lanes{most: 100}
		var largest, heaviest atomic.Int64
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				r := &rider{item: item{key: make([]byte, 1+i)}}
				if i == 1999 {
					r.key = make([]byte, laneBytes+1)
				}
				_ = l.ride(t.Context(), aLane, r, func(_ context.Context, batch []*rider) error {
					n, bytes := int64(len(batch)), int64(0)
					for _, o := range batch {
						bytes += int64(len(o.key))
					}
					largest.Store(max(largest.Load(), n))
					if n > 1 {
						heaviest.Store(max(heaviest.Load(), bytes))
					}
					<-time.After(time.Millisecond)
					answerAll(batch)
					return nil
				})
				if !r.found {
					t.Errorf("rider %d has no answer", i)
				}
			})
		}
		wg.Wait()
		if largest.Load() > 100 || largest.Load() < 2 || heaviest.Load() > laneBytes {
			t.Errorf("a batch of %d keys, one of %d bytes", largest.Load(), heaviest.Load())
		}
	})
}

// TestLaneErrors: an error of the peer is everybody's; any other may be due to one of them, so that each asks alone, the
// carrier too: a batch that is too large, or of which one partition is elsewhere, must not fail a lookup that is neither.
func TestLaneErrors(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct{ failure, rider error }{
		{fmt.Errorf("%w: gone", wire.ErrUnreachable), wire.ErrUnreachable},
		{store.ErrShuttingDown, store.ErrShuttingDown},
		{&store.OverloadedError{Limit: "x"}, store.ErrOverloaded},
		{&store.MovedError{Partition: 3}, errRide},
		{&store.TooLargeError{What: "batch"}, errRide},
		{other, errRide},
	} {
		synctest.Test(t, func(t *testing.T) {
			var l lanes
			var wg sync.WaitGroup
			var told atomic.Int64
			for range 20 {
				wg.Go(func() {
					r := &rider{item: item{key: []byte("k")}}
					err := l.ride(t.Context(), aLane, r, func(_ context.Context, batch []*rider) error {
						<-time.After(time.Millisecond)
						if len(batch) == 1 {
							return nil
						}
						return c.failure
					})
					switch {
					case err == nil:
					case errors.Is(err, c.rider):
						told.Add(1)
					default:
						t.Errorf("%v: %v", c.failure, err)
					}
				})
			}
			wg.Wait()
			if n := told.Load(); n != 18 {
				t.Errorf("%v: %d of 18 were told", c.failure, n)
			}
		})
	}
}

// TestLaneCallersGiveUp: whoever gives up, in front or in the queue, with its batch under way or not, takes nobody along.
func TestLaneCallersGiveUp(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			var l lanes
			var wg sync.WaitGroup
			rng := rand.New(rand.NewPCG(seed, 0))
			for i := range 60 {
				patience := time.Duration(1+rng.IntN(5000)) * time.Microsecond
				pause := time.Duration(rng.IntN(3000)) * time.Microsecond
				impatient := rng.IntN(3) == 0
				wg.Go(func() {
					<-time.After(pause)
					ctx := t.Context()
					if impatient {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, patience)
						defer cancel()
					}
					r := &rider{item: item{key: fmt.Appendf(nil, "%d", i)}}
					err := l.ride(ctx, aLane, r, func(ctx context.Context, batch []*rider) error {
						select {
						case <-time.After(time.Millisecond):
							answerAll(batch)
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					})
					switch {
					case err == nil && string(r.value.Data) != string(r.key):
						t.Errorf("seed %d: rider %s has the answer %s", seed, r.key, r.value.Data)
					case err != nil && ctx.Err() == nil && !errors.Is(err, errRide):
						t.Errorf("seed %d: a patient rider: %v", seed, err)
					}
				})
			}
			wg.Wait()
			if !l.empty() {
				t.Errorf("seed %d: a lane is left", seed)
			}
		})
	}
}

// TestLaneNobodyCarriesWhoLeft: a rider that gave up while its batch was another's to carry is not handed that batch when
// the other gives up as well; nobody would be there to take it, and the lane would be one call short for ever.
func TestLaneNobodyCarriesWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lanes
		for range laneCalls {
			if batch := l.enter(aLane, &rider{}); len(batch) != 1 {
				t.Fatalf("a batch of %d", len(batch))
			}
		}
		first, second := &rider{item: item{key: []byte("1")}}, &rider{item: item{key: []byte("2")}}
		for _, r := range []*rider{first, second} {
			if l.enter(aLane, r) != nil {
				t.Fatal("a call too many")
			}
		}
		third := &rider{item: item{key: []byte("3")}}
		var wg sync.WaitGroup
		wg.Go(func() {
			err := l.ride(t.Context(), aLane, third, func(_ context.Context, batch []*rider) error {
				answerAll(batch)
				return nil
			})
			if err != nil || string(third.value.Data) != "3" {
				t.Errorf("the third: %s, %v", third.value.Data, err)
			}
		})
		synctest.Wait()
		l.exit(aLane) // the first is handed all three,
		if batch := l.leave(aLane, second); batch != nil {
			t.Fatalf("the second is handed a batch of %d", len(batch))
		}
		batch := l.leave(aLane, first) // and gives up, behind the second
		if len(batch) != 3 {
			t.Fatalf("the first is handed a batch of %d", len(batch))
		}
		l.pass(aLane, first, batch)
		wg.Wait()
		l.exit(aLane)
		if !l.empty() {
			t.Error("a lane is left")
		}
	})
}
