package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

func wantValue(t *testing.T, c *Client, key, want string, opts ...Option) Result {
	t.Helper()
	r, err := c.Get(t.Context(), counts, []byte(key), opts...)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	if string(r.Value.Data) != want || r.Value.Timestamp != 7 {
		t.Fatalf("get %q: %q at %d", key, r.Value.Data, r.Value.Timestamp)
	}
	return r
}

func TestGetGoesToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 6, "a", "b", "c")
		want := m.fill(60)
		c := m.client(nil)
		for k, v := range want {
			r := wantValue(t, c, k, v)
			if r.Answer.Facts.Role != store.RoleActive || r.Answer.Instance != m.owner[r.Answer.Partition] || r.Answer.Facts.Sequence != 9 {
				t.Fatalf("%+v", r.Answer)
			}
		}
		total := int64(0)
		for _, id := range []string{"a", "b", "c"} {
			total += m.member(id).calls.Load()
		}
		if total != 60 {
			t.Fatalf("%d calls for 60 keys: somebody was asked in vain", total)
		}
	})
}

func TestGetAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b")
		c := m.client(nil)
		r, err := c.Get(t.Context(), counts, []byte("nope"))
		if !errors.Is(err, store.ErrNotFound) || r.Answer.Instance == "" || r.Answer.Facts.Position["in"] == nil {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

// GN-10: keys and values are bytes; no error quotes them.
func TestKeysAreBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b")
		for _, key := range []string{"\xff\xfe\x00", "\x00", strings.Repeat("\x80", 1000)} {
			m.put(key, "\xff value \x00")
			wantValue(t, m.client(nil), key, "\xff value \x00")
			_, err := m.client(nil).Get(t.Context(), counts, []byte(key+"\xff"))
			if !errors.Is(err, store.ErrNotFound) || strings.Contains(err.Error(), key) {
				t.Fatal(err)
			}
		}
		// An empty value is a value.
		m.put("empty", "")
		if r := wantValue(t, m.client(nil), "empty", ""); r.Value.Data == nil {
			t.Fatal("nil")
		}
	})
}

// MOVED carries the new owner: one more round trip, and all later calls go there at once, before the map is known.
func TestMovedConvergesInOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		m.put("k", "v")
		c := m.client(nil)
		wantValue(t, c, "k", "v")
		for _, id := range []string{"a", "b"} {
			m.freeze(id) // nobody hands out the new map
		}
		m.move(0, "b")
		a, b := m.member("a"), m.member("b")
		a.calls.Store(0)
		start := time.Now()
		wantValue(t, c, "k", "v")
		if a.calls.Load() != 1 || b.calls.Load() != 1 || time.Since(start) != 0 {
			t.Fatalf("calls: a %d, b %d, waited %s", a.calls.Load(), b.calls.Load(), time.Since(start))
		}
		for range 10 {
			wantValue(t, c, "k", "v")
		}
		if a.calls.Load() != 1 || b.calls.Load() != 11 {
			t.Fatalf("calls: a %d, b %d", a.calls.Load(), b.calls.Load())
		}
	})
}

// Two instances that send callers to each other must not spin.
func TestMovedPingPongIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		c := m.client(nil)
		for id, other := range map[string]string{"a": "b", "b": "a"} {
			m.member(id).on(func(context.Context, string) error {
				return &store.MovedError{Store: counts, Instance: other, Endpoint: other + ":1", Epoch: 99}
			})
		}
		_, err := c.Get(t.Context(), counts, []byte("k"))
		if e, ok := errors.AsType[*store.MovedError](err); !ok || e.Epoch != 99 {
			t.Fatal(err)
		}
		if n := m.member("a").calls.Load() + m.member("b").calls.Load(); n > 40 {
			t.Fatalf("%d calls in 10 s", n)
		}
	})
}

// An answer that came by a hop says that the map is old: the next call learns it.
func TestForwardedAnswerTeaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		m.put("k", "v")
		c := m.client(nil)
		wantValue(t, c, "k", "v")
		m.member("a").forward.Store(true)
		m.move(0, "b")
		wantValue(t, c, "k", "v")
		if got := m.member("a").calls.Load(); got != 2 {
			t.Fatal(got)
		}
		wantValue(t, c, "k", "v")
		if a, b := m.member("a").calls.Load(), m.member("b").calls.Load(); a != 2 || b != 1 {
			t.Fatalf("calls: a %d, b %d", a, b)
		}
	})
}

