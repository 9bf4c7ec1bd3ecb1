package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/store"
)

// fakeStores is the Stores of one instance, in memory, with hooks for what real ones do only on bad days.
type fakeStores struct {
	mu    sync.Mutex
	kind  store.Kind
	parts map[store.Partition][]store.Entry // sorted by cursor; what is not in it is not here

	// onOptions, if set, sees what is insisted on; an error of it is the error of Read.
	onOptions func(p store.Partition, o store.ReadOptions) error
	token     func(p store.Partition) store.Token
	shown     store.Isolation // at least, whatever was asked for

	// onRead, if set, runs first; an error of it is the error of Read.
	onRead func(ctx context.Context, p store.Partition) error
	// onGet and onNext likewise, inside an open reading.
	onGet  func() error
	onNext func() error
	age    func() time.Duration
	role   store.Role

	// restoring, if set, says how far each partition is: who does not accept that is refused.
	restoring map[store.Partition]*store.Partial

	reads, readings, iterators atomic.Int64
}

func newFakeStores() *fakeStores {
	return &fakeStores{kind: store.KindTimestampedKeyValue, parts: map[store.Partition][]store.Entry{}, role: store.RoleActive}
}

func (f *fakeStores) Read(ctx context.Context, name store.Name, p store.Partition, o store.ReadOptions) (store.Reading, error) {
	f.reads.Add(1)
	if f.onOptions != nil {
		if err := f.onOptions(p, o); err != nil {
			return nil, err
		}
	}
	if f.onRead != nil {
		if err := f.onRead(ctx, p); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	es, ok := f.parts[p]
	if !ok {
		return nil, &store.NotReadyError{Store: name, Partition: p, Reason: "rebalancing", RetryAfter: time.Second}
	}
	if part := f.restoring[p]; part != nil && !o.Partial {
		return nil, &store.NotReadyError{Store: name, Partition: p, Reason: "restoring", Restored: part.Restored, Total: part.Total, Left: part.Left, RetryAfter: time.Second}
	}
	f.readings.Add(1)
	r := &fakeReading{NoReads: store.NoReads{Store: name, Kind: f.kind}, f: f, p: p, es: es, isolation: max(o.Isolation, f.shown)}
	switch familyOf(f.kind) {
	case windows:
		return &fakeWindows{r}, nil
	case sessions:
		return &fakeSessions{r}, nil
	case versions:
		return &fakeVersions{r}, nil
	default:
		return &fakeKeyValues{r}, nil
	}
}

// add puts a row where its cursor says.
func (f *fakeStores) add(p store.Partition, e store.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	es := slices.Clone(f.parts[p]) // readings keep theirs
	i, found := slices.BinarySearchFunc(es, e.Cursor, func(e store.Entry, c []byte) int { return bytes.Compare(e.Cursor, c) })
	if found {
		es[i] = e
	} else {
		es = slices.Insert(es, i, e)
	}
	f.parts[p] = es
}

func (f *fakeStores) put(p store.Partition, key, value []byte) {
	f.add(p, store.Entry{Key: key, Cursor: key, Value: store.Value{Data: value, Timestamp: 42}})
}

func (f *fakeStores) hold(ps ...store.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range ps {
		if f.parts[p] == nil {
			f.parts[p] = []store.Entry{}
		}
	}
}

func (f *fakeStores) drop(p store.Partition) []store.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	es := f.parts[p]
	delete(f.parts, p)
	return es
}

type fakeReading struct {
	store.NoReads

	f         *fakeStores
	p         store.Partition
	es        []store.Entry
	isolation store.Isolation
	closed    bool
}

// fakeKeyValues has key-value reads.
type fakeKeyValues struct{ *fakeReading }

func (r *fakeKeyValues) KeyValue() (store.KeyValueReader, error) { return r, nil }

func (r *fakeReading) Close() {
	if r.closed {
		panic("a reading was closed twice")
	}
	r.closed = true
	r.f.readings.Add(-1)
}

func (r *fakeReading) Facts() store.Facts {
	var age time.Duration
	if r.f.age != nil {
		age = r.f.age()
	}
	f := store.Facts{Role: r.f.role, Sequence: 7, Position: store.Position{"in": {1: 99}}, Age: age, Isolation: r.isolation}
	if f.Partial = r.f.restoring[r.p]; f.Partial != nil {
		f.Age = -1
		return f
	}
	if r.f.token != nil {
		f.Token = r.f.token(r.p)
	}
	return f
}

