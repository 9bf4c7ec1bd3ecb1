package processor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/test/bufconn"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/server"
	"github.com/statemesh/statemesh/store"
)

// copyNet lets the instances of a fleet ask each other for copies, over the real client and server.
type copyNet struct {
	f *fleet

	mu    sync.Mutex
	lis   map[string]*bufconn.Listener // by endpoint
	conns map[string][]net.Conn        // to it
	dead  map[string]bool
	busy  map[string]bool
	slow  time.Duration // of each read of a copy
	// onRead sees what comes from an endpoint, and may change it or fail.
	onRead func(endpoint string, b []byte) error
}

// newCopyNet makes a fleet whose instances seed each other as soon as 200 offsets are to be read. Its values are so long that
// a copy takes some chunks.
func newCopyNet(f *fleet) *copyNet {
	n := &copyNet{
		f: f, lis: make(map[string]*bufconn.Listener), conns: make(map[string][]net.Conn), dead: make(map[string]bool), busy: make(map[string]bool),
	}
	f.topo = paddedTopology
	before := f.options
	f.options = func(c *Config) {
		if before != nil {
			before(c)
		}
		c.SnapshotMinOffsets = 200
		c.AcceptableRecoveryLag = -1
		pool := client.NewPool(client.PoolConfig{Dial: n.dial})
		f.t.Cleanup(func() { _ = pool.Close() })
		c.NoSnapshots, c.Peers = false, &netPeers{Peers: c.Peers, copies: pool.Mesh(testApp, c.ProcessID), net: n}
	}
	return n
}

// netPeers are the peers of an instance, which give copies of tasks over connections.
type netPeers struct {
	Peers

	copies *client.Mesh
	net    *copyNet
}

func (p *netPeers) CopyTask(ctx context.Context, endpoint string, req store.CopyRequest, to store.CopyTaker) error {
	return p.copies.CopyTask(ctx, endpoint, req, to)
}

func (p *netPeers) Suspected(to router.Replica) bool {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	return p.net.dead[to.Endpoint]
}

// noQueries are the connections of a server that is asked for copies alone.
type noQueries struct{}

func (noQueries) Query(string) (statemeshv1.QueryServiceClient, error) {
	return nil, errors.New("no queries")
}

func (noQueries) Metadata(string) (statemeshv1.MetadataServiceClient, error) {
	return nil, errors.New("no metadata")
}

