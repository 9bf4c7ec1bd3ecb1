package group

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

const testGroup = "flights"

// testShape has two sub-topologies: one that joins two topics (the second with fewer partitions), one without state.
func testShape(partitions int) Shape {
	s := Shape{Topology: 7}
	for p := range partitions {
		in := []store.TopicPartition{{Topic: "flights", Partition: store.Partition(p)}}
		if p < (partitions+1)/2 {
			in = append(in, store.TopicPartition{Topic: "planes", Partition: store.Partition(p)})
		}
		s.Tasks = append(s.Tasks, TaskShape{ID: store.TaskID{Subtopology: 0, Partition: store.Partition(p)}, Inputs: in, Stateful: true})
	}
	for p := range partitions {
		in := []store.TopicPartition{{Topic: "weather", Partition: store.Partition(p)}}
		s.Tasks = append(s.Tasks, TaskShape{ID: store.TaskID{Subtopology: 1, Partition: store.Partition(p)}, Inputs: in})
	}
	return s
}

func testStores(partitions int) []router.StoreInfo {
	return []router.StoreInfo{{Name: "per-plane", Kind: store.KindKeyValue, Subtopology: 0, Partitions: int32(partitions), SourceTopic: "flights"}}
}

// world is a broker and the processes on it. It sees to it that no partition ever has two owners.
type world struct {
	t       *testing.T
	brokers []string
	cluster *kfake.Cluster
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	shape   Shape
	logs    *logBuffer

	mu     sync.Mutex
	owners map[store.TopicPartition]string
	errs   []error
}

func newWorld(t *testing.T, partitions int, opts ...kfake.Opt) *world {
	t.Helper()
	c := newCluster(t, partitions, opts...)
	return &world{t: t, brokers: c.ListenAddrs(), cluster: c, shape: testShape(partitions), owners: map[store.TopicPartition]string{}, logs: &logBuffer{}}
}

func newSimWorld(t *testing.T, partitions int) *world {
	t.Helper()
	var network kfake.VirtualNetwork
	c := newCluster(t, partitions, kfake.ListenFn(network.Listen))
	return &world{
		t: t, brokers: c.ListenAddrs(), cluster: c, dial: network.DialContext, shape: testShape(partitions),
		owners: map[store.TopicPartition]string{}, logs: &logBuffer{},
	}
}

func newCluster(t *testing.T, partitions int, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := fakekafka.New(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.SleepOutOfOrder(),
		kfake.SeedTopics(int32(partitions), "flights", "weather"), kfake.SeedTopics(int32((partitions+1)/2), "planes"),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (w *world) fail(format string, args ...any) {
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

// check fails the test for whatever went wrong on the way.
func (w *world) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range w.errs {
		w.t.Error(err)
	}
	if w.t.Failed() {
		w.t.Log(w.logs.String())
	}
}

// process is one process with its threads.
type process struct {
	w        *world
	id       string
	in       string // incarnation
	dir      string
	table    *router.Table
	obs      *Observer
	threads  []*thread
	now      func() time.Time
	shape    Shape
	endpoint string
	held     []Held
	tags     map[string]string
	options  Options
	ends     func(context.Context, []store.TaskID) (map[store.TaskID]int64, error)
	disk     *disk
	corrupt  func(*kmsg.ConsumerMemberMetadata) // what it sends at joins
	letGo    func(map[string][]int32)           // runs before a revoke is done
	cut      func()                             // of its network; nil without one of its own
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	stop     context.CancelFunc
	done     chan struct{}
}

// thread is one member.
type thread struct {
	p   *process
	txn string
	cl  *kgo.Client

	mu          sync.Mutex
	owned       map[store.TopicPartition]bool
	assignments []Assignment
}

type processOpt func(*process)

func withClock(now func() time.Time) processOpt { return func(p *process) { p.now = now } }
func withDir(dir string) processOpt             { return func(p *process) { p.dir = dir } }
func withShape(s Shape) processOpt              { return func(p *process) { p.shape = s } }
func withEndpoint(e string) processOpt          { return func(p *process) { p.endpoint = e } }
func withHeld(h ...Held) processOpt             { return func(p *process) { p.held = h } }
func withLetGo(fn func(map[string][]int32)) processOpt {
	return func(p *process) { p.letGo = fn }
}

func withCorrupt(fn func(*kmsg.ConsumerMemberMetadata)) processOpt {
	return func(p *process) { p.corrupt = fn }
}
func withIncarnation(in string) processOpt { return func(p *process) { p.in = in } }

// opts are those of all clients of the process.
func (p *process) opts(more ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(p.w.brokers...)}
	if p.dial != nil {
		opts = append(opts, kgo.Dialer(p.dial))
	}
	return append(opts, more...)
}

// corrupted is a balancer of another version, or worse.
type corrupted struct {
	*Balancer
	change func(*kmsg.ConsumerMemberMetadata)
}

func (c *corrupted) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	var meta kmsg.ConsumerMemberMetadata
	if err := meta.ReadFrom(c.Balancer.JoinGroupMetadata(topics, current, generation)); err != nil {
		return nil
	}
	c.change(&meta)
	return meta.AppendTo(nil)
}

