package client

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// breaks keeps what a pool tells of its connections.
type breaks struct {
	mu  sync.Mutex
	all []string
}

func (b *breaks) broken(endpoint string, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, endpoint)
}

func (b *breaks) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// A pool tells at once of a connection that the other end ended, and of one that could not be made; not of those that it ended
// itself, however it came to that.
func TestPoolTellsOfBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		var b breaks
		p := NewPool(PoolConfig{Dial: m.dial, Broken: b.broken})
		for _, e := range []string{"a:1", "b:1"} {
			if err := askPool(t.Context(), p, e); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Hour) // nobody asks: the connections stay
		if got := b.take(); len(got) != 0 || m.dialed("a") != 1 {
			t.Fatalf("broken %v, %d connections", got, m.dialed("a"))
		}
		m.stop("a")
		synctest.Wait()
		if got := b.take(); len(got) == 0 || slices.Contains(got, "b:1") {
			t.Fatalf("broken: %v, want a", got)
		}
		if err := askPool(t.Context(), p, "a:1"); err == nil {
			t.Fatal("a answers")
		}
		if got := b.take(); !slices.Contains(got, "a:1") {
			t.Fatalf("refused, and told of %v", got)
		}
		p.Retain(map[string]bool{"b:1": true})
		synctest.Wait()
		b.take()
		p.Retain(nil)
		synctest.Wait()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.take(); len(got) != 0 {
			t.Fatalf("ended by the pool, and told of %v", got)
		}
	})
}

// An attempt that times out is told; one that is called off with the pool is not.
func TestPoolTellsOfTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b breaks
		p := NewPool(PoolConfig{Broken: b.broken, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		_ = askPool(t.Context(), p, "blackhole:1")
		if got := b.take(); len(got) == 0 {
			t.Fatal("told of nothing")
		}
		for len(b.take()) == 0 { // the next attempt
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		b.take()
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.take(); len(got) != 0 {
			t.Fatalf("called off, and told of %v", got)
		}
	})
}

// What one call found out costs the next ones nothing: while an owner is down, reads that a standby may answer go there at once, and
// the retry budget is not touched. Who insists on the owner asks it.
func TestDownOwnerIsAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a", "b")
		var dead atomic.Bool
		p := NewPool(PoolConfig{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if addr == "a:1" && dead.Load() {
				return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
			}
			return m.dial(ctx, addr)
		}})
		defer func() { _ = p.Close() }()
		candidates := []router.Replica{{Instance: "a", Endpoint: "a:1", Role: store.RoleActive}, {Instance: "b", Endpoint: "b:1", Role: store.RoleStandby}}
		if got := p.reachable(candidates); got.Instance != "a" {
			t.Fatalf("%+v before anything is known", got)
		}
		dead.Store(true)
		if err := askPool(t.Context(), p, "a:1"); err == nil {
			t.Fatal("a answers")
		}
		if !p.Down("a:1") || p.Down("b:1") || p.Down("stranger:1") {
			t.Fatal("a is not known to be down, or others are")
		}
		if got := p.reachable(candidates); got.Instance != "b" {
			t.Errorf("%+v, want the standby", got)
		}
		if got := p.reachable(candidates[:1]); got.Instance != "a" {
			t.Errorf("%+v, want the only one", got)
		}
		dead.Store(false)
		time.Sleep(5 * time.Second) // the connection comes back by itself
		if got := p.reachable(candidates); p.Down("a:1") || got.Instance != "a" {
			t.Errorf("%+v, want the owner that is back", got)
		}
	})
}

// A Mesh that asks who does not know the service, or nobody, hears no sighting.
func TestMeshWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, "a")
		p := NewPool(PoolConfig{Dial: m.dial})
		mesh := p.Mesh("app", "b")
		subject := suspect.Subject{Instance: "c", Incarnation: "1"}
		for _, endpoint := range []string{"a:1", "nobody:1"} {
			if seen, _, err := mesh.Suspect(t.Context(), endpoint, subject, suspect.FailFast); err == nil || seen.Kind != suspect.Unknown {
				t.Errorf("%s: %+v, %v", endpoint, seen, err)
			}
			if err := mesh.Rejoin(t.Context(), endpoint, subject, 1); err == nil {
				t.Errorf("%s: no error", endpoint)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := mesh.Suspect(t.Context(), "a:1", subject, suspect.FailFast); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if err := mesh.Rejoin(t.Context(), "a:1", subject, 1); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}
