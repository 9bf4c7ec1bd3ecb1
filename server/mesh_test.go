package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// fakeMesh sees everybody dead but itself, and notes what it is told.
type fakeMesh struct {
	self suspect.Subject

	mu   sync.Mutex
	told map[suspect.Subject]router.Epoch
}

func (f *fakeMesh) Suspect(_ context.Context, s suspect.Subject) suspect.Sighting {
	if s.Instance == f.self.Instance {
		return suspect.Sighting{Kind: suspect.Alive, Incarnation: f.self.Incarnation}
	}
	return suspect.Sighting{Kind: suspect.Refused}
}

func (f *fakeMesh) Rejoin(_ context.Context, s suspect.Subject, epoch router.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told[s] = epoch
}

// The MeshService is for proven peers: without their mark, with that of another application, or with its own, nobody is heard.
func TestMeshServiceIsForPeers(t *testing.T) {
	t.Parallel()
	fake := &fakeMesh{self: suspect.Subject{Instance: "a", Incarnation: "1"}, told: make(map[suspect.Subject]router.Epoch)}
	m := newMesh(t, 2, 1, func(int) int { return 1 }, func(id string, _ *Config, d *Deps) {
		if id == "a" {
			d.Mesh = fake
		}
	})
	c := statemeshv1.NewMeshServiceClient(m.node("a").conn)
	for name, ctx := range map[string]context.Context{
		"anybody":                    t.Context(),
		"a peer of another":          wire.Forwarded{By: "b", Application: "other"}.Outgoing(t.Context()),
		"one with the instance's id": wire.Forwarded{By: "a", Application: "app"}.Outgoing(t.Context()),
	} {
		_, err := c.Suspect(ctx, &statemeshv1.SuspectRequest{Instance: "b", Incarnation: "1"})
		if err = wire.FromStatus(err); !errors.Is(err, store.ErrPermissionDenied) {
			t.Errorf("%s may ask: %v", name, err)
		}
		_, err = c.Rejoin(ctx, &statemeshv1.RejoinRequest{Instance: "b", Incarnation: "1", Epoch: 7})
		if err = wire.FromStatus(err); !errors.Is(err, store.ErrPermissionDenied) {
			t.Errorf("%s may tell: %v", name, err)
		}
	}
	if len(fake.told) != 0 {
		t.Errorf("heard %v", fake.told)
	}

	peer := wire.Forwarded{By: "b", Application: "app"}.Outgoing(t.Context())
	seen, err := c.Suspect(peer, &statemeshv1.SuspectRequest{Instance: "a", Incarnation: "0"})
	if err != nil || seen.GetSighting() != statemeshv1.Sighting_SIGHTING_ALIVE || seen.GetIncarnation() != "1" || seen.GetAnsweredBy() != "a" {
		t.Errorf("about itself: %v, %v", seen, err)
	}
	seen, err = c.Suspect(peer, &statemeshv1.SuspectRequest{Instance: "c", Incarnation: "1"})
	if err != nil || seen.GetSighting() != statemeshv1.Sighting_SIGHTING_REFUSED || seen.GetIncarnation() != "" {
		t.Errorf("about another: %v, %v", seen, err)
	}
	if _, err := c.Rejoin(peer, &statemeshv1.RejoinRequest{Instance: "c", Incarnation: "1", Epoch: 7}); err != nil {
		t.Error(err)
	}
	if e := fake.told[suspect.Subject{Instance: "c", Incarnation: "1"}]; e != 7 {
		t.Errorf("told of epoch %d", e)
	}
	_, err = c.Suspect(peer, &statemeshv1.SuspectRequest{Instance: "c"})
	wantErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST)

	// Who has nothing to say says that.
	b := statemeshv1.NewMeshServiceClient(m.node("b").conn)
	seen, err = b.Suspect(wire.Forwarded{By: "a", Application: "app"}.Outgoing(t.Context()), &statemeshv1.SuspectRequest{Instance: "a", Incarnation: "1"})
	if err != nil || seen.GetSighting() != statemeshv1.Sighting_SIGHTING_UNKNOWN || seen.GetAnsweredBy() != "b" {
		t.Errorf("%v, %v", seen, err)
	}
}

// MR-09, MR-10: a suspected owner is asked last: the standby answers what may be answered by one, and the owner is not even tried. Who insists on
// the owner asks it all the same.
func TestSuspectedIsAskedLast(t *testing.T) {
	t.Parallel()
	var suspected atomic.Bool
	m := newMesh(t, 3, 1, func(int) int { return 1 }, func(id string, _ *Config, d *Deps) {
		if id == "a" {
			d.Suspected = func(to router.Replica) bool { return suspected.Load() && to.Instance == "b" }
		}
	})
	a, b, c := m.node("a"), m.node("b"), m.node("c")
	d := m.moved(2, 0, "b")
	d.Instances[2].Standby = []store.TaskID{{Partition: 0}}
	for _, n := range m.nodes {
		m.publish(n, d)
	}
	key := m.keyIn(0)
	b.stores.put(0, key, []byte("v"))
	c.stores.hold(0)
	c.stores.put(0, key, []byte("v"))
	ask := func(n *node, opts *statemeshv1.ReadOptions) string {
		t.Helper()
		resp, err := n.query().Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: key, Options: opts}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetAnswer().GetAnsweredBy().GetId()
	}
	if by := ask(a, nil); by != "b" {
		t.Fatalf("answered by %s", by)
	}
	suspected.Store(true)
	before := b.stores.reads.Load()
	if by := ask(a, nil); by != "c" {
		t.Errorf("answered by %s, want the standby", by)
	}
	if b.stores.reads.Load() != before {
		t.Error("the suspect was asked")
	}
	if by := ask(a, &statemeshv1.ReadOptions{Role: statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE}); by != "b" {
		t.Errorf("answered by %s, want the owner", by)
	}
	c.stores.drop(0)
	if by := ask(a, nil); by != "b" { // the last one left
		t.Errorf("answered by %s, want the owner", by)
	}
}