func (r *fakeKeyValues) Get(_ context.Context, key []byte) (store.Value, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) })
	if err != nil {
		return store.Value{}, err
	}
	return store.Value{Data: bytes.Clone(e.Data), Timestamp: e.Timestamp}, nil
}

func (r *fakeKeyValues) GetMany(ctx context.Context, keys [][]byte) ([]store.Value, []bool, error) {
	vs, found := make([]store.Value, len(keys)), make([]bool, len(keys))
	for i, k := range keys {
		v, err := r.Get(ctx, k)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, err
		}
		vs[i], found[i] = v, err == nil
	}
	return vs, found, nil
}

func (r *fakeReading) ApproximateCount(context.Context) (int64, error) { return int64(len(r.es)), nil }

func (r *fakeKeyValues) Scan(_ context.Context, s store.Scan) (store.Iterator, error) {
	if s.Prefix != nil && (s.From != nil || s.To != nil) {
		return nil, &store.InvalidRequestError{Field: "prefix", Reason: "with bounds"}
	}
	return r.iterate(s.After, s.Reverse, func(e *store.Entry) bool {
		return inKeys(e.Key, nil, s.From, s.To) && bytes.HasPrefix(e.Key, s.Prefix)
	}), nil
}

// inKeys reports whether a key is the one that is wanted, or within inclusive bounds. nil: open.
func inKeys(key, only, from, to []byte) bool {
	return (only == nil || bytes.Equal(key, only)) && (from == nil || bytes.Compare(key, from) >= 0) && (to == nil || bytes.Compare(key, to) <= 0)
}

// iterate walks the rows that keep wants, behind a cursor.
func (r *fakeReading) iterate(after []byte, reverse bool, keep func(*store.Entry) bool) store.Iterator {
	var out []store.Entry
	for i := range r.es {
		e := r.es[i]
		if c := bytes.Compare(e.Cursor, after); after != nil && (!reverse && c <= 0 || reverse && c >= 0) || !keep(&e) {
			continue
		}
		out = append(out, e)
	}
	if reverse {
		slices.Reverse(out)
	}
	r.f.iterators.Add(1)
	return &fakeIterator{r: r, es: out, at: -1}
}

// find returns the first row that match accepts.
func (r *fakeReading) find(match func(*store.Entry) bool) (store.Entry, error) {
	if r.f.onGet != nil {
		if err := r.f.onGet(); err != nil {
			return store.Entry{}, err
		}
	}
	for i := range r.es {
		if match(&r.es[i]) {
			return r.es[i], nil
		}
	}
	return store.Entry{}, store.ErrNotFound
}

type fakeIterator struct {
	r      *fakeReading
	es     []store.Entry
	at     int
	err    error
	closed bool
}

func (it *fakeIterator) Next() bool {
	if it.r.f.onNext != nil {
		if it.err = it.r.f.onNext(); it.err != nil {
			return false
		}
	}
	it.at++
	return it.at < len(it.es)
}
func (it *fakeIterator) Entry() store.Entry { return it.es[it.at] }

func (it *fakeIterator) Err() error { return it.err }

func (it *fakeIterator) Close() {
	if !it.closed {
		it.closed = true
		it.r.f.iterators.Add(-1)
	}
}

// node is one instance of a test mesh.
type node struct {
	id     string
	stores *fakeStores
	table  *router.Table
	srv    *Server
	conn   *grpc.ClientConn // of a client
	lis    *bufconn.Listener
	reg    *prometheus.Registry
	stop   context.CancelFunc
	done   chan error
}

func (n *node) query() statemeshv1.QueryServiceClient {
	return statemeshv1.NewQueryServiceClient(n.conn)
}

func (n *node) meta() statemeshv1.MetadataServiceClient {
	return statemeshv1.NewMetadataServiceClient(n.conn)
}

// mesh is some instances that reach each other in memory.
type mesh struct {
	t     testing.TB
	nodes []*node
	data  router.Data

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // of peers, by endpoint
	// dialPeer, if set, replaces the way instances reach each other.
	dialPeer func(ctx context.Context, endpoint string) (net.Conn, error)
}

const testStore = store.Name("flights")

func endpointOf(id string) string { return id + ".test:7070" }

// newMesh starts n instances "a", "b", ... with a store of parts partitions; owner[p] is the index of who owns p, -1
// nobody. adjust may change the configuration of a node before it starts.
func newMesh(tb testing.TB, n, parts int, owner func(p int) int, adjust ...func(id string, c *Config, d *Deps)) *mesh {
	tb.Helper()
	return newMeshOf(tb, router.StoreInfo{Kind: store.KindTimestampedKeyValue}, n, parts, owner, adjust...)
}

