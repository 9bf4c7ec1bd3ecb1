package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// scanAll returns the keys of a scan, in order.
func scanAll(t *testing.T, c *Client, q ScanQuery, opts ...Option) []string {
	t.Helper()
	var keys []string
	for row, err := range c.Scan(t.Context(), counts, q, opts...) {
		if err != nil {
			t.Fatalf("after %d rows: %v", len(keys), err)
		}
		if len(row.Value.Data) == 0 || row.Value.Timestamp != 7 {
			t.Fatalf("%+v", row)
		}
		keys = append(keys, string(row.Key))
	}
	return keys
}

func sortedKeys(m map[string]string, keep func(string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), func(k string) bool { return keep != nil && !keep(k) })
}

// MR-07: every partition once, whoever holds it, also an instance without any; one order over all.
func TestScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 12, "a", "b", "c")
		want := m.fill(500)
		m.start("d") // holds nothing
		defer m.stop("d")
		c := m.client(nil)
		reversed := sortedKeys(want, nil)
		slices.Reverse(reversed)
		between := func(k string) bool { return k >= "key-0100" && k <= "key-0299" }
		for _, tc := range []struct {
			name string
			q    ScanQuery
			want []string
		}{
			{"all", ScanQuery{}, sortedKeys(want, nil)},
			{"reverse", ScanQuery{Reverse: true}, reversed},
			{"range", ScanQuery{From: []byte("key-0100"), To: []byte("key-0299")}, sortedKeys(want, between)},
			{"range reverse", ScanQuery{From: []byte("key-0498"), Reverse: true}, []string{"key-0499", "key-0498"}},
			{"from above to", ScanQuery{From: []byte("z"), To: []byte("a")}, nil},
			{"prefix", ScanQuery{Prefix: []byte("key-01")}, sortedKeys(want, func(k string) bool { return strings.HasPrefix(k, "key-01") })},
			{"limit", ScanQuery{Limit: 7}, sortedKeys(want, nil)[:7]},
			{"limit reverse", ScanQuery{Limit: 7, Reverse: true}, reversed[:7]},
			{"limit above all", ScanQuery{Limit: 7000}, sortedKeys(want, nil)},
		} {
			for via, opts := range map[string][]Option{"owners": nil, "any": {ViaAny()}} {
				for _, id := range []string{"a", "b", "c", "d"} {
					m.member(id).forward.Store(via == "any")
				}
				if got := scanAll(t, c, tc.q, opts...); !slices.Equal(got, tc.want) {
					t.Fatalf("%s via %s: %d rows, want %d\n%v", tc.name, via, len(got), len(tc.want), got)
				}
			}
		}
		p := m.put("key-0000", "v")
		got := scanAll(t, c, ScanQuery{}, InPartition(p))
		if want := sortedKeys(m.data[p], nil); !slices.Equal(got, want) {
			t.Fatalf("one partition: %d rows, want %d", len(got), len(want))
		}
		m.member("d").forward.Store(true)
		if got := scanAll(t, c, ScanQuery{}, Via("d:1")); !slices.Equal(got, sortedKeys(want, nil)) {
			t.Fatalf("via the one that holds nothing: %d rows", len(got))
		}
	})
}

