package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

func poolOf(m *mesh) *Pool {
	p := NewPool(PoolConfig{Dial: m.dial})
	m.t.Cleanup(func() { _ = p.Close() })
	return p
}

func askPool(ctx context.Context, p *Pool, endpoint string) error {
	q, err := p.Query(endpoint)
	if err != nil {
		return err
	}
	_, err = q.Count(ctx, &statemeshv1.CountRequest{Store: string(counts)})
	return err
}

// GN-05: as many connections as live peers, whatever the number of calls and of changes of the map.
func TestPoolConnectionsAreThePeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids []string
		for i := range 10 {
			ids = append(ids, fmt.Sprintf("n%d", i))
		}
		m := newMesh(t, 10, ids...)
		p := poolOf(m)
		for i := range 5000 {
			if err := askPool(t.Context(), p, ids[i%10]+":1"); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.conns.Load(); n != 10 {
			t.Fatalf("%d connections for 10 peers", n)
		}
		for i := range 500 {
			wanted := map[string]bool{}
			for j := range 5 {
				wanted[ids[(i+j)%10]+":1"] = true
			}
			p.Retain(wanted)
			for e := range wanted {
				if err := askPool(t.Context(), p, e); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := m.conns.Load(); n != 5 {
				t.Fatalf("change %d: %d connections for 5 peers", i, n)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.conns.Load(); n != 0 {
			t.Fatalf("%d connections after Close", n)
		}
		if err := askPool(t.Context(), p, "n0:1"); !errors.Is(err, ErrClosed) {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// GN-06: letting go of an endpoint fails no call, unary or stream, in flight or about to begin.
func TestPoolRetainFailsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		m.fill(100)
		m.rowsPer = 1
		for _, id := range []string{"a", "b"} {
			m.member(id).on(func(context.Context, string) error { time.Sleep(3 * time.Millisecond); return nil })
		}
		p := poolOf(m)
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range 16 {
			endpoint := []string{"a:1", "b:1"}[i%2]
			wg.Go(func() {
				q, err := p.Query(endpoint) // kept, unlike the other's: it must stay good
				if err != nil {
					t.Error(err)
				}
				for !stop.Load() {
					if err := askPool(t.Context(), p, endpoint); err != nil {
						t.Error(err)
					}
					if _, err := q.Count(t.Context(), &statemeshv1.CountRequest{Store: string(counts)}); err != nil {
						t.Error(err)
					}
					st, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(counts), Partitions: []int32{int32(i % 2)}})
					if err != nil {
						t.Error(err)
						continue
					}
					for err == nil {
						_, err = st.Recv()
					}
					if err.Error() != "EOF" {
						t.Error(err)
					}
				}
			})
		}
		for i := range 200 {
			time.Sleep(time.Millisecond)
			p.Retain([]map[string]bool{{"a:1": true}, {"b:1": true}, {}}[i%3])
		}
		stop.Store(true)
		wg.Wait()
		p.Retain(nil)
		synctest.Wait()
		if n := m.conns.Load(); n != 0 {
			t.Fatalf("%d connections that nobody wants", n)
		}
	})
}

// GN-07: a peer that is down fails the call at once, with the reason.
func TestPoolFailsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		p := poolOf(m)
		start := time.Now()
		err := wire.FromStatus(askPool(t.Context(), p, "nobody:1"))
		if !errors.Is(err, wire.ErrUnreachable) || !strings.Contains(err.Error(), "connection refused") || time.Since(start) > 50*time.Millisecond {
			t.Fatal(err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a host that answers nothing costs a second, not grpc's twenty
		p := NewPool(PoolConfig{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		defer func() { _ = p.Close() }()
		start := time.Now()
		err := askPool(t.Context(), p, "blackhole:1")
		if status.Code(err) != codes.Unavailable || time.Since(start) > 1100*time.Millisecond {
			t.Fatal(err, time.Since(start))
		}
	})
}

// A peer that is back is found when the map names it, without waiting for the back-off.
func TestPoolRetainNudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		p := poolOf(m)
		m.stop("a")
		for range 50 { // well into the back-off
			_ = askPool(t.Context(), p, "a:1")
			time.Sleep(200 * time.Millisecond)
		}
		m.start("a")
		p.Retain(map[string]bool{"a:1": true})
		synctest.Wait()
		if err := askPool(t.Context(), p, "a:1"); err != nil {
			t.Fatal(err)
		}
	})
}

// GN-03: an idle connection and the server's policy get along: no GOAWAY, no new connection.
func TestPoolKeepaliveIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		p := poolOf(m)
		if err := askPool(t.Context(), p, "a:1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := askPool(t.Context(), p, "a:1"); err != nil {
			t.Fatal(err)
		}
		if n := m.dialed("a"); n != 1 {
			t.Fatalf("%d connections in ten idle minutes", n)
		}
	})
}

// A host that vanished without a reset is noticed (serving.md 22).
func TestPoolKeepaliveFindsTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		var cut atomic.Bool
		p := NewPool(PoolConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := m.dial(ctx, addr)
			return &lossyConn{Conn: c, cut: &cut}, err
		}})
		defer func() { _ = p.Close() }()
		if err := askPool(t.Context(), p, "a:1"); err != nil {
			t.Fatal(err)
		}
		cut.Store(true)
		start := time.Now()
		err := askPool(t.Context(), p, "a:1")
		if took := time.Since(start); status.Code(err) != codes.Unavailable || took > wire.KeepaliveTime+wire.KeepaliveTimeout+time.Second {
			t.Fatal(err, took)
		}
	})
}

// lossyConn swallows what is written once it is cut.
type lossyConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// GN-13: after a restart the others come back spread out, and nobody makes a connection per failure.
func TestPoolReconnectsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		m.stop("a")
		var mu sync.Mutex
		var at []time.Duration
		start := time.Now()
		const n = 50
		var wg sync.WaitGroup
		for range n {
			p := NewPool(PoolConfig{Dial: func(context.Context, string) (net.Conn, error) {
				mu.Lock()
				at = append(at, time.Since(start))
				mu.Unlock()
				return nil, errors.New("connection refused")
			}})
			defer func() { _ = p.Close() }()
			wg.Go(func() {
				for time.Since(start) < 10*time.Second {
					_ = askPool(t.Context(), p, "a:1")
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock() // one may still be dialling
		if len(at) > n*20 {
			t.Fatalf("%d dials of %d pools in 10 s", len(at), n)
		}
		slices.Sort(at)
		busiest, first := 0, 0
		for i := range at { // in any 50 ms once the first round is over
			for at[i]-at[first] > 50*time.Millisecond {
				first++
			}
			if at[first] > time.Second {
				busiest = max(busiest, i-first+1)
			}
		}
		if busiest == 0 || busiest > n/2 {
			t.Fatalf("%d of %d pools dialled within 50 ms", busiest, n)
		}
		m.start("a")
	})
}

func TestPoolFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b", "c")
		p := poolOf(m)
		for _, e := range []string{"a:1", "b:1", "c:1"} {
			if err := askPool(t.Context(), p, e); err != nil {
				t.Fatal(err)
			}
		}
		table := router.NewTable()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := p.Follow(ctx, table); err != nil {
				t.Error(err)
			}
		})
		d, _ := m.snapshot()
		d.Instances = d.Instances[:2]
		s, err := router.NewSnapshot(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.Publish(s); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := m.conns.Load(); n != 2 {
			t.Fatalf("%d connections for 2 peers", n)
		}
		cancel()
		wg.Wait()
	})
}