// newMeshOf is newMesh with a store of any kind.
func newMeshOf(
	tb testing.TB, info router.StoreInfo, n, parts int, owner func(p int) int, adjust ...func(id string, c *Config, d *Deps),
) *mesh {
	tb.Helper()
	m := &mesh{t: tb, conns: map[string]*grpc.ClientConn{}}
	info.Name, info.Partitions, info.SourceTopic = testStore, int32(parts), "in"
	m.data = router.Data{Application: "app", Epoch: 1, Stores: []router.StoreInfo{info}}
	for i := range n {
		id := string(rune('a' + i))
		m.data.Instances = append(m.data.Instances, router.Instance{ID: id, Incarnation: "1", Endpoint: endpointOf(id)})
	}
	for p := range parts {
		if o := owner(p); o >= 0 {
			in := &m.data.Instances[o]
			in.Active = append(in.Active, store.TaskID{Partition: store.Partition(p)})
		}
	}
	for i := range n {
		m.start(m.data.Instances[i], adjust)
	}
	tb.Cleanup(m.close)
	return m
}

// Query implements Peers.
func (m *mesh) Query(endpoint string) (statemeshv1.QueryServiceClient, error) {
	return statemeshv1.NewQueryServiceClient(m.connTo(endpoint)), nil
}

// Metadata implements Peers.
func (m *mesh) Metadata(endpoint string) (statemeshv1.MetadataServiceClient, error) {
	return statemeshv1.NewMetadataServiceClient(m.connTo(endpoint)), nil
}

func (m *mesh) connTo(endpoint string) *grpc.ClientConn {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conns[endpoint]
	if c == nil {
		c = m.dial(func(ctx context.Context, _ string) (net.Conn, error) {
			if m.dialPeer != nil {
				return m.dialPeer(ctx, endpoint)
			}
			return m.reach(ctx, endpoint)
		})
		m.conns[endpoint] = c
	}
	return c
}

func (m *mesh) start(in router.Instance, adjust []func(string, *Config, *Deps)) {
	m.t.Helper()
	nd := &node{
		id: in.ID, stores: newFakeStores(), table: router.NewTable(), lis: bufconn.Listen(1 << 20),
		reg: prometheus.NewRegistry(), done: make(chan error, 1),
	}
	nd.stores.kind = m.data.Stores[0].Kind
	for _, id := range in.Active {
		nd.stores.hold(id.Partition)
	}
	m.publish(nd, m.data)
	cfg := Config{
		Application: "app", Instance: in.ID, Endpoint: in.Endpoint, Listener: nd.lis, Registerer: nd.reg, Gatherer: nd.reg,
		DefaultMaxStaleness: DefaultMaxStaleness, GracePeriod: 5 * time.Second,
	}
	deps := Deps{Stores: nd.stores, Peers: m, Table: nd.table}
	for _, f := range adjust {
		f(in.ID, &cfg, &deps)
	}
	srv, err := New(cfg, deps)
	if err != nil {
		m.t.Fatal(err)
	}
	nd.srv = srv
	ctx, stop := context.WithCancel(context.Background())
	nd.stop = stop
	go func() { nd.done <- srv.Run(ctx) }()
	m.mu.Lock()
	m.nodes = append(m.nodes, nd)
	m.mu.Unlock()
	nd.conn = m.dial(func(context.Context, string) (net.Conn, error) { return nd.lis.Dial() })
}

func (m *mesh) dial(d func(context.Context, string) (net.Conn, error)) *grpc.ClientConn {
	conn, err := grpc.NewClient("passthrough:///mesh", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(d), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessageBytes)))
	if err != nil {
		panic(err) // options that contradict each other; not through m.t, which a fuzz target must not touch
	}
	return conn
}

func (m *mesh) close() {
	for _, n := range m.nodes {
		n.stop()
	}
	for _, n := range m.nodes {
		_ = n.conn.Close()
	}
	m.mu.Lock()
	for _, c := range m.conns {
		_ = c.Close()
	}
	m.mu.Unlock()
	for _, n := range m.nodes {
		if err := <-n.done; err != nil {
			m.t.Errorf("%s: Run: %v", n.id, err)
		}
		if r, i := n.stores.readings.Load(), n.stores.iterators.Load(); r != 0 || i != 0 {
			m.t.Errorf("%s: %d readings and %d iterators are open", n.id, r, i)
		}
	}
}

