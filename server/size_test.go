package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

func TestSize(t *testing.T) {
	t.Parallel()
	const most, limit = 256, 16 << 20
	var none size
	for _, c := range []struct {
		name string
		s    size
		want int
	}{
		{"nothing seen", none, most},
		{"absent keys", none.seen(100, 0), most},
		{"small values", none.seen(100, 100*1000), most},
		{"64 KiB each", none.seen(100, 100*64<<10), 64},
		{"more than a share each", none.seen(10, 10*5<<20), 1},
		{"refused", none.refused(256, limit), 64},
		{"refused after small ones", none.seen(1000, 1000).refused(256, limit), 64},
		{"refused with few keys", none.refused(2, limit), 1},
		{"refused with more than there was known", none.seen(10, 10*5<<20).refused(256, limit), 1},
	} {
		if got := c.s.keys(most, limit); got != c.want {
			t.Errorf("%s: %d keys, want %d", c.name, got, c.want)
		}
	}
	s := none.refused(2, limit)
	lookups := 0
	for ; s.keys(most, limit) < most; lookups += s.keys(most, limit) {
		if n := s.keys(most, limit); lookups > 100*sizeLookups {
			t.Fatalf("still %d keys after %d small lookups", n, lookups)
		} else {
			s = s.seen(n, 1000*n)
		}
	}
}

// TestLaneFollowsSizes: how many keys travel together follows the size of the values, down and up again, so that few batches
// are asked for twice. Every rider gets its answer, or is told to ask alone.
func TestLaneFollowsSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const message = 1 << 20
		l := lanes{message: message}
		var mu sync.Mutex
		var calls, refused, largest int
		round := func(riders, valueBytes int) {
			calls, refused, largest = 0, 0, 0
			value := make([]byte, valueBytes)
			var wg sync.WaitGroup
			for i := range riders {
				wg.Go(func() {
					r := &rider{item: item{key: fmt.Appendf(nil, "%d", i)}}
					err := l.ride(t.Context(), aLane, r, func(_ context.Context, batch []*rider) error {
						<-time.After(time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						calls++
						if len(batch)*valueBytes > message {
							refused++
							return &store.TooLargeError{What: "response", Limit: message}
						}
						largest = max(largest, len(batch))
						for _, o := range batch {
							o.value.Data, o.found = value, true
						}
						return nil
					})
					if (err == nil) != r.found {
						t.Errorf("found %t: %v", r.found, err)
					}
				})
			}
			wg.Wait()
		}
		for _, c := range []struct {
			valueBytes, refused, most int
		}{
			{100, 0, laneKeys},
			{64 << 10, 2 * laneCalls, 8}, // 4 to a share, some more until enough were seen
			{1 << 20, laneCalls, 1},
			{100, 0, laneKeys},
		} {
			for range 3 {
				round(3000, c.valueBytes)
				if refused > c.refused {
					t.Errorf("values of %d bytes: %d of %d batches were refused", c.valueBytes, refused, calls)
				}
			}
			if largest > c.most || 2*largest < c.most {
				t.Errorf("values of %d bytes: up to %d travel together, want about %d", c.valueBytes, largest, c.most)
			}
		}
		if !l.empty() {
			t.Error("a lane is left")
		}
	})
}