// start starts an instance with a server.
func (n *copyNet) start(name string, change ...func(*Config)) *instance {
	n.f.t.Helper()
	in := n.f.start(name, change...)
	endpoint := name + ":1"
	lis := bufconn.Listen(1 << 20)
	n.mu.Lock()
	n.lis[endpoint], n.dead[endpoint] = lis, false
	n.mu.Unlock()
	srv, err := server.New(server.Config{
		Application: testApp, Instance: name, Endpoint: endpoint, Listener: lis, GracePeriod: time.Second, Logger: n.f.log.With("instance", name),
	}, server.Deps{Stores: in.rt, Peers: noQueries{}, Table: in.table, Copies: &busyCopies{net: n, endpoint: endpoint, rt: in.rt}})
	if err != nil {
		n.f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(n.f.t.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	n.f.t.Cleanup(func() {
		stop()
		n.sever(endpoint)
		if err := <-done; err != nil {
			n.f.t.Errorf("server of %s: %v", name, err)
		}
	})
	return in
}

// busyCopies is an instance that may be busy with others.
type busyCopies struct {
	net      *copyNet
	endpoint string
	rt       *Runtime
}

func (b *busyCopies) OpenCopy(ctx context.Context, req store.CopyRequest, rate int64) (store.Copy, error) {
	b.net.mu.Lock()
	busy, slow := b.net.busy[b.endpoint], b.net.slow
	b.net.mu.Unlock()
	if busy {
		return nil, &store.OverloadedError{Limit: "copies"}
	}
	c, err := b.rt.OpenCopy(ctx, req, rate)
	if err == nil && slow > 0 {
		c = &slowCopy{Copy: c, each: slow}
	}
	return c, err
}

// slowCopy takes its time.
type slowCopy struct {
	store.Copy

	each time.Duration
}

func (c *slowCopy) Read(ctx context.Context, after store.CopyPlace, limit int) ([]store.CopyRow, bool, error) {
	if err := sleep(ctx, c.each); err != nil {
		return nil, false, err
	}
	return c.Copy.Read(ctx, after, limit/16)
}

func (n *copyNet) set(busy bool, names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		n.busy[name+":1"] = busy
	}
}

// suspect makes an instance one that is asked for nothing more; what it sends goes on.
func (n *copyNet) suspect(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dead[name+":1"] = true
}

func (n *copyNet) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	n.mu.Lock()
	lis, dead := n.lis[endpoint], n.dead[endpoint]
	n.mu.Unlock()
	if lis == nil || dead {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	conn, err := lis.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c := &seenConn{Conn: conn, net: n, endpoint: endpoint}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[endpoint] = append(n.conns[endpoint], c)
	return c, nil
}

// cut breaks the connections to an instance, which may be made again; sever does for good.
func (n *copyNet) cut(endpoint string) {
	n.mu.Lock()
	conns := n.conns[endpoint]
	n.conns[endpoint] = nil
	n.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

func (n *copyNet) sever(endpoint string) {
	n.mu.Lock()
	n.dead[endpoint] = true
	n.mu.Unlock()
	n.cut(endpoint)
}

// seenConn shows what is read.
type seenConn struct {
	net.Conn

	net      *copyNet
	endpoint string
}

func (c *seenConn) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	c.net.mu.Lock()
	see := c.net.onRead
	c.net.mu.Unlock()
	if see != nil && k > 0 {
		if err := see(c.endpoint, b[:k]); err != nil {
			return 0, err
		}
	}
	return k, err
}

func (n *copyNet) see(f func(endpoint string, b []byte) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onRead = f
}

// after calls f once, when so many bytes have come from any one endpoint.
func after(limit int64, f func(endpoint string)) func(string, []byte) error {
	var mu sync.Mutex
	done := false
	seen := make(map[string]int64)
	return func(endpoint string, b []byte) error {
		mu.Lock()
		seen[endpoint] += int64(len(b))
		now := !done && seen[endpoint] > limit
		done = done || now
		mu.Unlock()
		if now {
			f(endpoint)
		}
		return nil
	}
}

// paddedTopology is countTopology with long values in the store.
func paddedTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("count", func() Processor { return &padded{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("sink", SinkOptions{}, testOut, "count")
}

type padded struct {
	ctx *Context
	kv  store.KeyValue
}

const padding = 8 << 10

func (c *padded) Init(ctx *Context) (err error) {
	c.ctx = ctx
	c.kv, err = ctx.Store(testStore)
	return err
}

func (c *padded) Process(r *Record) error {
	n, err := readCount(c.kv.Get(r.Key))
	if err != nil {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, n+1)
	long := append(value[:8:8], bytes.Repeat([]byte{'p'}, padding)...)
	if err := c.kv.Put(r.Key, store.Value{Data: long, Timestamp: r.Timestamp}); err != nil {
		return err
	}
	return c.ctx.Forward(Record{Key: r.Key, Value: value, Timestamp: r.Timestamp})
}

func (c *padded) Close() error { return nil }

// asked is how many attempts at a copy of a peer ended so.
func (in *instance) asked(outcome string) int {
	return counted(in.rt.metrics.copies.WithLabelValues(outcome))
}

func counted(c prometheus.Counter) int {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		return -1
	}
	return int(m.GetCounter().GetValue())
}

// grow writes records until each of the tasks has a changelog that is worth a copy.
func (n *copyNet) grow(tr truth, rng *rand.Rand) {
	n.f.t.Helper()
	for range 20 { // commits, each of which writes each key once
		n.f.produce(tr, rng, 60, 80)
		pause(time.Duration(120+rng.IntN(100)) * time.Millisecond)
	}
	n.f.waitCaughtUp(time.Minute)
}

// TestSimSnapshotStandby: an instance that is new gets its copies from the owner and not from the changelogs, and takes the tasks over
// with them. Whatever answers meanwhile is right, and no fresher than it is.
func TestSimSnapshotStandby(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 2
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		n := newCopyNet(f)
		tr := truth{}
		a := n.start("a")
		n.grow(tr, rng)
		w := newWitness(f)
		var mu sync.Mutex
		all := []*instance{a}
		stop := w.watch(rng, tasks, store.ReadOptions{MaxAge: 10 * time.Second}, func() []*instance {
			mu.Lock()
			defer mu.Unlock()
			return all
		})
		defer stop()
		b := n.start("b")
		mu.Lock()
		all = []*instance{a, b}
		mu.Unlock()
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, a, b) })
		for range 10 {
			f.produce(tr, rng, 20, 80)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		f.waitCaughtUp(time.Minute)
		if k := b.asked("taken"); k != tasks {
			t.Errorf("%d copies were taken, want one of each of %d tasks", k, tasks)
		}
		f.eventually("both answer", time.Minute, func() error { return follows(tasks, 1, a, b) })
		stop()
		f.check(tr, a, b)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		f.eventually("b has it all", time.Minute, func() error { return allServe(tasks, b) })
		f.check(tr, b)
	})
}

