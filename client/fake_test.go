package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

const counts store.Name = "counts"

// mesh is a fleet of instances that serve the real API out of one map, over an in-memory network.
type mesh struct {
	t          testing.TB
	partitions int32
	maxMessage int

	mu      sync.Mutex
	epoch   router.Epoch
	members map[string]*member // by id
	owner   map[store.Partition]string
	standby map[store.Partition]string // another instance with a copy, if any
	data    map[store.Partition]map[string]string
	hosts   map[string]*bufconn.Listener // by endpoint
	dials   map[string]int
	conns   atomic.Int64 // open client connections
	changed chan struct{}
	noWatch bool        // Watch is not served
	noMap   atomic.Bool // NOT_READY instead of metadata
	appName string
	rowsPer int // rows per scan message
}

// member is one instance.
type member struct {
	statemeshv1.UnimplementedQueryServiceServer
	statemeshv1.UnimplementedMetadataServiceServer
	m        *mesh
	id       string
	endpoint string
	srv      *grpc.Server
	served   sync.WaitGroup

	// view is the epoch this member lives in: nil is the newest.
	view map[store.Partition]string
	// forward makes it answer for others; else MOVED.
	forward atomic.Bool
	// hook, if set, runs first in every query.
	hook  atomic.Pointer[func(ctx context.Context, what string) error]
	calls atomic.Int64
	maps  atomic.Int64
	// scanHook, if set, runs before each message of a scan.
	scanHook atomic.Pointer[func(n int) error]
	// cutAt, if set, ends each scan that has more rows than that.
	cutAt atomic.Pointer[cut]
	age   time.Duration
	// partial, if set, is what answers are.
	partial *store.Partial
}

func newMesh(tb testing.TB, partitions int32, ids ...string) *mesh {
	tb.Helper()
	m := &mesh{
		t: tb, partitions: partitions, epoch: 1, members: map[string]*member{}, owner: map[store.Partition]string{},
		data: map[store.Partition]map[string]string{}, hosts: map[string]*bufconn.Listener{}, dials: map[string]int{},
		changed: make(chan struct{}), appName: "app", rowsPer: 3,
	}
	for p := range partitions {
		m.owner[store.Partition(p)] = ids[int(p)%len(ids)]
		m.data[store.Partition(p)] = map[string]string{}
	}
	for _, id := range ids {
		m.start(id)
	}
	tb.Cleanup(func() {
		for _, id := range ids {
			m.stop(id)
		}
	})
	return m
}

func (m *mesh) start(id string) *member {
	mb := &member{m: m, id: id, endpoint: id + ":1"}
	limit := m.maxMessage
	if limit == 0 {
		limit = wire.MaxMessageBytes
	}
	mb.srv = grpc.NewServer(
		grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(limit), grpc.MaxSendMsgSize(limit),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			resp, err := h(ctx, req)
			return resp, wire.ToStatus(err)
		}),
		grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			err := h(srv, ss)
			if status.Code(err) == codes.Unimplemented {
				return err // as a server without the method says it
			}
			return wire.ToStatus(err)
		}),
	)
	statemeshv1.RegisterQueryServiceServer(mb.srv, mb)
	statemeshv1.RegisterMetadataServiceServer(mb.srv, mb)
	lis := bufconn.Listen(1 << 16)
	m.mu.Lock()
	m.members[id], m.hosts[mb.endpoint] = mb, lis
	m.mu.Unlock()
	mb.served.Go(func() { _ = mb.srv.Serve(lis) })
	return mb
}

// stop is a kill: connections break, nobody listens.
func (m *mesh) stop(id string) {
	m.mu.Lock()
	mb := m.members[id]
	delete(m.hosts, mb.endpoint)
	m.mu.Unlock()
	mb.srv.Stop()
	mb.served.Wait()
}

func (m *mesh) dial(ctx context.Context, addr string) (net.Conn, error) {
	m.mu.Lock()
	lis := m.hosts[addr]
	m.dials[addr]++
	m.mu.Unlock()
	if lis == nil {
		return nil, errors.New("connection refused")
	}
	conn, err := lis.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	m.conns.Add(1)
	return &countedConn{Conn: conn, n: &m.conns}, nil
}

type countedConn struct {
	net.Conn
	n    *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.n.Add(-1) })
	return c.Conn.Close()
}

