package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// Invariant 8: a forwarded request is answered where it arrives or refused. The map of a says b, that of b says c: b does
// not ask c, a does.
func TestOneHop(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 1, func(int) int { return 1 })
	a, b, c := m.node("a"), m.node("b"), m.node("c")
	key := m.keyIn(0)
	c.stores.put(0, key, []byte("v"))
	b.stores.drop(0)
	moved := m.moved(2, 0, "c")
	m.publish(b, moved)
	b.stores.onRead = func(context.Context, store.Partition) error {
		return &store.MovedError{Store: testStore, Partition: 0, Instance: "c", Endpoint: endpointOf("c"), Epoch: 2}
	}
	resp, err := a.query().Get(t.Context(), get(key))
	if err != nil || resp.GetAnswer().GetAnsweredBy().GetId() != "c" {
		t.Fatalf("%v, %v", resp, err)
	}
	if b.stores.reads.Load() != 1 || c.stores.reads.Load() != 1 {
		t.Errorf("b was read %d times, c %d times", b.stores.reads.Load(), c.stores.reads.Load())
	}
	if n := valueOf(t, b.srv.m.hops.WithLabelValues("OK")); n != 0 {
		t.Errorf("b forwarded %v requests", n)
	}
	// The same from b itself, whose map knows.
	if _, err := b.query().Get(t.Context(), get(key)); err != nil {
		t.Error(err)
	}
	// And for many keys and rows at once.
	batch, err := a.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{key}})
	if err != nil || string(batch.GetResults()[0].GetValue().GetData()) != "v" {
		t.Errorf("%v, %v", batch, err)
	}
	stream, err := a.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
	if err != nil {
		t.Fatal(err)
	}
	if rows, _, _, err := drainScan(stream); err != nil || len(rows) != 1 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// A partition that nobody can name an owner of goes in no circle: a says b, b says a.
func TestTwoWhoPointAtEachOther(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 1, func(int) int { return 1 })
	a, b := m.node("a"), m.node("b")
	b.stores.onRead = func(context.Context, store.Partition) error {
		return &store.MovedError{Store: testStore, Instance: "a", Endpoint: endpointOf("a"), Epoch: 2}
	}
	a.stores.onRead = func(context.Context, store.Partition) error {
		return &store.MovedError{Store: testStore, Instance: "b", Endpoint: endpointOf("b"), Epoch: 3}
	}
	_, err := a.query().Get(t.Context(), get(m.keyIn(0)))
	got := wire.FromStatus(err)
	if !errors.Is(got, store.ErrMoved) && !errors.Is(got, store.ErrNoReplica) {
		t.Fatal(got)
	}
	if n := a.stores.reads.Load() + b.stores.reads.Load(); n > 6 {
		t.Errorf("%d reads", n)
	}
}

// Between two epochs: the new owner has the partition before any map says so, the old one has let go.
func TestMovedBetweenEpochs(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 4, func(int) int { return 0 })
	a, b, c := m.node("a"), m.node("b"), m.node("c")
	for p := range store.Partition(4) {
		m.put(m.keyIn(p), []byte("v"))
	}
	for p := range store.Partition(4) { // three go to b
		if p == 3 {
			break
		}
		key := m.keyIn(p)
		a.stores.drop(p)
		b.stores.put(p, key, []byte("v"))
	}
	// The new owner answers what it has, whatever its map says.
	for p := range store.Partition(3) {
		if _, err := b.query().Get(t.Context(), get(m.keyIn(p))); err != nil {
			t.Errorf("the new owner: %v", err)
		}
	}
	// Others are told to wait, and nobody says "not found".
	_, err := c.query().Get(t.Context(), get(m.keyIn(0)))
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
	// The old owner learns of it and tells; then the map of c follows while a request is on its way.
	d := m.moved(2, 0, "b")
	d2 := m.data
	m.data = d
	d = m.moved(2, 1, "b")
	m.data = d
	d = m.moved(2, 2, "b")
	m.data = d2
	m.publish(a, d)
	a.stores.onRead = func(_ context.Context, p store.Partition) error {
		if p == 3 {
			return nil
		}
		return &store.MovedError{Store: testStore, Partition: p, Instance: "b", Endpoint: endpointOf("b"), Epoch: 2}
	}
	keys := [][]byte{m.keyIn(0), m.keyIn(1), m.keyIn(2), m.keyIn(3)}
	resp, err := c.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resp.GetResults() {
		if string(r.GetValue().GetData()) != "v" {
			t.Errorf("key of partition %d: %v", i, r)
		}
	}
	count, err := c.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)})
	if err != nil || count.GetApproximateCount() != 4 {
		t.Errorf("%v, %v", count, err)
	}
}

