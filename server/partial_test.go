package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

func partially3of10() *store.Partial {
	return &store.Partial{Restored: 3, Total: 10, Left: 5 * time.Second, StreamTime: 77}
}

func acceptPartial(o ...func(*statemeshv1.ReadOptions)) *statemeshv1.ReadOptions {
	opts := &statemeshv1.ReadOptions{AcceptPartial: true}
	for _, f := range o {
		f(opts)
	}
	return opts
}

func (m *mesh) restore(p store.Partition, nodes ...*node) {
	for _, n := range nodes {
		n.stores.restoring = map[store.Partition]*store.Partial{p: partially3of10()}
	}
}

// TestPartialIsTheLastResort: a copy that is being restored answers who accepts that, when no other copy can, from any instance;
// and says so.
func TestPartialIsTheLastResort(t *testing.T) {
	t.Parallel()
	m := withCopies(t, 3, 1)
	a, b, c := m.node("a"), m.node("b"), m.node("c")
	key := m.keyIn(0)
	ask := func(n *node) (*statemeshv1.GetResponse, error) {
		return n.query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = acceptPartial() }))
	}
	// The owner restores, the others are whole.
	m.restore(0, a)
	for _, n := range m.nodes {
		if resp, err := ask(n); err != nil || string(resp.GetValue().GetData()) != "copy" || resp.GetAnswer().GetPartial() != nil {
			t.Errorf("from %s: %v, %v", n.id, resp, err)
		}
	}
	// All of them restore.
	m.restore(0, b, c)
	for _, n := range m.nodes {
		resp, err := ask(n)
		p := resp.GetAnswer().GetPartial()
		if err != nil || string(resp.GetValue().GetData()) != "owner" || p.GetRestored() != 3 || p.GetTotal() != 10 ||
			p.GetTimeLeft().AsDuration() != 5*time.Second || p.GetStreamTimeMs() != 77 {
			t.Fatalf("from %s: %v, %v", n.id, resp, err)
		}
		if an := resp.GetAnswer(); an.GetAge() != nil || len(an.GetToken()) > 0 || an.GetRole() != statemeshv1.Role_ROLE_ACTIVE {
			t.Errorf("from %s: %v: want no age and no token", n.id, an)
		}
		// What is not there may be there.
		_, err = n.query().Get(t.Context(), get([]byte("nobody's"), func(r *statemeshv1.GetRequest) { r.Options = acceptPartial() }))
		absent, ok := errors.AsType[*wire.AbsentError](asErr(t, err, statemeshv1.Reason_REASON_KEY_NOT_FOUND))
		if !ok || absent.Answer.Facts.Partial == nil || !errors.Is(absent, store.ErrPartial) || !errors.Is(absent, store.ErrNotFound) {
			t.Errorf("from %s: %v", n.id, err)
		}
	}
	if n := valueOf(t, a.srv.m.partial); n != 6 {
		t.Errorf("%v partial reads are counted", n)
	}
	// The owner is gone altogether.
	a.stores.onRead = func(context.Context, store.Partition) error { return store.ErrShuttingDown }
	if resp, err := ask(c); err != nil || string(resp.GetValue().GetData()) != "copy" || resp.GetAnswer().GetPartial() == nil {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestPartialOnlyForWhoAsks: invariant 6 for everybody else: the error says how far the restore is.
func TestPartialOnlyForWhoAsks(t *testing.T) {
	t.Parallel()
	m := withCopies(t, 2, 1)
	m.restore(0, m.nodes...)
	for name, o := range map[string]*statemeshv1.ReadOptions{
		"nothing":        nil,
		"a bound":        {MaxStaleness: durationpb.New(time.Minute)},
		"a bound beside": acceptPartial(func(o *statemeshv1.ReadOptions) { o.MaxStaleness = durationpb.New(time.Minute) }),
		"a position": acceptPartial(func(o *statemeshv1.ReadOptions) {
			o.AtLeastPosition = wire.FromPosition(store.Position{"in": {0: 1}})
		}),
		"a token": acceptPartial(func(o *statemeshv1.ReadOptions) {
			o.AtLeast = [][]byte{wire.FromToken(testStore, store.Token{Cuts: map[store.Partition]store.Cut{0: {Next: 1}}})}
		}),
	} {
		for _, n := range m.nodes {
			_, err := n.query().Get(t.Context(), get(m.keyIn(0), func(r *statemeshv1.GetRequest) { r.Options = o }))
			got := wire.FromStatus(err)
			if e, ok := errors.AsType[*store.NotReadyError](got); ok && e.Restored == 3 && e.Total == 10 && e.Left == 5*time.Second {
				continue
			}
			e, ok := errors.AsType[*store.NoReplicaError](got)
			if !ok || len(e.Candidates) == 0 || e.Candidates[0].Reason != "store flights partition 0: not ready: restoring, 3 of 10, about 5s left" {
				t.Errorf("%s, from %s: %v", name, n.id, got)
			}
		}
	}
	// Who insists on the owner may have what the owner has.
	resp, err := m.node("b").query().Get(t.Context(), get(m.keyIn(0), func(r *statemeshv1.GetRequest) {
		r.Options = acceptPartial(func(o *statemeshv1.ReadOptions) { o.Role = statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE })
	}))
	if err != nil || string(resp.GetValue().GetData()) != "owner" || resp.GetAnswer().GetPartial() == nil {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestPartialAmongWhole: of a request over many partitions each answer says it for its own.
func TestPartialAmongWhole(t *testing.T) {
	t.Parallel()
	m := withCopies(t, 2, 2)
	m.restore(1, m.nodes...)
	for _, n := range m.nodes {
		q := n.query()
		batch, err := q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{
			Store: string(testStore), Keys: [][]byte{m.keyIn(0), m.keyIn(1)}, Options: acceptPartial(),
		})
		if err != nil || len(batch.GetAnswers()) != 2 || batch.GetAnswers()[0].GetPartial() != nil || batch.GetAnswers()[1].GetPartial() == nil {
			t.Errorf("from %s: %v, %v", n.id, batch, err)
		}
		count, err := q.Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Options: acceptPartial()})
		if err != nil || count.GetApproximateCount() != 2 || len(count.GetAnswers()) != 2 || count.GetAnswers()[1].GetPartial() == nil {
			t.Errorf("from %s: %v, %v", n.id, count, err)
		}
		stream, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Options: acceptPartial()})
		if err != nil {
			t.Fatal(err)
		}
		rows, _, answers, err := drainScan(stream)
		if err != nil || len(rows) != 2 || len(answers) != 2 || answers[0].GetPartial() != nil || answers[1].GetPartial() == nil {
			t.Errorf("from %s: %v, %v, %v", n.id, rows, answers, err)
		}
		_, err = q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{m.keyIn(0), m.keyIn(1)}})
		if err == nil {
			t.Errorf("from %s: nobody accepted partial state", n.id)
		}
	}
}