// client returns a client of the mesh; seeds default to all.
func (m *mesh) client(mod func(*Config)) *Client {
	m.t.Helper()
	cfg := Config{Dial: m.dial, Timeout: 10 * time.Second}
	for _, id := range slices.Sorted(maps.Keys(m.members)) {
		cfg.Seeds = append(cfg.Seeds, id+":1")
	}
	if mod != nil {
		mod(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (m *mesh) put(key, value string) store.Partition {
	p := router.PartitionFor([]byte(key), m.partitions)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data[p][key] = value
	return p
}

// move gives a partition another owner under a new epoch, which it returns.
func (m *mesh) move(p store.Partition, to string) router.Epoch {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner[p] = to
	m.epoch++
	close(m.changed)
	m.changed = make(chan struct{})
	return m.epoch
}

// freeze makes a member live in the present epoch for ever.
func (m *mesh) freeze(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members[id].view = maps.Clone(m.owner)
}

func (m *mesh) member(id string) *member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members[id]
}

func (m *mesh) dialed(id string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dials[id+":1"]
}

func (mb *member) Get(ctx context.Context, req *statemeshv1.GetRequest) (*statemeshv1.GetResponse, error) {
	if err := mb.enter(ctx, "get", req.GetStore()); err != nil {
		return nil, err
	}
	p := router.PartitionFor(req.GetKey(), mb.m.partitions)
	if req.Partition != nil && store.Partition(req.GetPartition()) != p {
		return nil, &store.WrongPartitionError{Store: counts, Have: store.Partition(req.GetPartition()), Want: p}
	}
	owner, epoch, err := mb.place(p)
	if err != nil {
		return nil, err
	}
	a := mb.answer(p, owner, epoch)
	mb.m.mu.Lock()
	v, ok := mb.m.data[p][string(req.GetKey())]
	mb.m.mu.Unlock()
	if !ok {
		return nil, &wire.AbsentError{Store: counts, Answer: a}
	}
	return &statemeshv1.GetResponse{Value: wire.FromValue(store.Value{Data: []byte(v), Timestamp: 7}), Answer: wire.FromAnswer(counts, a)}, nil
}

func (mb *member) BatchGet(ctx context.Context, req *statemeshv1.BatchGetRequest) (*statemeshv1.BatchGetResponse, error) {
	if err := mb.enter(ctx, "batch get", req.GetStore()); err != nil {
		return nil, err
	}
	resp := &statemeshv1.BatchGetResponse{}
	answers := map[store.Partition]wire.Answer{}
	for _, key := range req.GetKeys() {
		p := router.PartitionFor(key, mb.m.partitions)
		owner, epoch, err := mb.place(p)
		if err != nil {
			return nil, err
		}
		answers[p] = mb.answer(p, owner, epoch)
		r := &statemeshv1.BatchGetResult{Partition: int32(p)}
		mb.m.mu.Lock()
		if v, ok := mb.m.data[p][string(key)]; ok {
			r.Value = wire.FromValue(store.Value{Data: []byte(v), Timestamp: 7})
		}
		mb.m.mu.Unlock()
		resp.Results = append(resp.Results, r)
	}
	for _, p := range slices.Sorted(maps.Keys(answers)) {
		resp.Answers = append(resp.Answers, wire.FromAnswer(counts, answers[p]))
	}
	return resp, nil
}

func (mb *member) Count(ctx context.Context, req *statemeshv1.CountRequest) (*statemeshv1.CountResponse, error) {
	if err := mb.enter(ctx, "count", req.GetStore()); err != nil {
		return nil, err
	}
	resp := &statemeshv1.CountResponse{}
	for _, p := range req.GetPartitions() {
		owner, epoch, err := mb.place(store.Partition(p))
		if err != nil {
			return nil, err
		}
		mb.m.mu.Lock()
		resp.ApproximateCount += int64(len(mb.m.data[store.Partition(p)]))
		mb.m.mu.Unlock()
		resp.Answers = append(resp.Answers, wire.FromAnswer(counts, mb.answer(store.Partition(p), owner, epoch)))
	}
	return resp, nil
}

// cut is where a server ends a scan, and what it says of it.
type cut struct {
	rows   int
	reason statemeshv1.EndReason
}

// Scan streams rowsPer rows a message. The token is the last key: keys are unique over partitions here.
func (mb *member) Scan(req *statemeshv1.ScanRequest, st grpc.ServerStreamingServer[statemeshv1.ScanResponse]) error {
	if err := mb.enter(st.Context(), "scan", req.GetStore()); err != nil {
		return err
	}
	var rows []*statemeshv1.Row
	first := &statemeshv1.ScanResponse{}
	for _, n := range req.GetPartitions() {
		p := store.Partition(n)
		owner, epoch, err := mb.place(p)
		if err != nil {
			return err
		}
		first.Answers = append(first.Answers, wire.FromAnswer(counts, mb.answer(p, owner, epoch)))
		mb.m.mu.Lock()
		for k, v := range mb.m.data[p] {
			if inScan(req, []byte(k)) {
				rows = append(rows, &statemeshv1.Row{Key: []byte(k), Partition: n, Value: wire.FromValue(store.Value{Data: []byte(v), Timestamp: 7})})
			}
		}
		mb.m.mu.Unlock()
	}
	desc := req.GetOrder() == statemeshv1.Order_ORDER_DESCENDING
	slices.SortFunc(rows, func(a, b *statemeshv1.Row) int {
		c := bytes.Compare(a.GetKey(), b.GetKey())
		if desc {
			return -c
		}
		return c
	})
	reason := statemeshv1.EndReason_END_REASON_COMPLETE
	if req.Limit != nil && int64(len(rows)) > req.GetLimit() {
		rows, reason = rows[:req.GetLimit()], statemeshv1.EndReason_END_REASON_LIMIT
	}
	if at := mb.cutAt.Load(); at != nil && len(rows) > at.rows {
		rows, reason = rows[:at.rows], at.reason
	}
	msg := first
	for n := 0; ; n++ {
		if h := mb.scanHook.Load(); h != nil {
			if err := (*h)(n); err != nil {
				return err
			}
		}
		chunk := rows[:min(len(rows), mb.m.rowsPer)]
		rows = rows[len(chunk):]
		msg.Rows = chunk
		if len(chunk) > 0 {
			msg.ResumeToken = token(chunk[len(chunk)-1].GetKey())
		} else {
			msg.ResumeToken = req.GetResumeToken()
		}
		if len(rows) == 0 {
			msg.End = &statemeshv1.ScanEnd{Reason: reason}
		}
		if err := st.Send(msg); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		msg = &statemeshv1.ScanResponse{}
	}
}

func token(key []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, 0xbeef), key...) }