// TestSimSnapshotOwner: the same for an instance that becomes the owner before it has anything: the copy is that of the owner before.
func TestSimSnapshotOwner(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 2
		f := newFleet(t, true, tasks)
		n := newCopyNet(f)
		everybody := func(c *Config) { c.AcceptableRecoveryLag = 1 << 40 } // tasks move at once
		tr := truth{}
		a := n.start("a", everybody)
		n.grow(tr, rng)
		b := n.start("b", everybody)
		for range 10 {
			f.produce(tr, rng, 20, 80)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
		f.eventually("tasks are shared", time.Minute, func() error {
			if err := allServe(tasks, a, b); err != nil {
				return err
			}
			if len(b.rt.Tasks()) == 0 {
				return errors.New("b has no task")
			}
			return nil
		})
		f.waitCaughtUp(time.Minute)
		if b.asked("taken") == 0 {
			t.Error("no copy was taken")
		}
		f.check(tr, a, b)
	})
}

// TestSimSnapshotCut breaks the connection in the middle of a copy: it is gone on with where it was.
func TestSimSnapshotCut(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.withStandbys(1)
		n := newCopyNet(f)
		tr := truth{}
		a := n.start("a")
		n.grow(tr, rng)
		var receiver atomic.Pointer[instance]
		var half error
		var held []router.Holding
		n.see(after(int64(300+rng.IntN(250))<<10, func(endpoint string) {
			// Half a copy is nothing to read, not even for who takes what there is. It begins when the header was looked at.
			rt := receiver.Load().rt
			for rt.tasks.lookup(store.TaskID{}).read.from.Load() == nil {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Millisecond)
			rd, err := rt.Read(t.Context(), testStore, 0, store.ReadOptions{Partial: true})
			if half = err; err == nil {
				rd.Close()
			}
			held = rt.Holdings()
			n.cut(endpoint)
		}))
		b := n.start("b")
		receiver.Store(b)
		f.produce(tr, rng, 20, 80)
		f.eventually("copies", time.Minute, func() error { return follows(1, 1, a, b) })
		if k, r := b.asked("taken"), counted(b.rt.metrics.copyResumes); k != 1 || r == 0 {
			t.Errorf("%d copies were taken, gone on with %d times: want one that was", k, r)
		}
		if e, ok := errors.AsType[*store.NotReadyError](half); !ok || e.Reason != reasonCopying+"a" || e.Total == 0 {
			t.Errorf("in the middle of it a read got %v", half)
		}
		if len(held) != 1 || held[0].Role != router.HeldAsStandby || held[0].State != router.HoldingCopying || held[0].From != "a" || held[0].Lag != -1 ||
			held[0].Restored == 0 || held[0].Restored >= held[0].Total || held[0].Bytes < held[0].Restored*padding {
			t.Errorf("in the middle of it b said that it holds %+v", held)
		}
		if rows, most := counted(b.rt.metrics.copyRows), len(tr); rows > most {
			t.Errorf("%d rows came of %d: some came again", rows, most)
		}
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		f.waitCaughtUp(time.Minute)
		f.eventually("b has it all", time.Minute, func() error { return allServe(1, b) })
		f.check(tr, b)
	})
}