// GN-08: a stream that breaks, before or after its first row, or whose partition moves, costs and doubles no row.
func TestScanResumes(t *testing.T) {
	breaks := map[string]func(m *mesh, mb *member) error{
		"stream breaks": func(*mesh, *member) error { return store.ErrClosed },
		"server limit":  func(*mesh, *member) error { return context.DeadlineExceeded },
		"partition moves": func(m *mesh, mb *member) error {
			to := map[string]string{"a": "b", "b": "c", "c": "a"}[mb.id]
			m.mu.Lock()
			var mine []store.Partition
			for p, o := range m.owner {
				if o == mb.id {
					mine = append(mine, p)
				}
			}
			m.mu.Unlock()
			var epoch router.Epoch
			for _, p := range mine {
				epoch = m.move(p, to)
			}
			if len(mine) == 0 {
				return nil
			}
			return &store.MovedError{Store: counts, Partition: mine[0], Instance: to, Endpoint: to + ":1", Epoch: int64(epoch)}
		},
		"instance leaves": func(*mesh, *member) error { return store.ErrShuttingDown },
		"not ready": func(*mesh, *member) error {
			return &store.NotReadyError{Store: counts, Reason: "restoring", RetryAfter: 100 * time.Millisecond}
		},
	}
	for name, breaker := range breaks {
		for _, at := range []int{0, 1, 2, 5} {
			for _, reverse := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at message %d reverse %v", name, at, reverse), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := newMesh(t, 6, "a", "b", "c")
						want := sortedKeys(m.fill(120), nil)
						if reverse {
							slices.Reverse(want)
						}
						for _, id := range []string{"a", "b", "c"} {
							mb := m.member(id)
							mb.forward.Store(true) // a segment of several owners is merged by whoever is asked
							var once atomic.Bool
							hook := func(n int) error {
								if n != at || once.Swap(true) {
									return nil
								}
								return breaker(m, mb)
							}
							mb.scanHook.Store(&hook)
						}
						c := m.client(nil)
						if got := scanAll(t, c, ScanQuery{Reverse: reverse}); !slices.Equal(got, want) {
							t.Fatalf("%d rows, want %d:\n%v", len(got), len(want), got)
						}
						if got := scanAll(t, c, ScanQuery{Reverse: reverse, Limit: 50}); !slices.Equal(got, want[:50]) {
							t.Fatalf("%d rows with a limit of 50", len(got))
						}
					})
				})
			}
		}
	}
}

// A kill in the middle: connections break, the others take over.
func TestScanSurvivesAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 6, "a", "b", "c")
		want := sortedKeys(m.fill(600), nil)
		for _, id := range []string{"b", "c"} {
			m.member(id).forward.Store(true)
		}
		c := m.client(nil)
		var got []string
		for row, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, string(row.Key)); len(got) == 100 {
				m.stop("a")
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d rows, want %d", len(got), len(want))
		}
		m.start("a")
	})
}

// A scan that cannot go on ends with an error, never as if it were complete.
func TestScanFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a")
		m.fill(50)
		hook := func(n int) error {
			if n == 2 {
				return store.ErrClosed
			}
			return nil
		}
		a := m.member("a")
		a.scanHook.Store(&hook)
		c := m.client(func(c *Config) { c.Timeout = 2 * time.Second })
		rows, fails := 0, 0
		start := time.Now()
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
			if err == nil {
				rows++ // each stream brings two messages: there is progress, so it goes on
				continue
			}
			fails++
		}
		if rows != 50 || fails != 0 {
			t.Fatal(rows, fails, time.Since(start))
		}
		stuck := func(int) error { return &store.NotReadyError{Store: counts, Reason: "restoring"} }
		a.scanHook.Store(&stuck)
		start = time.Now()
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
			fails++
			if !errors.Is(err, store.ErrNotReady) || time.Since(start) > 2*time.Second {
				t.Fatal(err, time.Since(start))
			}
		}
		if fails != 1 {
			t.Fatal("ended without an error")
		}
	})
}

// A server that goes silent is given up on; a reader that is slow is not.
func TestScanStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.fill(30)
		a := m.member("a")
		c := m.client(nil)
		n := 0
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n%5 == 0 {
				time.Sleep(time.Minute)
			}
		}
		if n != 30 {
			t.Fatal(n)
		}
		silent := make(chan struct{})
		defer close(silent)
		hook := func(n int) error {
			if n == 3 {
				<-silent
			}
			return nil
		}
		a.scanHook.Store(&hook)
		start := time.Now()
		var last error
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
			last = err
		}
		// Every stream is silent after its third message but brings rows before, so the scan gets on, 5 s a time.
		if last != nil || time.Since(start) < 15*time.Second {
			t.Fatal(last, time.Since(start))
		}
	})
}

// GN-14: who breaks out of the loop, or cancels, ends the streams.
func TestScanAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 3, "a", "b", "c")
		m.rowsPer = 1
		m.fill(300)
		open := make(chan int, 1000)
		for _, id := range []string{"a", "b", "c"} {
			m.member(id).on(func(ctx context.Context, _ string) error {
				context.AfterFunc(ctx, func() { open <- 1 })
				return nil
			})
		}
		c := m.client(nil)
		for range 100 {
			n := 0
			for _, err := range c.Scan(t.Context(), counts, ScanQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if n++; n == 2 {
					break
				}
			}
		}
		synctest.Wait()
		if got := len(open); got != 300 {
			t.Fatalf("%d of 300 streams ended", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		var last error
		for _, err := range c.Scan(ctx, counts, ScanQuery{}) {
			if n++; n == 2 {
				cancel()
			}
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Fatal(last)
		}
	})
}

func TestScanAnswersAndBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b")
		m.fill(20)
		c := m.client(nil)
		seen := map[store.Partition]int{}
		scanAll(t, c, ScanQuery{Answers: func(as []Answer) {
			for _, a := range as {
				seen[a.Partition]++
			}
		}})
		if len(seen) != 4 || seen[0] != 1 {
			t.Fatal(seen)
		}
		m.member("a").age = time.Second
		for _, err := range c.Scan(t.Context(), counts, ScanQuery{}, MaxStaleness(900*time.Millisecond)) {
			if !errors.Is(err, store.ErrNotReady) {
				t.Fatal("rows of a state that is too old:", err)
			}
		}
		for _, q := range []ScanQuery{{Prefix: []byte("a"), From: []byte("b")}, {Limit: -1}} {
			for _, err := range c.Scan(t.Context(), counts, q) {
				if !errors.Is(err, store.ErrInvalidRequest) {
					t.Fatal(err)
				}
			}
		}
		for _, err := range c.Scan(t.Context(), "nope", ScanQuery{}) {
			if !errors.Is(err, store.ErrUnknownStore) {
				t.Fatal(err)
			}
		}
	})
}

func TestBatchGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 12, "a", "b", "c")
		want := m.fill(100)
		c := m.client(nil)
		keys := [][]byte{[]byte("absent"), []byte("key-0003"), []byte("key-0003")}
		for k := range want {
			keys = append(keys, []byte(k))
		}
		check := func() {
			t.Helper()
			got, err := c.BatchGet(t.Context(), counts, keys)
			if err != nil {
				t.Fatal(err)
			}
			for i, l := range got {
				v, ok := want[string(keys[i])]
				if l.Found != ok || string(l.Value.Data) != v || l.Answer == nil || l.Answer.Partition != l.Partition {
					t.Fatalf("key %q: %+v", keys[i], l)
				}
			}
		}
		check()
		if n := m.member("a").calls.Load() + m.member("b").calls.Load() + m.member("c").calls.Load(); n != 3 {
			t.Fatalf("%d requests for 3 owners", n)
		}
		m.move(0, "b") // some keys are elsewhere: only they are asked for again
		m.move(3, "c")
		check()
		if got, err := c.BatchGet(t.Context(), counts, nil); got != nil || err != nil {
			t.Fatal(got, err)
		}
		if _, err := c.BatchGet(t.Context(), counts, [][]byte{[]byte("k"), {}}); !errors.Is(err, store.ErrInvalidKey) {
			t.Fatal(err)
		}
	})
}

// GN-04: what is too much for one message goes in several; one value that is too much is an error that says so, at once.
func TestBatchGetInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		value := strings.Repeat("x", 1<<20)
		var keys [][]byte
		for i := range 40 { // 40 MiB in all, above the limit of 16
			key := fmt.Sprintf("big-%d", i)
			m.put(key, value)
			keys = append(keys, []byte(key))
		}
		c := m.client(nil)
		got, err := c.BatchGet(t.Context(), counts, keys)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if len(got[i].Value.Data) != 1<<20 {
				t.Fatal(i, len(got[i].Value.Data))
			}
		}
		m.put("5 MiB", strings.Repeat("x", 5<<20)) // above grpc's own default
		wantValue(t, c, "5 MiB", strings.Repeat("x", 5<<20))
		m.put("huge", strings.Repeat("x", 17<<20))
		start := time.Now()
		calls := m.member("a").calls.Load()
		_, err = c.Get(t.Context(), counts, []byte("huge"))
		if !errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrOverloaded) || time.Since(start) != 0 || m.member("a").calls.Load() != calls+1 {
			t.Fatal(err)
		}
		if _, err := c.BatchGet(t.Context(), counts, [][]byte{[]byte("huge")}); !errors.Is(err, store.ErrTooLarge) {
			t.Fatal(err)
		}
	})
}

