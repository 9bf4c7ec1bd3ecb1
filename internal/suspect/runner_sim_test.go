package suspect

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/router"
)

// world is a fleet whose group is a list and whose network can be told what to do.
type world struct {
	t     *testing.T
	mu    sync.Mutex
	nodes map[string]*node // by endpoint
	group []router.Instance
	epoch router.Epoch
	log   []eviction
	// firewall refuses what goes from one id to another.
	firewall map[[2]string]bool
}

type eviction struct {
	by string
	of Subject
	at time.Time
}

type nodeState int

const (
	up nodeState = iota
	dead
	paused
)

type node struct {
	w      *world
	self   Subject
	table  *router.Table
	runner *Runner
	state  nodeState
	nudges int
}

// newWorld runs n instances a, b, c and so on until the test ends.
func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, nodes: make(map[string]*node), firewall: make(map[[2]string]bool)}
	for i := range n {
		w.start(string(rune('a'+i)), "1")
	}
	w.publish()
	time.Sleep(3 * time.Second) // everybody sees everybody
	return w
}

func (w *world) start(id, incarnation string) {
	nd := &node{w: w, self: Subject{Instance: id, Incarnation: incarnation}, table: router.NewTable()}
	nd.runner = NewRunner(Config{
		Self: nd.self, Table: nd.table, Peers: nd,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return w.dial(ctx, nd, address)
		},
		Evict: func(_ context.Context, s Subject, _ Proof) (int, error) { return w.evict(nd, s) },
		Nudge: func(router.Epoch) { w.mu.Lock(); nd.nudges++; w.mu.Unlock() },
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[id+":1"] = nd
	if !slices.ContainsFunc(w.group, func(in router.Instance) bool { return in.ID == id }) {
		w.group = append(w.group, router.Instance{ID: id, Incarnation: incarnation, Endpoint: id + ":1"})
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); _ = nd.runner.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

// publish gives everybody the group of now.
func (w *world) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	snap, err := router.NewSnapshot(router.Data{Application: "app", Epoch: w.epoch, Instances: slices.Clone(w.group)})
	if err != nil {
		w.t.Error(err)
		return
	}
	for _, nd := range w.nodes {
		if nd.state == up {
			if err := nd.table.Publish(snap); err != nil {
				w.t.Error(err)
			}
		}
	}
}

func (w *world) evict(by *node, s Subject) (int, error) {
	w.mu.Lock()
	if by.state != up {
		w.mu.Unlock()
		return 0, errors.New("dead")
	}
	before := len(w.group)
	w.group = slices.DeleteFunc(w.group, func(in router.Instance) bool { return in.ID == s.Instance && in.Incarnation == s.Incarnation })
	removed := before - len(w.group)
	if removed > 0 {
		w.log = append(w.log, eviction{by: by.self.Instance, of: s, at: time.Now()})
	}
	w.mu.Unlock()
	time.Sleep(100 * time.Millisecond) // the group settles
	if removed > 0 {
		w.publish()
	}
	return removed, nil
}

func (w *world) evictions() []eviction {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// set changes what instances do, all at the same moment. Connections to those that die break.
func (w *world) set(s nodeState, ids ...string) {
	w.mu.Lock()
	for _, id := range ids {
		w.nodes[id+":1"].state = s
	}
	var others []*node
	for _, nd := range w.nodes {
		if nd.state == up {
			others = append(others, nd)
		}
	}
	w.mu.Unlock()
	if s == dead {
		for _, nd := range others {
			for _, id := range ids {
				nd.runner.Broken(id + ":1")
			}
		}
	}
}

type openConn struct {
	net.Conn
	at string
}

func (c openConn) RemoteAddr() net.Addr { return address(c.at) }

type address string

func (a address) Network() string { return "test" }
func (a address) String() string  { return string(a) }

func (w *world) dial(ctx context.Context, from *node, endpoint string) (net.Conn, error) {
	w.mu.Lock()
	if from.state != up {
		w.mu.Unlock()
		return nil, errors.New("dead")
	}
	nd := w.nodes[endpoint]
	refuse := nd == nil || nd.state == dead || w.firewall[[2]string{from.self.Instance, endpoint[:1]}]
	w.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	here, there := net.Pipe()
	_ = there.Close()
	return openConn{Conn: here, at: endpoint}, ctx.Err() // the kernel accepts for a process that is stopped
}

// Suspect implements Peers.
func (nd *node) Suspect(ctx context.Context, endpoint string, s Subject, _ Wait) (Sighting, string, error) {
	conn, err := nd.w.dial(ctx, nd, endpoint)
	if err != nil {
		return Sighting{}, "", err
	}
	_ = conn.Close()
	nd.w.mu.Lock()
	to := nd.w.nodes[endpoint]
	if to == nil { // gone since it was dialled
		nd.w.mu.Unlock()
		return Sighting{}, "", errors.New("the connection broke")
	}
	state := to.state
	nd.w.mu.Unlock()
	if state == paused {
		<-ctx.Done()
		return Sighting{}, "", ctx.Err()
	}
	return to.runner.Suspect(ctx, s), to.self.Instance, nil
}

// Rejoin implements Peers.
func (nd *node) Rejoin(ctx context.Context, endpoint string, s Subject, epoch router.Epoch) error {
	nd.w.mu.Lock()
	to := nd.w.nodes[endpoint]
	answers := to != nil && to.state == up
	nd.w.mu.Unlock()
	if !answers {
		return errors.New("no answer")
	}
	to.runner.Rejoin(ctx, s, epoch)
	return nil
}

func (w *world) doubting(id string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, nd := range w.nodes {
		if nd.state == up && nd.runner.Doubts(id) && nd.runner.Doubts(id+":1") {
			n++
		}
	}
	return n
}

// An instance that dies is evicted once, by whoever comes after it, within half a second, and everybody is told.
func TestSimDeadIsEvicted(t *testing.T) {
	for n := 3; n <= 7; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, n)
			began := time.Now()
			w.set(dead, "b")
			synctest.Wait()
			if d := w.doubting("b"); d != n-1 {
				t.Errorf("%d of %d avoid it at once", d, n-1)
			}
			time.Sleep(time.Minute)
			log := w.evictions()
			if len(log) != 1 || log[0].of != (Subject{Instance: "b", Incarnation: "1"}) || log[0].by != "c" {
				t.Fatalf("%d instances: %+v", n, log)
			}
			if took := log[0].at.Sub(began); took > 500*time.Millisecond {
				t.Errorf("%d instances: evicted after %s", n, took)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, nd := range w.nodes {
				if id := nd.self.Instance; id != "b" && id != "c" && nd.nudges != 1 {
					t.Errorf("%s was told %d times", id, nd.nudges)
				}
			}
		})
	}
}