func inScan(req *statemeshv1.ScanRequest, key []byte) bool {
	if req.From != nil && bytes.Compare(key, req.GetFrom()) < 0 || req.To != nil && bytes.Compare(key, req.GetTo()) > 0 ||
		!bytes.HasPrefix(key, req.GetPrefix()) {
		return false
	}
	if len(req.GetResumeToken()) == 0 {
		return true
	}
	c := bytes.Compare(key, req.GetResumeToken()[2:])
	if req.GetOrder() == statemeshv1.Order_ORDER_DESCENDING {
		c = -c
	}
	return c > 0
}

func (mb *member) Watch(req *statemeshv1.WatchRequest, st grpc.ServerStreamingServer[statemeshv1.WatchResponse]) error {
	if mb.m.noWatch {
		return mb.UnimplementedMetadataServiceServer.Watch(req, st)
	}
	known := req.GetKnownEpoch()
	for {
		s, changed, err := mb.metadata()
		if err != nil {
			return err
		}
		if s.GetEpoch() > known {
			known = s.GetEpoch()
			if err := st.Send(&statemeshv1.WatchResponse{Snapshot: s}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-st.Context().Done():
			return st.Context().Err()
		}
	}
}

func (mb *member) ListStores(context.Context, *statemeshv1.ListStoresRequest) (*statemeshv1.ListStoresResponse, error) {
	s, _, err := mb.metadata()
	if err != nil {
		return nil, err
	}
	return &statemeshv1.ListStoresResponse{Application: s.GetApplication(), Epoch: s.GetEpoch(), Stores: s.GetStores()}, nil
}

// ListInstances says of each instance that it holds what it owns, and that it looked 5 ms ago.
func (mb *member) ListInstances(_ context.Context, req *statemeshv1.ListInstancesRequest) (*statemeshv1.ListInstancesResponse, error) {
	s, _, err := mb.metadata()
	if err != nil {
		return nil, err
	}
	for _, in := range s.GetInstances() {
		if !req.GetWithHoldings() {
			continue
		}
		h := wire.Holdings{LookedBefore: 5 * time.Millisecond}
		for _, id := range in.GetActive() {
			h.Of = append(h.Of, router.Holding{
				Task: store.TaskID{Partition: store.Partition(id.GetPartition())}, Role: router.HeldAsOwner, State: router.HoldingServing, Age: mb.age,
			})
		}
		in.Holdings = wire.FromHoldings(h)
	}
	return &statemeshv1.ListInstancesResponse{Application: s.GetApplication(), Epoch: s.GetEpoch(), Instances: s.GetInstances(), Moving: s.GetMoving()}, nil
}

// fill puts n keys and returns them with their values.
func (m *mesh) fill(n int) map[string]string {
	want := make(map[string]string, n)
	for i := range n {
		k, v := fmt.Sprintf("key-%04d", i), fmt.Sprintf("value-%d", i)
		m.put(k, v)
		want[k] = v
	}
	return want
}

func (mb *member) on(f func(ctx context.Context, what string) error) { mb.hook.Store(&f) }

func (m *mesh) snapshot() (router.Data, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := router.Data{
		Application: m.appName, Epoch: m.epoch,
		Stores: []router.StoreInfo{{Name: counts, Kind: store.KindTimestampedKeyValue, Partitions: m.partitions, KeyFormat: "string"}},
	}
	for _, id := range slices.Sorted(maps.Keys(m.members)) {
		in := router.Instance{ID: id, Incarnation: "1", Endpoint: m.members[id].endpoint}
		for p, o := range m.owner {
			if o == id {
				in.Active = append(in.Active, store.TaskID{Partition: p})
			}
		}
		for p, o := range m.standby {
			if o == id {
				in.Standby = append(in.Standby, store.TaskID{Partition: p})
			}
		}
		d.Instances = append(d.Instances, in)
	}
	return d, m.changed
}

// place says who answers for p when this member is asked.
func (mb *member) place(p store.Partition) (answerer string, epoch router.Epoch, err error) {
	mb.m.mu.Lock()
	defer mb.m.mu.Unlock()
	if p < 0 || int32(p) >= mb.m.partitions {
		return "", 0, &store.InvalidRequestError{Field: "partition", Reason: "out of range"}
	}
	owner := mb.m.owner[p]
	if mb.m.standby[p] == mb.id {
		return mb.id, mb.m.epoch, nil
	}
	if owner == mb.id || mb.forward.Load() {
		return owner, mb.m.epoch, nil
	}
	return "", 0, &store.MovedError{Store: counts, Partition: p, Instance: owner, Endpoint: owner + ":1", Epoch: int64(mb.m.epoch)}
}

func (mb *member) enter(ctx context.Context, what string, name string) error {
	mb.calls.Add(1)
	if h := mb.hook.Load(); h != nil {
		if err := (*h)(ctx, what); err != nil {
			return err
		}
	}
	if store.Name(name) != counts {
		return &store.UnknownStoreError{Store: store.Name(name), Known: []store.Name{counts}}
	}
	return nil
}

func (mb *member) answer(p store.Partition, owner string, epoch router.Epoch) wire.Answer {
	pos := store.Position{}
	pos.Set("in", p, 41)
	role := store.RoleActive
	if mb.m.standby[p] == mb.id {
		role = store.RoleStandby
	}
	a := wire.Answer{
		Partition: p, Epoch: epoch, Instance: owner, Endpoint: owner + ":1",
		Facts: store.Facts{Role: role, Sequence: 9, Position: pos, Age: mb.age, Partial: mb.partial},
	}
	if mb.partial != nil {
		a.Facts.Age = -1
	}
	return a
}

func (mb *member) metadata() (*statemeshv1.MetadataSnapshot, <-chan struct{}, error) {
	mb.maps.Add(1)
	if mb.m.noMap.Load() {
		return nil, nil, &store.NotReadyError{Reason: "no metadata yet", RetryAfter: 50 * time.Millisecond}
	}
	d, changed := mb.m.snapshot()
	if mb.view != nil {
		d.Epoch = 1
		for i := range d.Instances {
			d.Instances[i].Active = nil
			for p, o := range mb.view {
				if o == d.Instances[i].ID {
					d.Instances[i].Active = append(d.Instances[i].Active, store.TaskID{Partition: p})
				}
			}
		}
	}
	return wire.FromData(d), changed, nil
}