// TestSimSnapshotCorrupt changes a count on its way: the copy is refused, and the changelog is read.
func TestSimSnapshotCorrupt(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.withStandbys(1)
		n := newCopyNet(f)
		tr := truth{}
		a := n.start("a")
		n.grow(tr, rng)
		var changed atomic.Int64
		n.see(func(_ string, b []byte) error {
			// key | length of the value | timestamp | count
			const at = len("key-000") + 2 + 8 + 7
			if i := bytes.Index(b, []byte("key-")); i >= 0 && i+at < len(b) && changed.Add(1) == 1 {
				b[i+at] ^= 1
			}
			return nil
		})
		b := n.start("b")
		f.eventually("copies", time.Minute, func() error { return follows(1, 1, a, b) })
		if changed.Load() == 0 {
			t.Fatal("nothing was changed")
		}
		if b.asked("broken") != 1 || b.asked("taken") != 0 {
			t.Errorf("%d copies broken, %d taken: want the one broken", b.asked("broken"), b.asked("taken"))
		}
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		f.eventually("b has it all", time.Minute, func() error { return allServe(1, b) })
		f.check(tr, b)
	})
}

// TestSimSnapshotDonorDies kills who sends a copy in the middle of it: another one is asked, or the changelog is read.
func TestSimSnapshotDonorDies(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.withStandbys(2)
		n := newCopyNet(f)
		before := f.options
		f.options = func(c *Config) { before(c); c.SessionTimeout = 6 * time.Second }
		tr := truth{}
		a, b := n.start("a"), n.start("b")
		n.grow(tr, rng)
		f.eventually("copies", time.Minute, func() error { return follows(1, 1, a, b) })
		died := make(chan string, 1)
		n.see(after(int64(300+rng.IntN(250))<<10, func(endpoint string) {
			n.sever(endpoint)
			died <- endpoint
		}))
		c := n.start("c")
		survivor := b
		select {
		case endpoint := <-died:
			victim := a
			if endpoint == "b:1" {
				victim, survivor = b, a
			}
			victim.kill("d")
		case <-time.After(time.Minute):
			t.Fatal("nobody was asked for a copy")
		}
		f.reap(survivor, c)
		f.eventually("copies of who is left", 2*time.Minute, func() error { return follows(1, 1, survivor, c) })
		if c.asked("cut") == 0 && c.asked("taken") == 0 {
			t.Error("neither cut nor taken")
		}
		f.produce(tr, rng, 50, 80)
		f.waitCaughtUp(time.Minute)
		f.check(tr, survivor, c)
	})
}

// TestSimSnapshotBusy: the nearest peer is asked first, the next when that one is busy; when all are, one is waited for, and in the
// end the changelog is read.
func TestSimSnapshotBusy(t *testing.T) {
	for _, c := range []struct {
		name  string
		busy  []string
		free  time.Duration // when they are free again; 0: never
		taken int
	}{
		{"the nearest", []string{"a"}, 0, 1},
		{"all, for a while", []string{"a", "b"}, 5 * time.Second, 1},
		{"all, for ever", []string{"a", "b"}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				f := newFleet(t, true, 1)
				f.withStandbys(2)
				n := newCopyNet(f)
				tr := truth{}
				on := func(machine string) func(*Config) {
					return func(c *Config) {
						c.Host = HostID{BootID: machine, PIDNamespace: "1", PID: 1, StartTime: 1}
					}
				}
				a, b := n.start("a", on("near")), n.start("b", on("far"))
				n.grow(tr, rng)
				f.eventually("copies", time.Minute, func() error { return follows(1, 1, a, b) })
				n.set(true, c.busy...)
				began := time.Now()
				logged := &levels{}
				third := n.start("c", on("near"), func(c *Config) { c.Logger = slog.New(logged) })
				if c.free > 0 {
					time.Sleep(c.free)
					n.set(false, c.busy...)
				}
				f.eventually("copies", time.Minute, func() error { return follows(1, 2, a, b, third) })
				took := time.Since(began)
				if third.asked("taken") != c.taken || third.asked("busy") == 0 {
					t.Errorf("%d copies taken, %d times busy: want %d, and some", third.asked("taken"), third.asked("busy"), c.taken)
				}
				if c.taken == 0 && took < seedPatience {
					t.Errorf("gave up after %s, want a patience of %s", took, seedPatience)
				}
				if said, warned := logged.said("no peer has given a copy, reading the changelogs"), logged.said("no copy from a peer"); said != 1-c.taken || warned > 0 {
					t.Errorf("%d lines of the attempt and %d of peers, want %d and none", said, warned, 1-c.taken)
				}
				f.check(tr, a, b, third)
			})
		})
	}
}

