package remotecache

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

func TestHitIsLabelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		if a := h.ask(key("k"), time.Second, found("v", 30*time.Millisecond)); a.Role != store.RoleActive || a.Age != 30*time.Millisecond {
			t.Fatalf("the first answer is the owner's: %+v", a)
		}
		time.Sleep(400 * time.Millisecond)
		a := h.ask(key("k"), time.Second, found("other", 0))
		if string(a.Value.Data) != "v" || a.Role != store.RoleCache || a.Age != 430*time.Millisecond || a.Instance != "b" ||
			a.Value.Timestamp != 5 || a.Position["in"][0] != 7 || a.Epoch != 1 {
			t.Fatalf("cached answer: %+v", a)
		}
		h.wantCalls(1)
		if h.metric("statemesh_remote_cache_requests_total", "hit") != 1 || h.metric("statemesh_remote_cache_requests_total", "miss") != 1 {
			t.Fatal("one miss and one hit")
		}
	})
}

func TestBoundDecides(t *testing.T) {
	for _, tc := range []struct {
		name       string
		fill, wait time.Duration // age at fill, time since
		bound      time.Duration
		hit        bool
	}{
		{"fresh", 0, 0, time.Millisecond, true},
		{"at the bound", 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, true},
		{"one beyond", 200 * time.Millisecond, 300*time.Millisecond + 1, 500 * time.Millisecond, false},
		{"old when it came", 600 * time.Millisecond, 0, 500 * time.Millisecond, false},
		{"no bound accepted", 0, 0, 0, false},
		{"negative bound", 0, 0, -1, false},
		{"age not proven", -1, 0, time.Hour, false},
		{"TTL ends before the bound", 0, 5 * time.Second, time.Hour, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, nil)
				h.ask(key("k"), time.Hour, found("v", tc.fill))
				time.Sleep(tc.wait)
				a := h.ask(key("k"), tc.bound, found("v2", 0))
				if hit := a.Role == store.RoleCache; hit != tc.hit {
					t.Fatalf("hit %v, want %v", hit, tc.hit)
				}
			})
		})
	}
}

func TestAgeCountsFromTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		_, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second}, func(context.Context) (Answer, error) {
			time.Sleep(300 * time.Millisecond)
			return found("v", 50*time.Millisecond), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if a := h.ask(key("k"), time.Second, found("x", 0)); a.Age != 350*time.Millisecond {
			t.Fatalf("age %s", a.Age)
		}
	})
}

func TestFreshAsksAndRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		h.ask(key("k"), time.Second, found("old", 0))
		a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second, Fresh: true}, func(context.Context) (Answer, error) {
			return found("new", 0), nil
		})
		if err != nil || string(a.Value.Data) != "new" || a.Role != store.RoleActive {
			t.Fatalf("role=active is never answered from the cache: %+v, %v", a, err)
		}
		if a := h.ask(key("k"), time.Second, found("x", 0)); string(a.Value.Data) != "new" {
			t.Fatalf("time went backwards: %s", a.Value.Data)
		}
	})
}

func TestOlderAnswerDoesNotReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = h.Get(t.Context(), key("k"), Want{Fresh: true}, func(context.Context) (Answer, error) {
				time.Sleep(100 * time.Millisecond)
				return found("old", 90*time.Millisecond), nil
			})
		})
		time.Sleep(50 * time.Millisecond)
		h.ask(key("k"), time.Second, found("new", 0))
		wg.Wait()
		if a := h.ask(key("k"), time.Second, found("x", 0)); string(a.Value.Data) != "new" {
			t.Fatalf("got %s", a.Value.Data)
		}
	})
}

func TestAbsenceIsKeptForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		absent := Answer{Age: 0, Role: store.RoleActive}
		h.ask(key("k"), time.Minute, absent)
		time.Sleep(time.Second - 1)
		if a := h.ask(key("k"), time.Minute, found("v", 0)); a.Found || a.Role != store.RoleCache {
			t.Fatalf("within its TTL: %+v", a)
		}
		time.Sleep(time.Nanosecond)
		if a := h.ask(key("k"), time.Minute, found("v", 0)); !a.Found {
			t.Fatal("absence outlived its TTL")
		}

		off := newHarness(t, func(c *Config) { c.NegativeTTL = 0 })
		off.ask(key("k"), time.Minute, absent)
		off.ask(key("k"), time.Minute, absent)
		off.wantCalls(2)
	})
}