// start starts a process with n threads, that leaves when stopped.
func (w *world) start(id string, n int, opts ...processOpt) *process {
	w.t.Helper()
	p := &process{
		w: w, id: id, in: id + "-1", dir: w.t.TempDir(), table: router.NewTable(), shape: w.shape,
		endpoint: id + ".example:7070", dial: w.dial, done: make(chan struct{}),
	}
	for _, o := range opts {
		o(p)
	}
	admin, err := kgo.NewClient(p.opts()...)
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.logs, nil)).With("process", id)
	p.obs, err = NewObserver(ObserverConfig{
		Application: testGroup, Group: testGroup, Stores: testStores(len(w.shape.Tasks) / 2), Table: p.table, Client: admin,
		EpochFile: filepath.Join(p.dir, "epoch"), Logger: log,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	p.stop = func() { cancel(); <-p.done }
	go func() {
		defer close(p.done)
		defer admin.Close()
		if err := p.obs.Run(ctx); err != nil {
			w.t.Error(err)
		}
	}()
	for i := range n {
		p.threads = append(p.threads, w.startThread(p, i, log))
	}
	w.t.Cleanup(p.leave)
	return p
}

func (w *world) startThread(p *process, i int, log *slog.Logger) *thread {
	w.t.Helper()
	th := &thread{p: p, txn: fmt.Sprintf("%s-%s-%d", testGroup, p.in, i), owned: map[store.TopicPartition]bool{}}
	bal, err := NewBalancer(w.t.Context(), BalancerConfig{
		Shape: p.shape, Observer: p.obs, Logger: log.With("thread", i), Now: p.now,
		Member: func() Member {
			m := Member{ProcessID: p.id, Incarnation: p.in, Endpoint: p.endpoint, TransactionalID: th.txn, Thread: i}
			if i == 0 {
				m.Held, m.Tags = slices.Concat(p.held, p.disk.list()), p.tags
			}
			return m
		},
		OnAssignment: func(a Assignment) {
			th.mu.Lock()
			defer th.mu.Unlock()
			th.assignments = append(th.assignments, a)
			p.disk.heed(i, a)
			th.ask(a)
		},
		Options: p.options, Ends: p.ends,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	var b kgo.GroupBalancer = bal
	if p.corrupt != nil {
		b = &corrupted{Balancer: bal, change: p.corrupt}
	}
	cl, err := kgo.NewClient(p.opts(
		kgo.ConsumerGroup(testGroup), kgo.ConsumeTopics("flights", "planes", "weather"), kgo.Balancers(b),
		kgo.DisableAutoCommit(), // its goroutine waits on a plain mutex during joins, which stops the time of a bubble
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.SessionTimeout(6*time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { th.assigned(m) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			if p.letGo != nil && len(m) > 0 {
				p.letGo(m)
			}
			th.gone(m)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { th.gone(m) }),
	)...)
	if err != nil {
		w.t.Fatal(err)
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	th.cl = cl
	return th
}

func (th *thread) assigned(m map[string][]int32) {
	w := th.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	th.mu.Lock()
	defer th.mu.Unlock()
	for topic, ps := range m {
		for _, p := range ps {
			tp := store.TopicPartition{Topic: topic, Partition: store.Partition(p)}
			if other, ok := w.owners[tp]; ok && other != th.txn {
				w.fail("%s assigned to %s, still with %s", tp, th.txn, other)
			}
			w.owners[tp] = th.txn
			th.owned[tp] = true
		}
	}
	// Whole tasks: the partitions are exactly the inputs of the assignment's tasks.
	last := th.assignments[len(th.assignments)-1]
	want := map[store.TopicPartition]bool{}
	for _, task := range th.p.shape.Tasks {
		if slices.Contains(last.Active, task.ID) {
			for _, in := range task.Inputs {
				want[in] = true
			}
		}
	}
	if len(want) != len(th.owned) {
		w.fail("%s owns %d partitions, its tasks have %d", th.txn, len(th.owned), len(want))
	}
}

func (th *thread) gone(m map[string][]int32) {
	w := th.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	th.mu.Lock()
	defer th.mu.Unlock()
	for topic, ps := range m {
		for _, p := range ps {
			tp := store.TopicPartition{Topic: topic, Partition: store.Partition(p)}
			delete(th.owned, tp)
			if w.owners[tp] == th.txn {
				delete(w.owners, tp)
			}
		}
	}
}

// last is the newest assignment of the thread.
func (th *thread) last() Assignment {
	th.mu.Lock()
	defer th.mu.Unlock()
	if len(th.assignments) == 0 {
		return Assignment{}
	}
	return th.assignments[len(th.assignments)-1]
}

func (th *thread) history() []Assignment {
	th.mu.Lock()
	defer th.mu.Unlock()
	return slices.Clone(th.assignments)
}

// leave ends the process in order.
func (p *process) leave() {
	for _, th := range p.threads {
		th.cl.Close()
	}
	p.stop()
}

// vanish ends the process without a word to the group: first its network is cut, then what is left of it goes.
func (p *process) vanish() {
	p.cut()
	p.w.mu.Lock()
	for tp, owner := range p.w.owners {
		if slices.ContainsFunc(p.threads, func(th *thread) bool { return th.txn == owner }) {
			delete(p.w.owners, tp)
		}
	}
	p.w.mu.Unlock()
	p.leave()
}

// settled waits until every process of ps has published one and the same map, in which all tasks have an owner among ps
// and none moves. It returns that map.
func settled(ctx context.Context, t *testing.T, ps ...*process) *router.Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		changed, why := agreed(ps)
		if changed == nil {
			return ps[0].table.Load()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			for _, p := range ps {
				t.Logf("%s: %s", p.id, describe(p.table.Load()))
			}
			t.Log(ps[0].w.logs.String())
			t.Fatalf("no common map: %s", why)
		}
	}
}

// agreed returns nil when the processes agree, else a channel that is closed at the next change of one that is behind.
func agreed(ps []*process) (<-chan struct{}, string) {
	type seen struct {
		snap    *router.Snapshot
		changed <-chan struct{}
	}
	var all []seen
	var top *router.Snapshot
	for _, p := range ps {
		s, c := p.table.Watch()
		if s == nil {
			return c, p.id + " has no map"
		}
		all = append(all, seen{s, c})
		if top == nil || s.Epoch() > top.Epoch() {
			top = s
		}
	}
	for i, a := range all {
		if a.snap.Epoch() < top.Epoch() {
			return a.changed, fmt.Sprintf("%s at epoch %d, want %d", ps[i].id, a.snap.Epoch(), top.Epoch())
		}
	}
	ids := map[string]bool{}
	for _, p := range ps {
		ids[p.id] = true
	}
	instances := top.Instances()
	if len(instances) != len(ids) || slices.ContainsFunc(instances, func(in router.Instance) bool { return !ids[in.ID] }) {
		return all[0].changed, fmt.Sprintf("the map has %d instances", len(instances))
	}
	if len(top.Data().Moving) > 0 {
		return all[0].changed, "tasks are moving"
	}
	return nil, ""
}

func describe(s *router.Snapshot) string {
	if s == nil {
		return "no map"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "epoch %d moving %v", s.Epoch(), s.Data().Moving)
	for _, in := range s.Instances() {
		fmt.Fprintf(&b, "; %s %v", in.ID, in.Active)
	}
	return b.String()
}

// counts is the number of active tasks by instance.
func counts(s *router.Snapshot) map[string]int {
	n := map[string]int{}
	for _, in := range s.Instances() {
		n[in.ID] = len(in.Active)
	}
	return n
}

// logBuffer takes the logs of a test.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
