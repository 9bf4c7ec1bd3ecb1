package group

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simSeed  = flag.Uint64("seed", 0, "seed of the first simulated schedule; 0 takes a random one")
	simSeeds = flag.Int("seeds", 5, "simulated schedules")
)

// severable is a network that can be cut for one process.
type severable struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func (s *severable) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := s.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		return nil, fmt.Errorf("no route: %w", c.Close())
	}
	s.conns = append(s.conns, c)
	return c, nil
}

func (s *severable) Cut() {
	s.mu.Lock()
	s.cut = true
	conns := s.conns
	s.mu.Unlock()
	for _, c := range conns {
		_ = c.Close() // it may be closed already
	}
}

// A seed fixes a schedule of joins, leaves and deaths. After it, and a quiet minute, every process has one and the same
// whole map, and on the way no partition ever had two owners, nor an epoch of any table gone back.
func TestScheduleSim(t *testing.T) {
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for i := range uint64(*simSeeds) {
		t.Run(fmt.Sprintf("seed=%d", seed+i), func(t *testing.T) {
			t.Logf("to repeat this schedule: go test -tags invariants ./processor/internal/group -run '^TestScheduleSim$' -seeds=1 -seed=%d -count=100 -failfast", seed+i)
			synctest.Test(t, func(t *testing.T) { schedule(t, rand.New(rand.NewPCG(seed+i, 0))) })
		})
	}
}

func schedule(t *testing.T, rng *rand.Rand) {
	w := newSimWorld(t, 6)
	var trace []string
	var live []*process
	defer func() {
		if t.Failed() {
			t.Logf("schedule: %s", strings.Join(trace, ", "))
		}
	}()
	for n := range 10 {
		at := rng.IntN(len(live) + 1)
		switch r := rng.IntN(10); {
		case r < 5 || len(live) == 0:
			s := &severable{dial: w.dial}
			p := w.start(fmt.Sprintf("p%d", n), 1+rng.IntN(2), func(p *process) { p.dial, p.cut = s.Dial, s.Cut })
			live = append(live, p)
			trace = append(trace, p.id+" joins")
		case at < len(live):
			p := live[at]
			live = append(live[:at:at], live[at+1:]...)
			if r < 8 {
				trace = append(trace, p.id+" leaves")
				p.leave()
			} else {
				// kfake lets the sessions of members that wait in a join run out (Kafka keeps them): a death in the
				// middle of a rebalance would take living members with it. The broker lane has that case.
				time.Sleep(5 * time.Second)
				trace = append(trace, "5s", p.id+" dies")
				p.vanish()
			}
		}
		pause := time.Duration(rng.IntN(8000)) * time.Millisecond
		trace = append(trace, pause.String())
		time.Sleep(pause)
	}
	time.Sleep(time.Minute)
	if len(live) == 0 {
		return
	}
	if changed, why := agreed(live); changed != nil {
		t.Errorf("no common map: %s", why)
	}
	for _, p := range live {
		s := p.table.Load()
		if s == nil || len(s.Missing()) > 0 {
			t.Errorf("%s: %s", p.id, describe(s))
		}
		for _, th := range p.threads {
			last := int64(0)
			for _, a := range th.history() {
				if int64(a.Epoch) <= last {
					t.Errorf("%s: epoch %d after %d", th.txn, a.Epoch, last)
				}
				last = int64(a.Epoch)
			}
			if th.last().Epoch != s.Epoch() {
				t.Errorf("%s: its assignment is of epoch %d, the map of %d: a generation passed it by", th.txn, th.last().Epoch, s.Epoch())
			}
		}
	}
	w.mu.Lock()
	owned := len(w.owners)
	w.mu.Unlock()
	if owned != 6+3+6 {
		t.Errorf("%d partitions have an owner, want 15", owned)
	}
	w.check()
}

// A process that is away longer than its session lasts finds the world changed and goes on in it.
func TestSilenceSim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(t, 4)
		a := w.start("a", 1)
		s := &severable{dial: w.dial}
		b := w.start("b", 1, func(p *process) { p.dial, p.cut = s.Dial, s.Cut })
		time.Sleep(20 * time.Second)
		before := a.table.Load()
		if n := counts(before); n["a"] != 4 || n["b"] != 4 {
			t.Fatalf("%v", n)
		}
		b.vanish()
		time.Sleep(20 * time.Second)
		if n := counts(a.table.Load()); n["a"] != 8 || len(n) != 1 {
			t.Errorf("after its session: %v", n)
		}
		last := a.threads[0].last()
		if len(last.Fence) != 1 || last.Fence[0] != b.threads[0].txn {
			t.Errorf("fence %v, want %s", last.Fence, b.threads[0].txn)
		}
		w.check()
	})
}