// GN-07: a peer that is not there shows at once, with its name and why it cannot be reached, not when the time is up.
func TestDeadPeer(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	m.dialPeer = func(_ context.Context, endpoint string) (net.Conn, error) {
		return nil, fmt.Errorf("dial tcp %s: connect: connection refused", endpoint)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	calls := map[string]func() error{
		"get": func() error { _, err := m.node("a").query().Get(ctx, get(m.keyIn(1))); return err },
		"scan": func() error {
			s, err := m.node("a").query().Scan(ctx, &statemeshv1.ScanRequest{Store: string(testStore)})
			if err == nil {
				_, _, _, err = drainScan(s)
			}
			return err
		},
	}
	for name, call := range calls {
		got := asErr(t, call(), statemeshv1.Reason_REASON_NO_REPLICA)
		e, ok := errors.AsType[*store.NoReplicaError](got)
		if !ok || len(e.Candidates) != 1 || e.Candidates[0].Instance != "b" || !strings.Contains(e.Candidates[0].Reason, "connection refused") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A peer that does not answer in time is named, a little before the client gives up.
func TestHungPeer(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	m.node("b").stores.onRead = func(ctx context.Context, _ store.Partition) error { <-ctx.Done(); return context.Cause(ctx) }
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := m.node("a").query().Get(ctx, get(m.keyIn(1)))
	if got := wire.FromStatus(err); !errors.Is(got, context.DeadlineExceeded) {
		t.Error(got)
	}
}

// Overload stays where it is: no other instance is asked, and the caller learns which limit it was.
func TestOverload(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, func(_ string, c *Config, _ *Deps) { c.MaxRequests, c.MaxPeerRequests = 1, 1 })
	b := m.node("b")
	key := m.keyIn(1)
	m.put(key, []byte("v"))
	inside, leave := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	b.stores.onRead = func(context.Context, store.Partition) error {
		if first.CompareAndSwap(false, true) {
			close(inside)
			<-leave
		}
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := m.node("a").query().Get(t.Context(), get(key)); err != nil { // takes a's slot and b's for peers
			t.Error(err)
		}
	})
	<-inside
	_, err := m.node("a").query().Get(t.Context(), get(m.keyIn(0)))
	got := asErr(t, err, statemeshv1.Reason_REASON_OVERLOADED)
	if e, ok := errors.AsType[*store.OverloadedError](got); !ok || e.Limit != "server.max.requests" || e.RetryAfter <= 0 {
		t.Errorf("%#v", got)
	}
	if errors.Is(got, store.ErrTooLarge) {
		t.Error("overload looks like a message that is too large")
	}
	// b serves its own clients all the while.
	if _, err := b.query().Get(t.Context(), get(key)); err != nil {
		t.Error(err)
	}
	close(leave)
	wg.Wait()
	if _, err := m.node("a").query().Get(t.Context(), get(key)); err != nil {
		t.Errorf("after the overload: %v", err)
	}
	if n := valueOf(t, m.node("a").srv.m.rejected.WithLabelValues("server.max.requests")); n != 1 {
		t.Errorf("%v rejected", n)
	}
}

// What others met (a deadlock of two nodes whose workers wait for each other): with one slot each, scatter-gather from
// both sides at once ends.
func TestCrossScatterGatherWithOneSlotEach(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 4, func(p int) int { return p % 2 }, func(_ string, c *Config, _ *Deps) {
		c.MaxRequests, c.MaxScans, c.MaxPeerRequests, c.MaxPeerScans = 1, 1, 1, 1
	})
	all := fill(m, 50, func(int) []byte { return []byte("v") })
	var wg sync.WaitGroup
	for _, n := range m.nodes {
		wg.Go(func() {
			for range 50 {
				stream, err := n.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
				if err == nil {
					var rows []*statemeshv1.Row
					if rows, _, _, err = drainScan(stream); err == nil && len(rows) != len(all) {
						t.Errorf("%d rows of %d", len(rows), len(all))
					}
				}
				// The slot of the last scan may not be free yet; that is an answer, not a hang.
				if err != nil && !errors.Is(wire.FromStatus(err), store.ErrOverloaded) {
					t.Error(err)
				}
				_, err = n.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)})
				if err != nil && !errors.Is(wire.FromStatus(err), store.ErrOverloaded) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A mark of forwarding from a stranger is refused, not ignored: the request would be forwarded again.
func TestMarkOfForwarding(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	q := m.node("a").query()
	for name, c := range map[string]struct {
		mark func(context.Context) context.Context
		want statemeshv1.Reason
	}{
		"other application": {wire.Forwarded{By: "b", Application: "other"}.Outgoing, statemeshv1.Reason_REASON_PERMISSION_DENIED},
		"itself":            {wire.Forwarded{By: "a", Application: "app"}.Outgoing, statemeshv1.Reason_REASON_PERMISSION_DENIED},
		"half a mark": {func(ctx context.Context) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "statemesh-forwarded-by", "b")
		}, statemeshv1.Reason_REASON_INVALID_REQUEST},
		"a peer, not ours": {wire.Forwarded{By: "b", Application: "app"}.Outgoing, statemeshv1.Reason_REASON_NOT_READY},
	} {
		_, err := q.Get(c.mark(t.Context()), get(m.keyIn(1)))
		wantErr(t, err, c.want)
		if t.Failed() {
			t.Log(name)
		}
	}
	if n := m.node("b").stores.reads.Load(); n != 0 {
		t.Errorf("%d requests were forwarded", n)
	}
}