func (m *mesh) reach(ctx context.Context, endpoint string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range m.nodes {
		if endpointOf(n.id) == endpoint {
			return n.lis.DialContext(ctx)
		}
	}
	return nil, fmt.Errorf("dial %s: connect: connection refused", endpoint)
}

func (m *mesh) node(id string) *node {
	for _, n := range m.nodes {
		if n.id == id {
			return n
		}
	}
	m.t.Fatalf("no node %s", id)
	return nil
}

// owner is who owns p by the map that the mesh started with.
func (m *mesh) owner(p store.Partition) *node {
	for _, in := range m.data.Instances {
		if slices.Contains(in.Active, store.TaskID{Partition: p}) {
			return m.node(in.ID)
		}
	}
	m.t.Fatalf("nobody owns partition %d", p)
	return nil
}

func (m *mesh) partition(key []byte) store.Partition {
	return router.PartitionFor(key, m.data.Stores[0].Partitions)
}

// put stores key where it belongs.
func (m *mesh) put(key, value []byte) {
	p := m.partition(key)
	m.owner(p).stores.put(p, key, value)
}

// publish gives one node a map.
func (m *mesh) publish(n *node, d router.Data) {
	m.t.Helper()
	snap, err := router.NewSnapshot(d)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := n.table.Publish(snap); err != nil {
		m.t.Fatal(err)
	}
}

// moved is the map after partition p went to the instance of that id.
func (m *mesh) moved(epoch router.Epoch, p store.Partition, to string) router.Data {
	d := m.data
	d.Epoch = epoch
	d.Instances = slices.Clone(d.Instances)
	task := store.TaskID{Partition: p}
	for i := range d.Instances {
		in := &d.Instances[i]
		in.Active = slices.DeleteFunc(slices.Clone(in.Active), func(id store.TaskID) bool { return id == task })
		if in.ID == to {
			in.Active = append(in.Active, task)
		}
	}
	return d
}

// keyIn finds a key of partition p.
func (m *mesh) keyIn(p store.Partition) []byte {
	for i := range 100_000 {
		if key := fmt.Appendf(nil, "key-%d", i); m.partition(key) == p {
			return key
		}
	}
	m.t.Fatalf("no key in partition %d", p)
	return nil
}

func withCache(_ string, c *Config, d *Deps) {
	d.Cache = remotecache.New(remotecache.Config{TTL: time.Hour, NegativeTTL: time.Hour, MaxBytes: 1 << 20}, d.Table)
	c.DefaultMaxStaleness = time.Hour
}

// wantErr checks the reason of a call's error.
func wantErr(tb testing.TB, err error, want statemeshv1.Reason) {
	tb.Helper()
	_ = asErr(tb, err, want)
}

// asErr checks the reason of a call's error and returns it as the domain's.
func asErr(tb testing.TB, err error, want statemeshv1.Reason) error {
	tb.Helper()
	if err == nil {
		tb.Fatalf("no error, want %s", want)
	}
	got := wire.FromStatus(err)
	if r := wire.Reason(got); r != want {
		tb.Fatalf("%s (%v), want %s", r, got, want)
	}
	return got
}

// drainScan reads a scan to its end.
func drainScan(stream grpc.ServerStreamingClient[statemeshv1.ScanResponse]) (rows []*statemeshv1.Row, last *statemeshv1.ScanResponse, answers []*statemeshv1.Answer, err error) {
	for first := true; ; first = false {
		m, err := stream.Recv()
		if err != nil {
			return rows, last, answers, err
		}
		if first {
			answers = m.GetAnswers()
		}
		rows, last = append(rows, m.GetRows()...), m
		if m.GetEnd() != nil {
			return rows, last, answers, nil
		}
	}
}

func sortRows(rows []*statemeshv1.Row) {
	slices.SortFunc(rows, func(a, b *statemeshv1.Row) int {
		return cmp.Or(bytes.Compare(a.GetKey(), b.GetKey()), cmp.Compare(a.GetPartition(), b.GetPartition()))
	})
}

// valueOf is the value of a counter or gauge.
func valueOf(tb testing.TB, m prometheus.Metric) float64 {
	tb.Helper()
	var d dto.Metric
	if err := m.Write(&d); err != nil {
		tb.Fatal(err)
	}
	return d.GetCounter().GetValue() + d.GetGauge().GetValue()
}

func (n *node) dialer() func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) { return n.lis.DialContext(ctx) }
}