func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 12, "a", "b", "c")
		m.fill(500)
		c := m.client(nil)
		n, err := c.Count(t.Context(), counts)
		if err != nil || n.Approximate != 500 || len(n.Answers) != 12 {
			t.Fatal(n.Approximate, len(n.Answers), err)
		}
		m.stop("b")
		m.member("a").forward.Store(true)
		m.member("c").forward.Store(true)
		n, err = c.Count(t.Context(), counts) // nothing twice although some owners answered in the first round
		if err != nil || n.Approximate != 500 || len(n.Answers) != 12 {
			t.Fatal(n.Approximate, len(n.Answers), err)
		}
		if n, err = c.Count(t.Context(), counts, InPartition(0)); err != nil || n.Approximate != int64(len(m.data[0])) {
			t.Fatal(n, err)
		}
		m.stop("a")
		m.stop("c")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = c.Count(ctx, counts); !errors.Is(err, store.ErrNoReplica) && !errors.Is(err, wire.ErrUnreachable) {
			t.Fatal(err)
		}
	})
}

// What is not committed may be taken back: a scan over it that breaks after its first rows ends with an error, where one
// over commits goes on.
func TestUncommittedScanIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		want := m.fill(20)
		c := m.client(nil)
		for level, whole := range map[store.Isolation]bool{store.ReadCommitted: true, store.ReadUncommitted: false} {
			for _, at := range []int{0, 2} {
				var broken atomic.Bool
				hook := func(n int) error {
					if n != at || broken.Swap(true) {
						return nil
					}
					return &store.NotReadyError{Store: counts, Reason: "what was read was rolled back", RetryAfter: time.Millisecond}
				}
				m.member("a").scanHook.Store(&hook)
				rows := 0
				var failed error
				for _, err := range c.Scan(t.Context(), counts, ScanQuery{}, Isolation(level)) {
					if err != nil {
						failed = err
						break
					}
					rows++
				}
				if goesOn := whole || at == 0; goesOn != (failed == nil) || goesOn && rows != len(want) || !goesOn && (rows == 0 || rows == len(want) || !errors.Is(failed, store.ErrNotReady)) {
					t.Errorf("%s, broken at message %d: %d rows, %v", level, at, rows, failed)
				}
			}
		}
	})
}

// A server that ends the stream of a scan early is followed at READ_COMMITTED only: at READ_UNCOMMITTED the rest would be of
// another state, so all rows received are handed over and then an error, never a silent end.
func TestUncommittedScanIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		want := m.fill(20)
		c := m.client(nil)
		for _, reason := range []statemeshv1.EndReason{statemeshv1.EndReason_END_REASON_SERVER_LIMIT, statemeshv1.EndReason_END_REASON_STALE} {
			m.member("a").cutAt.Store(&cut{rows: 7, reason: reason})
			for _, test := range []struct {
				level store.Isolation
				limit int64
				rows  int
				err   error
			}{
				{store.ReadCommitted, 0, len(want), nil},
				{store.ReadUncommitted, 0, 7, ErrCut},
				{store.ReadUncommitted, 10, 7, ErrCut},
				{store.ReadUncommitted, 7, 7, nil}, // all that was asked for
				{store.ReadUncommitted, 3, 3, nil},
			} {
				rows := 0
				var failed error
				for _, err := range c.Scan(t.Context(), counts, ScanQuery{Limit: test.limit}, Isolation(test.level)) {
					if err != nil {
						failed = err
						break
					}
					rows++
				}
				if rows != test.rows || !errors.Is(failed, test.err) {
					t.Errorf("%s, %s, limit %d: %d rows, %v", reason, test.level, test.limit, rows, failed)
				}
			}
		}
	})
}

// A server that calls its own end the caller's limit would have rows go missing in silence.
func TestScanLimitNobodyAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.fill(20)
		m.member("a").cutAt.Store(&cut{rows: 7, reason: statemeshv1.EndReason_END_REASON_LIMIT})
		for _, limit := range []int64{0, 10} {
			var failed error
			for _, failed = range m.client(nil).Scan(t.Context(), counts, ScanQuery{Limit: limit}) {
			}
			if !errors.Is(failed, wire.ErrMalformed) {
				t.Errorf("limit %d: %v", limit, failed)
			}
		}
	})
}