// GN-07: a dead owner fails over at once; others forward. The error names the peer and why when nobody can.
func TestOwnerDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b", "c")
		want := m.fill(20)
		c := m.client(nil)
		for k, v := range want {
			wantValue(t, c, k, v)
		}
		m.stop("a")
		for _, id := range []string{"b", "c"} {
			m.member(id).forward.Store(true)
		}
		start := time.Now()
		for k, v := range want {
			wantValue(t, c, k, v)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Fatalf("took %s", took)
		}

		m.stop("b")
		m.stop("c")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := c.Get(ctx, counts, []byte("key-0000"))
		e, ok := errors.AsType[*CallError](err)
		if !ok || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), ":1") || e.Attempts < 3 {
			t.Fatal(err)
		}
		m.start("a") // and when it is back, so is the answer
		if _, err := c.Get(t.Context(), counts, []byte("key-0000")); err != nil && !errors.Is(err, store.ErrMoved) {
			t.Fatal(err)
		}
	})
}

// Within the caller's time a fail-over is a wait, not an error.
func TestFailOverIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		m.put("k", "v")
		c := m.client(nil)
		wantValue(t, c, "k", "v")
		m.stop("a")
		m.member("b").on(func(context.Context, string) error {
			return &store.NotReadyError{Store: counts, Reason: "restoring", Restored: 1, Total: 9, RetryAfter: 200 * time.Millisecond}
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(4 * time.Second)
			m.move(0, "b")
			m.member("b").hook.Store(nil)
		})
		start := time.Now()
		wantValue(t, c, "k", "v")
		if took := time.Since(start); took < 4*time.Second || took > 5500*time.Millisecond {
			t.Fatalf("took %s", took)
		}
		wg.Wait()
	})
}

func TestSeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		m.put("k", "v")
		some := m.client(func(c *Config) { c.Seeds = []string{"x:1", "y:1", "z:1", "b:1"} })
		wantValue(t, some, "k", "v")

		none := m.client(func(c *Config) { c.Seeds = []string{"x:1", "y:1"}; c.Timeout = 2 * time.Second })
		start := time.Now()
		_, err := none.Get(t.Context(), counts, []byte("k"))
		if !errors.Is(err, ErrNoMap) || !errors.Is(err, wire.ErrUnreachable) || !strings.Contains(err.Error(), "x:1") ||
			!strings.Contains(err.Error(), "connection refused") {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Fatalf("took %s", took)
		}
	})
}

// A mesh that is starting has no metadata yet; the first call waits for it.
func TestMapNotReadyYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.put("k", "v")
		m.noMap.Store(true)
		c := m.client(nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(time.Second)
			m.noMap.Store(false)
		})
		wantValue(t, c, "k", "v")
		wg.Wait()
	})
}

func TestListsWhereThereIsNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		m.put("k", "v")
		m.noWatch = true
		wantValue(t, m.client(nil), "k", "v")
	})
}

// MR-05: whoever listens at the address of a former instance is not taken for it.
func TestForeignApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.put("k", "v")
		c := m.client(func(c *Config) { c.Application = "other" })
		start := time.Now()
		_, err := c.Get(t.Context(), counts, []byte("k"))
		if e, ok := errors.AsType[*store.InvalidRequestError](err); !ok || e.Field != "application" || !strings.Contains(e.Reason, `"app", want "other"`) {
			t.Fatal(err)
		}
		if time.Since(start) != 0 {
			t.Fatal("waited for what will not change")
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		c := m.client(nil)
		if _, err := c.Stores(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.member("a").on(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := c.Get(ctx, counts, []byte("k"))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 300*time.Millisecond {
			t.Fatal(err, time.Since(start))
		}
		start = time.Now()
		if _, err = c.Get(t.Context(), counts, []byte("k")); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Fatal(err, time.Since(start)) // no deadline of its own: the client's
		}
		cctx, ccancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, ccancel)
		if _, err = c.Get(cctx, counts, []byte("k")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// What was said last is worth more than that the time is up; and it is said at once when waiting cannot help.
func TestErrorSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		c := m.client(nil)
		m.member("a").on(func(context.Context, string) error {
			return &store.NotReadyError{Store: counts, Reason: "restoring", Restored: 10, Total: 100, RetryAfter: time.Minute}
		})
		start := time.Now()
		_, err := c.Get(t.Context(), counts, []byte("k"))
		if e, ok := errors.AsType[*store.NotReadyError](err); !ok || e.Restored != 10 || e.Total != 100 || time.Since(start) > time.Second {
			t.Fatal(err, time.Since(start))
		}
	})
}

