package remotecache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

func TestMissesCollapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		const n = 50
		answers := make([]Answer, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second}, func(context.Context) (Answer, error) {
					h.calls.Add(1)
					time.Sleep(100 * time.Millisecond)
					return found("v", 20*time.Millisecond), nil
				})
				if err != nil {
					t.Error(err)
				}
				answers[i] = a
			})
		}
		wg.Wait()
		h.wantCalls(1)
		fetched := 0
		for _, a := range answers {
			switch {
			case a.Role == store.RoleActive && a.Age == 20*time.Millisecond:
				fetched++
			case a.Role != store.RoleCache || a.Age != 120*time.Millisecond || string(a.Value.Data) != "v":
				t.Errorf("shared answer: %+v", a)
			}
			a.Value.Data[0] = 'X' // CA-07: everybody has a copy
		}
		if fetched != 1 {
			t.Fatalf("%d answers are of this very call", fetched)
		}
		if got := h.metric("statemesh_remote_cache_requests_total", "collapsed"); got != n-1 {
			t.Fatalf("collapsed: %v", got)
		}
	})
}

// A caller whose bound the shared answer misses asks for one of its own; nobody else suffers.
func TestSharedAnswerTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		get := func(bound time.Duration) (Answer, error) {
			return h.Get(t.Context(), key("k"), Want{MaxStaleness: bound}, func(context.Context) (Answer, error) {
				h.calls.Add(1)
				time.Sleep(100 * time.Millisecond)
				return found("v", 0), nil
			})
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = get(time.Second) })
		time.Sleep(10 * time.Millisecond)
		wg.Go(func() { // may join, but what it gets is 100 ms old
			if a, err := get(50 * time.Millisecond); err != nil || a.Role != store.RoleActive {
				t.Error(a, err)
			}
		})
		time.Sleep(50 * time.Millisecond)
		wg.Go(func() { // what is under way is too old already
			if a, err := get(20 * time.Millisecond); err != nil || a.Role != store.RoleActive {
				t.Error(a, err)
			}
		})
		wg.Wait()
		h.wantCalls(3)
	})
}

func TestFreshDoesNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second, Fresh: true}, func(context.Context) (Answer, error) {
					h.calls.Add(1)
					time.Sleep(time.Second)
					return found("v", 0), nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		h.wantCalls(3)
	})
}

// A leader that is cancelled, or dies, must not fail those who wait; each waits no longer than its own context.
func TestLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		slow := func(ctx context.Context) (Answer, error) {
			h.calls.Add(1)
			select {
			case <-time.After(time.Second):
				return found("v", 0), nil
			case <-ctx.Done():
				return Answer{}, ctx.Err()
			}
		}
		leader, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := h.Get(leader, key("k"), Want{MaxStaleness: 5 * time.Second}, slow); !errors.Is(err, context.Canceled) {
				t.Error("leader:", err)
			}
		})
		synctest.Wait()
		for range 5 {
			wg.Go(func() {
				if a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: 5 * time.Second}, slow); err != nil || string(a.Value.Data) != "v" {
					t.Error("waiter:", a, err)
				}
			})
		}
		short, cancelShort := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancelShort()
		wg.Go(func() {
			start := time.Now()
			_, err := h.Get(short, key("k"), Want{MaxStaleness: 5 * time.Second}, slow)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 300*time.Millisecond {
				t.Error("short waiter:", err, time.Since(start))
			}
		})
		synctest.Wait()
		time.Sleep(400 * time.Millisecond)
		cancel()
		wg.Wait()
		h.wantCalls(2)
	})
}

func TestLeaderPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is the leader's")
				}
			}()
			_, _ = h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second}, func(context.Context) (Answer, error) {
				time.Sleep(time.Millisecond)
				panic("broken")
			})
		})
		synctest.Wait()
		wg.Go(func() {
			a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second}, func(context.Context) (Answer, error) {
				return found("v", 0), nil
			})
			if err != nil || string(a.Value.Data) != "v" {
				t.Error(a, err)
			}
		})
		wg.Wait()
		if len(h.flights) != 0 {
			t.Fatal("a call is left on the list")
		}
	})
}

// A call that failed because its leader's time was up, which a peer notices before the leader's own context has ended, or
// because the state was older than the leader's bound, says nothing to callers who have more time, or accept more.
func TestLeadersOwnErrorIsNotShared(t *testing.T) {
	for name, c := range map[string]struct {
		leader, waiter time.Duration // bounds
		err, shared    error
	}{
		"time":       {5 * time.Second, 5 * time.Second, context.DeadlineExceeded, nil},
		"age":        {time.Millisecond, 5 * time.Second, &store.NotReadyError{Reason: "age 3ms is above 1ms"}, nil},
		"not ready":  {5 * time.Second, 5 * time.Second, &store.NotReadyError{Reason: "restoring"}, store.ErrNotReady},
		"stricter":   {5 * time.Second, time.Second, &store.NotReadyError{Reason: "age 9s is above 5s"}, store.ErrNotReady},
		"overloaded": {time.Millisecond, 5 * time.Second, &store.OverloadedError{}, store.ErrOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, nil)
				var wg sync.WaitGroup
				wg.Go(func() {
					_, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: c.leader}, func(context.Context) (Answer, error) {
						h.calls.Add(1)
						time.Sleep(100 * time.Millisecond)
						return Answer{}, c.err
					})
					if !errors.Is(err, c.err) {
						t.Error("leader:", err)
					}
				})
				synctest.Wait()
				for range 5 {
					wg.Go(func() {
						a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: c.waiter}, func(context.Context) (Answer, error) {
							h.calls.Add(1)
							time.Sleep(100 * time.Millisecond)
							return found("v", 0), nil
						})
						if !errors.Is(err, c.shared) || err == nil && string(a.Value.Data) != "v" {
							t.Error("waiter:", a, err)
						}
					})
				}
				wg.Wait()
				if c.shared == nil {
					h.wantCalls(2) // the waiters share theirs
				} else {
					h.wantCalls(1)
				}
			})
		})
	}
}

// Those who wait share the error of the call: a crowd must not hammer a peer that refuses.
func TestErrorIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Second}, func(context.Context) (Answer, error) {
					h.calls.Add(1)
					time.Sleep(10 * time.Millisecond)
					return Answer{}, &store.OverloadedError{Limit: "x", RetryAfter: time.Second}
				})
				if !errors.Is(err, store.ErrOverloaded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		h.wantCalls(1)
	})
}

// A call that began before the owner changed is nothing to wait for.
func TestNoJoinAcrossMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Minute}, func(context.Context) (Answer, error) {
				time.Sleep(time.Second)
				return found("of the former owner", 0), nil
			})
		})
		synctest.Wait()
		h.publish(2, "c", "1")
		if a := h.ask(key("k"), time.Minute, found("v", 0)); string(a.Value.Data) != "v" {
			t.Fatalf("%s", a.Value.Data)
		}
		wg.Wait()
		if a := h.ask(key("k"), time.Minute, found("x", 0)); string(a.Value.Data) != "v" {
			t.Fatalf("the late answer replaced the new owner's: %s", a.Value.Data)
		}
	})
}