func TestZeroIsOff(t *testing.T) {
	for name, mod := range map[string]func(*Config){
		"ttl 0":         func(c *Config) { c.TTL = 0 },
		"ttl negative":  func(c *Config) { c.TTL = -1 },
		"size 0":        func(c *Config) { c.MaxBytes = 0 },
		"size negative": func(c *Config) { c.MaxBytes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, mod)
			if h.Cache != nil {
				t.Fatal("want no cache")
			}
			const n = 100_000
			for i := range n {
				h.ask(key(strconv.Itoa(i%10)), time.Hour, found("v", 0))
			}
			h.wantCalls(n)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.Run(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // an answer with no time left must not become immortal
		h := newHarness(t, nil)
		for i := range 1000 {
			h.ask(key(strconv.Itoa(i)), time.Second, found("v", -1))
		}
		if h.count.Load() != 0 || h.lru.Len() != 0 {
			t.Fatalf("entries: %d", h.lru.Len())
		}
	})
}

func TestExpiredAreMissesAndSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		for i := range 100 {
			h.ask(key(strconv.Itoa(i)), time.Second, found("v", 0))
			time.Sleep(10 * time.Millisecond)
		}
		h.ask(key("0"), time.Hour, found("x", 0)) // used last, filled first: behind fresher ones in the LRU
		h.wantCalls(100)
		time.Sleep(4 * time.Second)
		h.ask(key("0"), time.Hour, found("x", 0))
		h.wantCalls(1)
		if h.metric("statemesh_remote_cache_requests_total", "hit") != 1 {
			t.Fatal("an expired entry counted as a hit")
		}
		time.Sleep(11 * time.Second)
		if n, b := h.metric("statemesh_remote_cache_entries", ""), h.metric("statemesh_remote_cache_bytes", ""); n != 0 || b != 0 {
			t.Fatalf("after two TTLs: %v entries, %v bytes", n, b)
		}
		cancel()
		wg.Wait()
	})
}

func TestEveryWayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, func(c *Config) { c.MaxBytes = 64 << 10 })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		for i := range 10_000 { // eviction, replacement
			h.ask(key(strconv.Itoa(i%500)), 1, found(fmt.Sprintf("%0100d", i), 0))
			if got := h.bytes.Load(); got > 64<<10 {
				t.Fatalf("%d bytes", got)
			}
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if h.metric("statemesh_remote_cache_removed_total", "evicted") == 0 {
			t.Fatal("nothing was evicted")
		}
		h.publish(2, "c", "1") // drop
		synctest.Wait()
		if h.count.Load() != 0 || h.bytes.Load() != 0 {
			t.Fatalf("%d entries, %d bytes", h.count.Load(), h.bytes.Load())
		}
		h.ask(key("k"), time.Second, found("v", 0))
		time.Sleep(time.Minute) // expiry in the background
		if h.count.Load() != 0 || h.bytes.Load() != 0 {
			t.Fatalf("%d entries, %d bytes", h.count.Load(), h.bytes.Load())
		}
		cancel()
		wg.Wait()
	})
}

func TestOwnerChangeThereAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Run(ctx) })
		other := Key{Store: testStore, Partition: 1, Query: "k"}
		h.ask(key("k"), time.Minute, found("v", 0))
		h.ask(other, time.Minute, found("v", 0))
		h.wantCalls(2)
		h.publish(2, "c", "1")
		synctest.Wait()
		h.publish(3, "b", "1")
		synctest.Wait()
		h.ask(key("k"), time.Minute, found("v", 0))
		h.wantCalls(1)
		if h.metric("statemesh_remote_cache_removed_total", "moved") != 1 {
			t.Fatal("one entry moved")
		}
		cancel()
		wg.Wait()
	})
}