// What cannot change is not asked again.
func TestFinalErrors(t *testing.T) {
	for name, want := range map[string]error{
		"kind":       &store.WrongKindError{Store: counts, Kind: store.KindKeyValue, Query: "fetch"},
		"too large":  &store.TooLargeError{Store: counts, What: "key", Size: 9, Limit: 8, Setting: "x"},
		"invalid":    &store.InvalidRequestError{Field: "options", Reason: "no"},
		"permission": &store.PermissionDeniedError{Action: "read", Reason: "no"},
		"internal":   errors.New("a defect"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, 1, "a", "b")
				m.member("a").on(func(context.Context, string) error { return want })
				_, err := m.client(nil).Get(t.Context(), counts, []byte("k"))
				if err == nil || m.member("a").calls.Load() != 1 || m.member("b").calls.Load() != 0 {
					t.Fatal(err, m.member("a").calls.Load(), m.member("b").calls.Load())
				}
				if name != "internal" && wire.Reason(err) != wire.Reason(want) {
					t.Fatalf("%v: the reason was lost", err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		c := m.client(nil)
		if _, err := c.Get(t.Context(), "nope", []byte("k")); !errors.Is(err, store.ErrUnknownStore) || !strings.Contains(err.Error(), "known: counts") {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), counts, nil); !errors.Is(err, store.ErrInvalidKey) {
			t.Fatal(err)
		}
		if _, err := c.Get(t.Context(), counts, []byte("k"), InPartition(7)); !errors.Is(err, store.ErrInvalidRequest) {
			t.Fatal(err)
		}
		if n := m.member("a").calls.Load(); n != 0 {
			t.Fatalf("%d calls for what the map alone can say", n)
		}
	})
}

// OVERLOADED: the same instance, after the time it asked for, twice at most; nobody else.
func TestOverloadedIsNotHammered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b", "c")
		c := m.client(nil)
		var mu sync.Mutex
		var at []time.Time
		m.member("a").on(func(context.Context, string) error {
			mu.Lock()
			at = append(at, time.Now())
			mu.Unlock()
			return &store.OverloadedError{Limit: "max.requests", RetryAfter: 500 * time.Millisecond}
		})
		_, err := c.Get(t.Context(), counts, []byte("k"))
		if e, ok := errors.AsType[*store.OverloadedError](err); !ok || e.Limit != "max.requests" {
			t.Fatal(err)
		}
		if len(at) != 3 || m.member("b").calls.Load()+m.member("c").calls.Load() != 0 {
			t.Fatal(len(at), m.member("b").calls.Load(), m.member("c").calls.Load())
		}
		for i := 1; i < len(at); i++ {
			if at[i].Sub(at[i-1]) < 500*time.Millisecond {
				t.Fatalf("asked again after %s", at[i].Sub(at[i-1]))
			}
		}
	})
}

// A crowd whose owner is gone shares one budget: no storm (serving.md 26).
func TestRetryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		c := m.client(nil)
		if _, err := c.Stores(t.Context()); err != nil {
			t.Fatal(err)
		}
		var calls atomic.Int64
		m.member("a").on(func(context.Context, string) error {
			calls.Add(1)
			return &store.NotReadyError{Store: counts, Reason: "restoring"}
		})
		const crowd = 200
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				if _, err := c.Get(t.Context(), counts, []byte("k")); !errors.Is(err, store.ErrNotReady) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// First attempts, the burst, a tenth of the calls, 10 a second for 10 s.
		if most := int64(crowd + retryBurst + crowd/10 + 100 + 1); calls.Load() > most {
			t.Fatalf("%d calls, at most %d", calls.Load(), most)
		}
	})
}