// TestPartialIsNotKept: the remote cache does not have it, neither for who accepts it nor for the others.
func TestPartialIsNotKept(t *testing.T) {
	t.Parallel()
	m := withCopies(t, 2, 1, withCache)
	d := m.data
	d.Epoch = 3
	d.Instances[1].Standby = nil
	b := m.node("b")
	b.stores.drop(0)
	m.publish(b, d)
	m.restore(0, m.node("a"))
	key := m.keyIn(0)
	for range 2 {
		resp, err := b.query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = acceptPartial() }))
		if err != nil || resp.GetAnswer().GetPartial() == nil || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_ACTIVE {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	_, err := b.query().Get(t.Context(), get(key))
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
}

// partialPeer answers everybody with partial state.
type partialPeer struct{ statemeshv1.QueryServiceClient }

func (partialPeer) Get(context.Context, *statemeshv1.GetRequest, ...grpc.CallOption) (*statemeshv1.GetResponse, error) {
	a := halfAnswer
	a.Facts.Partial = partially3of10()
	return &statemeshv1.GetResponse{Value: wire.FromValue(store.Value{Data: []byte("v")}), Answer: wire.FromAnswer(testStore, a)}, nil
}

// A peer that gives partial state to who did not ask for it is not believed.
func TestPartialUnasked(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 1, func(int) int { return 0 })
	s := m.node("a").srv
	for _, accepts := range []bool{false, true} {
		rd := &read{store: testStore, family: keyValues, opts: wire.ReadOptions{Partial: accepts}}
		r := &rider{item: item{key: []byte("k")}}
		if err := s.lookupAlone(t.Context(), rd, partialPeer{}, nil, r); err != nil {
			t.Fatal(err)
		}
		if err := s.check(rd, worth{answer: r.answer, at: time.Now()}); accepts != (err == nil) || !accepts && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("accepts %v: %v", accepts, err)
		}
	}
}