// Two applications that come to share an endpoint do not read each other's state: the entry instance says that nobody
// may answer, and why.
func TestEndpointOfAnotherApplication(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, func(id string, c *Config, _ *Deps) {
		if id == "b" {
			c.Application = "other"
		}
	})
	_, err := m.node("a").query().Get(t.Context(), get(m.keyIn(1)))
	got := asErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
	if !strings.Contains(got.Error(), "application") {
		t.Error(got)
	}
}

// Answers of peers are checked: a wrong one is no answer.
func TestMalformedAnswersOfPeers(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	m.put(m.keyIn(1), []byte("v"))
	b := m.node("b")
	b.stores.role = store.RoleUnknown // an answer without a role
	_, err := m.node("a").query().Get(t.Context(), get(m.keyIn(1)))
	got := asErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
	if !strings.Contains(got.Error(), "malformed") {
		t.Error(got)
	}
	_, err = m.node("a").query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)})
	wantErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
}

// Standbys answer when the owner cannot be reached, within the default bound and labelled as what they are.
func TestStandbyAnswersForADeadOwner(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 1, func(int) int { return 1 })
	a, c := m.node("a"), m.node("c")
	key := m.keyIn(0)
	c.stores.put(0, key, []byte("v"))
	c.stores.role = store.RoleStandby
	d := m.data
	d.Epoch = 2
	d.Instances[2].Standby = []store.TaskID{{Partition: 0}}
	m.publish(a, d)
	m.dialPeer = func(ctx context.Context, endpoint string) (net.Conn, error) {
		if endpoint == endpointOf("b") {
			return nil, errors.New("connection refused")
		}
		return m.reach(ctx, endpoint)
	}
	resp, err := a.query().Get(t.Context(), get(key))
	if err != nil || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_STANDBY || resp.GetAnswer().GetAnsweredBy().GetId() != "c" {
		t.Errorf("%v, %v", resp, err)
	}
	c.stores.age = func() time.Duration { return 2 * DefaultMaxStaleness }
	_, err = a.query().Get(t.Context(), get(key))
	got := asErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
	if e, ok := errors.AsType[*store.NoReplicaError](got); !ok || len(e.Candidates) != 2 {
		t.Errorf("%v", got)
	}
}

// MR-11: an owner that has become too old for the caller, here or at the other end, is passed over for a fresher copy.
func TestFresherStandbyAnswersForAStaleOwner(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 1, func(int) int { return 1 })
	b, c := m.node("b"), m.node("c")
	key := m.keyIn(0)
	m.put(key, []byte("v"))
	c.stores.put(0, key, []byte("v"))
	c.stores.role = store.RoleStandby
	b.stores.age = func() time.Duration { return time.Minute }
	d := m.data
	d.Epoch = 2
	d.Instances[2].Standby = []store.TaskID{{Partition: 0}}
	bound := &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(30 * time.Second)}
	for _, id := range []string{"a", "b"} {
		m.publish(m.node(id), d)
		q := m.node(id).query()
		got, err := q.Get(t.Context(), get(key, within(30*time.Second)))
		if err != nil || got.GetAnswer().GetAnsweredBy().GetId() != "c" {
			t.Errorf("%s: %v, %v", id, got, err)
		}
		batch, err := q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{key}, Options: bound})
		if err != nil || len(batch.GetAnswers()) != 1 || batch.GetAnswers()[0].GetAnsweredBy().GetId() != "c" {
			t.Errorf("%s: %v, %v", id, batch, err)
		}
		count, err := q.Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Options: bound})
		if err != nil || count.GetApproximateCount() != 1 || count.GetAnswers()[0].GetAnsweredBy().GetId() != "c" {
			t.Errorf("%s: %v, %v", id, count, err)
		}
		stream, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Options: bound})
		if err != nil {
			t.Fatal(err)
		}
		rows, _, answers, err := drainScan(stream)
		if err != nil || len(rows) != 1 || answers[0].GetAnsweredBy().GetId() != "c" {
			t.Errorf("%s: %v, %v, %v", id, rows, answers, err)
		}
	}
}