// TestSimSnapshotSlower: with as many keys as offsets the changelog is as fast, and nobody is bothered.
func TestSimSnapshotSlower(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.withStandbys(1)
		n := newCopyNet(f)
		tr := truth{}
		a := n.start("a")
		f.produce(tr, rng, 800, 100_000)
		f.waitCaughtUp(time.Minute)
		b := n.start("b")
		f.eventually("copies", time.Minute, func() error { return follows(1, 1, a, b) })
		if b.asked("slower") != 1 || b.asked("taken") != 0 {
			t.Errorf("%d copies slower, %d taken: want the one slower", b.asked("slower"), b.asked("taken"))
		}
		f.check(tr, a, b)
	})
}

// TestSimSnapshotKept: what is pinned for receivers that do not come back is let go of in time, and not before.
func TestSimSnapshotKept(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		tr := truth{}
		a := f.start("a")
		f.produce(tr, rng, 100, 50)
		f.waitCaughtUp(time.Minute)
		req := store.CopyRequest{}
		open := func(after *store.CopyMark) store.Copy {
			t.Helper()
			req.After = after
			c, err := a.rt.OpenCopy(t.Context(), req, 0)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := open(nil)
		rows, _, err := c.Read(t.Context(), store.CopyPlace{}, 1)
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d rows: %v", len(rows), err)
		}
		mark := &store.CopyMark{ID: c.ID(), Place: rows[0].Place().Clone(), Rows: 1}
		c.Close()
		f.produce(tr, rng, 100, 50)
		f.waitCaughtUp(time.Minute)
		time.Sleep(keepCut - 10*time.Second)
		again := open(mark)
		if have, want := again.Header().Checkpoint.Sequence, c.Header().Checkpoint.Sequence; have != want {
			t.Errorf("gone on with at commit %d, begun at %d", have, want)
		}
		if age := again.Header().Age; age < keepCut-10*time.Second || age > keepCut {
			t.Errorf("it is said to be %s old, and was pinned %s ago", age, keepCut-10*time.Second)
		}
		again.Sent()
		again.Close()
		time.Sleep(keepSent + 2*donorInterval)
		if _, err := a.rt.OpenCopy(t.Context(), store.CopyRequest{After: mark}, 0); !errors.Is(err, store.ErrClosed) {
			t.Errorf("gone on with after its end: %v", err)
		}
		for range 2 * keptMost {
			open(nil).Close()
		}
		if n := a.stores.OpenSnapshots(); n > keptMost {
			t.Errorf("%d snapshots are kept, want at most %d", n, keptMost)
		}
		time.Sleep(keepCut + 2*donorInterval)
		if n := a.stores.OpenSnapshots(); n != 0 {
			t.Errorf("%d snapshots are left", n)
		}
		for _, id := range []store.TaskID{{Partition: 1}, {Subtopology: 7}, {Partition: -1}} {
			if _, err := a.rt.OpenCopy(t.Context(), store.CopyRequest{Task: id}, 0); !errors.Is(err, store.ErrInvalidRequest) {
				t.Errorf("a copy of task %s: %v", id, err)
			}
		}
		open(nil).Close()
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if n := a.stores.OpenSnapshots(); n != 0 {
			t.Errorf("%d snapshots are left at the end", n)
		}
		if _, err := a.rt.OpenCopy(t.Context(), store.CopyRequest{}, 0); !errors.Is(err, store.ErrShuttingDown) {
			t.Errorf("a copy of what has stopped: %v", err)
		}
	})
}
