package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// fleet is a broker and instances of one application around it.
type fleet struct {
	t       testing.TB
	dir     string
	cluster *kfake.Cluster
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	brokers []string
	log     *slog.Logger
	client  *kgo.Client // of the test itself
	starts  int
	paused  bool          // instances are paused before they run
	calm    time.Duration // before a placement is asked for once more; 0: as in production
	options func(*Config)
	topo    func() *Topology

	mu     sync.Mutex
	all    []*instance // that were started
	trace  *trace
	meddle func(net.Conn) net.Conn // with what instances are told; nil: nobody
}

const (
	testApp   = "app"
	testInput = "in"
	testOut   = "out"
	testStore = store.Name("counts")
)

// bareFleet has no broker yet.
func bareFleet(tb testing.TB) *fleet {
	tb.Helper()
	f := &fleet{t: tb, dir: tb.TempDir(), log: slog.New(slog.DiscardHandler), topo: countTopology, trace: &trace{begun: time.Now()}}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("what happened:\n%s", f.trace)
		}
	})
	if os.Getenv("STATEMESH_TEST_LOG") != "" {
		f.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	return f
}

// newFleet starts a broker with the topics in and out. In a bubble all traffic goes over a virtual network.
func newFleet(tb testing.TB, virtual bool, partitions int32, opts ...kfake.Opt) *fleet {
	tb.Helper()
	f := bareFleet(tb)
	all := []kfake.Opt{
		kfake.NumBrokers(1), kfake.SeedTopics(partitions, testInput, testOut, "dead"),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	}
	if virtual {
		var network kfake.VirtualNetwork
		all = append(all, kfake.ListenFn(network.Listen), kfake.Ports(9092))
		f.dial = network.DialContext
	}
	cluster, err := fakekafka.New(append(all, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cluster.Close)
	f.cluster = cluster
	f.brokers = cluster.ListenAddrs()
	copts := []kgo.Opt{
		kgo.SeedBrokers(f.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.UnknownTopicRetries(-1), // simulated, too
		kgo.DisableClientMetrics(),
	}
	if f.dial != nil {
		copts = append(copts, kgo.Dialer(f.dial))
	}
	if f.client, err = kgo.NewClient(copts...); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(f.client.Close)
	if virtual {
		ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
		var watch sync.WaitGroup
		warden := fakekafka.Warden{
			Cluster: cluster, Client: f.client, Groups: func(context.Context) []string { return []string{testApp} }, Stuck: stuck, Log: f.trace.note,
		}
		watch.Go(func() { warden.Run(ctx) })
		tb.Cleanup(func() { cancel(); watch.Wait() })
	}
	return f
}

// instance is one process of the application.
type instance struct {
	f      *fleet
	rt     *Runtime
	stores *layered.Stores
	table  *router.Table
	dir    string
	cut    *cutter
	mesh   *mesh
	disk   *platter
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start begins an instance with the state directory called name.
func (f *fleet) start(name string, change ...func(*Config)) *instance {
	f.t.Helper()
	f.starts++
	in := &instance{f: f, table: router.NewTable(), dir: filepath.Join(f.dir, name), done: make(chan struct{})}
	in.mesh = &mesh{of: in}
	in.cut = &cutter{dial: f.dial, meddle: f.meddle, fault: func(kind string) { f.happened(name, kind) }}
	in.disk = &platter{}
	f.trace.note("%s: start (%d)", name, f.starts)
	cfg := Config{
		Peers: in.mesh, NoSnapshots: true, ApplicationID: testApp, ProcessID: name, Incarnation: strconv.Itoa(f.starts), Endpoint: name + ":1",
		NumStreamThreads: 1, Kafka: KafkaConfig{Brokers: f.brokers, Dial: in.cut.DialContext}, Logger: f.log.With("instance", name),
	}
	if f.options != nil {
		f.options(&cfg)
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if in.stores, err = layered.Open(f.t.Context(), in.storeConfig(cfg.Logger)); err != nil {
		f.t.Fatal(err)
	}
	if in.rt, err = New(cfg, f.topo(), in.stores, in.table); err != nil {
		f.t.Fatal(err)
	}
	if f.paused {
		in.rt.Pause()
	}
	if f.calm > 0 {
		in.rt.standbys.calm = f.calm
	}
	f.mu.Lock()
	f.all = append(f.all, in)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	in.cancel = cancel
	go func() {
		defer close(in.done)
		moving, stop := context.WithCancel(ctx)
		var movers sync.WaitGroup
		movers.Go(func() { _ = in.stores.Run(moving) })
		in.err = in.rt.Run(ctx)
		stop()
		movers.Wait()
		in.err = errors.Join(in.err, in.stores.Close())
	}()
	f.t.Cleanup(func() { cancel(); in.cut.off(); <-in.done })
	return in
}

// storeConfig is of small databases: hundreds are opened in a minute of simulations, each clears the memory of its memtables, and looks
// at its levels forty times in every second of virtual time.
func (in *instance) storeConfig(log *slog.Logger) layered.Config {
	return layered.Config{
		Dir: in.dir, MinFreeBytes: 1, MemTableBytes: 512 << 10, Engine: layered.EngineOptions{Levels: 3}, Logger: log, Between: in.disk.under,
	}
}

// stop ends the instance and returns what Run returned.
func (in *instance) stop() error {
	in.f.happened(in.dir, "stop")
	in.cancel()
	<-in.done
	return in.err
}

func (in *instance) waitRunning() {
	in.f.t.Helper()
	ctx, cancel := context.WithTimeout(in.f.t.Context(), 2*time.Minute)
	defer cancel()
	if err := in.rt.WaitState(ctx, Running); err != nil {
		select {
		case <-in.done:
			in.f.t.Fatalf("%v; run: %v", err, in.err)
		default:
			in.f.t.Fatal(err)
		}
	}
}

// countTopology counts records by key and writes each new count out.
func countTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("count", func() Processor { return &counter{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("sink", SinkOptions{}, testOut, "count")
}

type counter struct {
	ctx *Context
	kv  store.KeyValue
}

func (c *counter) Init(ctx *Context) (err error) {
	c.ctx = ctx
	c.kv, err = ctx.Store(testStore)
	return err
}

func (c *counter) Process(r *Record) error {
	if string(r.Value) == "bad" {
		return &DeserializationError{Reason: "bad value", Err: errors.New("it is bad")}
	}
	n, err := readCount(c.kv.Get(r.Key))
	if err != nil {
		return err
	}
	value := binary.BigEndian.AppendUint64(nil, n+1)
	if err := c.kv.Put(r.Key, store.Value{Data: value, Timestamp: r.Timestamp}); err != nil {
		return err
	}
	return c.ctx.Forward(Record{Key: r.Key, Value: value, Timestamp: r.Timestamp})
}

func (c *counter) Close() error { return nil }

func readCount(v store.Value, err error) (uint64, error) {
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(v.Data), nil
}

// truth counts what was produced.
type truth map[string]uint64

// produce writes n records with keys out of k, and notes them.
func (f *fleet) produce(tr truth, rng *rand.Rand, n, k int) {
	f.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		key := fmt.Sprintf("key-%03d", rng.IntN(k))
		tr[key]++
		records[i] = &kgo.Record{Topic: testInput, Key: []byte(key), Value: []byte("v"), Timestamp: time.Now()}
	}
	if err := f.client.ProduceSync(f.t.Context(), records...).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
}

// lag is how many records the group has not committed.
func (f *fleet) lag() (int64, error) {
	lags, err := kadm.NewClient(f.client).Lag(f.t.Context(), testApp)
	if err != nil {
		return 0, err
	}
	l := lags[testApp]
	if err := l.Error(); err != nil {
		return 0, err
	}
	var n int64
	for _, byPartition := range l.Lag {
		for _, p := range byPartition {
			if p.Lag < 0 {
				return 0, errors.New("lag unknown")
			}
			n += p.Lag
		}
	}
	if len(l.Lag) == 0 {
		return 0, errors.New("no offsets")
	}
	return n, nil
}

// eventually asks until ok, in the test's own time: often at first, and less so when it takes long, for a question is some requests.
func (f *fleet) eventually(what string, within time.Duration, ok func() error) {
	f.t.Helper()
	deadline := time.Now().Add(within)
	for wait := 20 * time.Millisecond; ; wait = min(wait*5/4, 250*time.Millisecond) {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s: not within %s: %v", what, within, err)
		}
		pause(wait)
	}
}

func pause(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}

func (f *fleet) waitCaughtUp(within time.Duration) {
	f.t.Helper()
	f.eventually("lag 0", within, func() error {
		n, err := f.lag()
		if err == nil && n > 0 {
			err = fmt.Errorf("lag %d, %s", n, f.groupState())
		}
		return err
	})
	// The broker has the commit before its owner has published it. In a bubble time goes on only when the owner has.
	pause(time.Millisecond)
}

// groupState is what the trial broker thinks of the group, for the messages of failures.
func (f *fleet) groupState() string {
	if f.cluster == nil {
		return "on a real broker"
	}
	info := f.cluster.GroupInfo(testApp)
	if info == nil {
		return "no group"
	}
	var members []string
	for _, m := range info.Members {
		members = append(members, fmt.Sprintf("%+v", m))
	}
	return fmt.Sprintf("group %s, generation %d, members %q", info.State, info.Epoch, members)
}

// replay reads a topic as a committed reader does and returns the last value of each key, and how many records of each.
func (f *fleet) replay(topic string) (last map[string]uint64, times map[string]int) {
	f.t.Helper()
	ends, err := kadm.NewClient(f.client).ListCommittedOffsets(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(f.brokers...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond), kgo.DisableClientMetrics(),
	}
	if f.dial != nil {
		opts = append(opts, kgo.Dialer(f.dial))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	last, times = make(map[string]uint64), make(map[string]int)
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err0(); err != nil {
			f.t.Fatalf("read %s: %v, left %v", topic, err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, ok := left[r.Partition]; ok && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			times[string(r.Key)]++
			if r.Value == nil {
				delete(last, string(r.Key))
				return
			}
			last[string(r.Key)] = binary.BigEndian.Uint64(r.Value)
		})
	}
	return last, times
}

// check compares changelog, output and every instance's answers with the truth.
func (f *fleet) check(tr truth, instances ...*instance) {
	f.t.Helper()
	logged, _ := f.replay(testApp + "-counts-changelog")
	if !maps.Equal(logged, tr) {
		f.t.Fatalf("changelog is not the truth: %s", diff(logged, tr))
	}
	out, times := f.replay(testOut)
	if !maps.Equal(out, tr) {
		f.t.Fatalf("output is not the truth: %s", diff(out, tr))
	}
	for k, n := range times {
		if uint64(n) != tr[k] {
			f.t.Fatalf("output has %d records of %s, want %d", n, k, tr[k])
		}
	}
	sums.checked(0, len(logged)+len(out))
	f.checkReads(tr, instances...)
}

// checkReads asks the owners for everything. A task may be on its way from one to the other, then it is asked for again; what an
// owner answers must be right.
func (f *fleet) checkReads(tr truth, instances ...*instance) {
	f.t.Helper()
	f.eventually("answers for every key", time.Minute, func() error {
		answered := make(truth)
		for _, in := range instances {
			for _, info := range in.rt.Tasks() {
				if err := in.owned(info.ID.Partition, answered); err != nil {
					return err
				}
			}
		}
		for key, n := range answered {
			if n != tr[key] {
				f.t.Fatalf("answers are not the truth: %s", diff(answered, tr))
			}
		}
		if len(answered) != len(tr) {
			return fmt.Errorf("%d keys answered, want %d", len(answered), len(tr))
		}
		sums.checked(0, len(answered))
		return nil
	})
}

// owned adds what an instance holds of a partition as its owner.
func (in *instance) owned(p store.Partition, into truth) error {
	r, err := in.rt.Read(in.f.t.Context(), testStore, p, store.ReadOptions{OnlyActive: true})
	if err != nil {
		return err
	}
	defer r.Close()
	it, err := keyValue(in.f.t, r).Scan(in.f.t.Context(), store.Scan{})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		into[string(e.Key)] = binary.BigEndian.Uint64(e.Data)
	}
	return it.Err()
}

// keyValue is the kind of reads that the test's stores answer.
func keyValue(tb testing.TB, r store.Reading) store.KeyValueReader {
	tb.Helper()
	kv, err := r.KeyValue()
	if err != nil {
		tb.Fatal(err)
	}
	return kv
}

func diff(have, want map[string]uint64) string {
	var s string
	n := 0
	for k, w := range want {
		if have[k] != w {
			if n++; n <= 5 {
				s += fmt.Sprintf("%s: have %d, want %d; ", k, have[k], w)
			}
		}
	}
	for k, h := range have {
		if _, ok := want[k]; !ok {
			s += fmt.Sprintf("%s: have %d, want none; ", k, h)
		}
	}
	return fmt.Sprintf("%d keys differ: %s", n, s)
}

// allServe reports why not every task is served by one of the instances.
func allServe(tasks int, instances ...*instance) error {
	n := 0
	for _, in := range instances {
		for _, info := range in.rt.Tasks() {
			if info.Serving {
				n++
			}
		}
	}
	if n != tasks {
		return fmt.Errorf("%d tasks are served, want %d", n, tasks)
	}
	return nil
}