// Of two on different machines neither can prove that the other is dead. Of four, two that die together are out, of five three
// are not: no majority of the others is left to say so.
func TestSimManyDie(t *testing.T) {
	for _, tc := range []struct{ n, die, out int }{{2, 1, 0}, {3, 2, 0}, {4, 2, 2}, {5, 2, 2}, {5, 3, 0}, {7, 3, 3}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, tc.n)
			var ids []string
			for i := range tc.die {
				ids = append(ids, string(rune('a'+tc.n-1-i)))
			}
			w.set(dead, ids...)
			time.Sleep(time.Minute)
			if log := w.evictions(); len(log) != tc.out {
				t.Errorf("%d of %d died, %d are evicted, want %d: %+v", tc.die, tc.n, len(log), tc.out, log)
			}
		})
	}
}

// A paused instance is avoided by reads within some seconds, never evicted, and trusted again when it answers.
func TestSimPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.set(paused, "d")
		time.Sleep(3 * time.Second)
		if d := w.doubting("d"); d != 3 {
			t.Errorf("%d of 3 avoid it", d)
		}
		time.Sleep(10 * time.Minute)
		if log := w.evictions(); len(log) != 0 {
			t.Fatalf("%+v", log)
		}
		w.set(up, "d")
		time.Sleep(10 * time.Second)
		if d := w.doubting("d"); d != 0 {
			t.Errorf("%d of 3 still avoid it", d)
		}
	})
}

// One that refuses some, by a firewall between them, is seen by the others, or at least by itself in the map.
func TestSimFirewall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.mu.Lock()
		w.firewall[[2]string{"a", "e"}], w.firewall[[2]string{"b", "e"}] = true, true
		w.mu.Unlock()
		time.Sleep(10 * time.Minute)
		if log := w.evictions(); len(log) != 0 {
			t.Fatalf("%+v", log)
		}
		if d := w.doubting("e"); d != 2 {
			t.Errorf("%d avoid it, want the two who cannot reach it", d)
		}
	})
}

// A restarted instance at the same endpoint: its former incarnation, which the group still has, is evicted, and it is not.
func TestSimRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.set(dead, "c")
		w.start("c", "2")
		time.Sleep(10 * time.Second)
		log := w.evictions()
		if len(log) != 1 || log[0].of != (Subject{Instance: "c", Incarnation: "1"}) {
			t.Fatalf("%+v", log)
		}
		w.mu.Lock()
		if !slices.ContainsFunc(w.group, func(in router.Instance) bool { return in.ID == "c" }) {
			w.group = append(w.group, router.Instance{ID: "c", Incarnation: "2", Endpoint: "c:1"})
		}
		w.mu.Unlock()
		w.publish()
		time.Sleep(time.Minute)
		if log := w.evictions(); len(log) != 1 {
			t.Fatalf("%+v", log)
		}
		if d := w.doubting("c"); d != 0 {
			t.Errorf("%d avoid the new one", d)
		}
	})
}

// MR-05: another process that listens on the address of one that died is not it, whatever it says about it: that one is avoided, and
// as nothing refuses there, its session decides.
func TestSimAnotherProcessAtTheAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.mu.Lock()
		other := w.nodes["d:1"]
		delete(w.nodes, "d:1")
		w.nodes["c:1"], other = other, w.nodes["c:1"] // c is gone, and d answers for it
		other.state = dead
		w.mu.Unlock()
		time.Sleep(time.Minute)
		for _, id := range []string{"a:1", "b:1"} {
			w.mu.Lock()
			nd := w.nodes[id]
			w.mu.Unlock()
			if !nd.runner.Doubts("c") {
				t.Errorf("%s takes d for c", id)
			}
		}
		for _, e := range w.evictions() {
			if e.of.Instance == "c" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// Run ends with its context, also in the middle of looks that nobody answers.
func TestSimRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.set(paused, "b")
		w.set(paused, "c")
		time.Sleep(1500 * time.Millisecond)
	}) // the clean-up waits for Run
}