// The bound holds when the answer is handed over: the time on the way counts.
func TestBoundIsCheckedByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.put("k", "v")
		a := m.member("a")
		a.age = 200 * time.Millisecond
		a.on(func(context.Context, string) error { time.Sleep(400 * time.Millisecond); return nil })
		c := m.client(nil)
		r := wantValue(t, c, "k", "v")
		if r.Answer.Facts.Age != 600*time.Millisecond {
			t.Fatalf("age %s", r.Answer.Facts.Age)
		}
		wantValue(t, c, "k", "v", MaxStaleness(600*time.Millisecond))
		for _, key := range []string{"k", "absent"} { // an absence is an answer like any other
			_, err := c.Get(t.Context(), counts, []byte(key), MaxStaleness(599*time.Millisecond))
			if e, ok := errors.AsType[*store.NotReadyError](err); !ok || !strings.Contains(e.Reason, "599ms") {
				t.Fatal(err)
			}
		}
	})
}

func TestBoundThatCannotBeMeant(t *testing.T) {
	c := newMesh(t, 1, "a").client(nil)
	for _, d := range []time.Duration{0, -1, time.Microsecond} {
		_, err := c.Get(t.Context(), counts, []byte("k"), MaxStaleness(d))
		if !errors.Is(err, store.ErrInvalidRequest) {
			t.Fatal(err)
		}
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}, MaxStaleness(d)) {
			if !errors.Is(err, store.ErrInvalidRequest) {
				t.Fatal(err)
			}
		}
	}
}

// The map is asked for: an old one is no answer to the question who is there.
func TestMetadataIsNotOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		c := m.client(func(c *Config) { c.Timeout = time.Second })
		if ins, err := c.Instances(t.Context()); err != nil || len(ins) != 1 {
			t.Fatal(ins, err)
		}
		m.stop("a")
		if _, err := c.Instances(t.Context()); !errors.Is(err, ErrNoMap) {
			t.Fatal(err)
		}
		m.start("a")
	})
}

func TestVia(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 3, "a", "b", "c")
		want := m.fill(30)
		m.member("b").forward.Store(true)
		c := m.client(nil)
		for k, v := range want {
			wantValue(t, c, k, v, Via("b:1"))
		}
		if a, b := m.member("a").calls.Load(), m.member("b").calls.Load(); a != 0 || b != 30 {
			t.Fatal(a, b)
		}
		m.stop("b") // nobody else is asked
		start := time.Now()
		_, err := c.Get(t.Context(), counts, []byte("key-0000"), Via("b:1"))
		if !errors.Is(err, wire.ErrUnreachable) || time.Since(start) != 0 {
			t.Fatal(err, time.Since(start))
		}
		m.member("a").forward.Store(true)
		m.member("c").forward.Store(true)
		for k, v := range want {
			wantValue(t, c, k, v, ViaAny())
		}
		if m.member("a").calls.Load() == 0 || m.member("c").calls.Load() == 0 {
			t.Fatal("not spread")
		}
	})
}

func TestRunFollowsTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		m.put("k", "v")
		c := m.client(nil)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := c.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		p := m.put("k", "v")
		for _, to := range []string{"b", "a", "b", "a"} {
			m.move(p, to)
			synctest.Wait()
			o, err := c.Owner(t.Context(), counts, []byte("k"))
			if err != nil || o.Active.Instance != to || o.Partition != p || o.Epoch != m.epoch {
				t.Fatalf("%+v, %v", o, err)
			}
		}
		m.stop("a")
		m.stop("b")
		time.Sleep(time.Minute) // nobody there: it goes on trying, calmly
		if n := m.dialed("a"); n > 100 {
			t.Fatalf("%d dials", n)
		}
		m.start("b")
		m.move(p, "b")
		time.Sleep(3 * time.Second)
		if o, err := c.Owner(t.Context(), counts, []byte("k")); err != nil || o.Active.Instance != "b" || o.Epoch != m.epoch {
			t.Fatalf("%+v, %v", o, err)
		}
		cancel()
		wg.Wait()
	})
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		c := m.client(nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			var epochs []int64
			for s := range c.Watch(t.Context()) {
				epochs = append(epochs, int64(s.Epoch()))
				if s.Epoch() == 3 {
					break
				}
			}
			if !slices.Equal(epochs, []int64{1, 2, 3}) {
				t.Error(epochs)
			}
		})
		for range 2 {
			synctest.Wait()
			m.move(0, "b")
		}
		wg.Wait()
		synctest.Wait()
		if c.following.Load() != 0 {
			t.Fatal("still follows")
		}
	})
}
