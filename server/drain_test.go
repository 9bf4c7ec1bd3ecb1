package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// fakeDrainer reports what it is told to and ends as it is told to.
type fakeDrainer struct {
	reports []router.DrainStatus
	end     error // nil: when it is undone

	mu     sync.Mutex
	undone chan struct{}
	goal   router.DrainGoal
}

func newFakeDrainer() *fakeDrainer { return &fakeDrainer{undone: make(chan struct{})} }

func (f *fakeDrainer) Drain(ctx context.Context, goal router.DrainGoal, report func(router.DrainStatus)) error {
	f.mu.Lock()
	f.goal = goal
	f.mu.Unlock()
	for _, s := range f.reports {
		report(s)
	}
	if f.end != nil || len(f.reports) > 0 {
		return f.end
	}
	select {
	case <-f.undone:
		return router.ErrDrainUndone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fakeDrainer) Undrain() { close(f.undone) }

func drainStream(t *testing.T, n *node, req *statemeshv1.DrainRequest) grpc.ServerStreamingClient[statemeshv1.DrainResponse] {
	t.Helper()
	stream, err := statemeshv1.NewAdminServiceClient(n.conn).Drain(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A drain's progress comes as it is, and its outcome with the last message.
func TestDrainIsTold(t *testing.T) {
	t.Parallel()
	id := store.TaskID{Subtopology: 1, Partition: 2}
	status := router.DrainStatus{
		Heeded: true, Kept: 3, Copies: []store.TaskID{id},
		Tasks: []router.DrainTask{
			{Task: id, Stage: router.DrainWarming, To: "b", Lag: 7}, {Task: store.TaskID{Partition: 3}, Stage: router.DrainWaiting, Lag: -1},
		},
	}
	for _, tc := range []struct {
		end  error
		want statemeshv1.DrainOutcome
	}{
		{nil, statemeshv1.DrainOutcome_DRAIN_OUTCOME_DONE},
		{router.ErrNobodyTakes, statemeshv1.DrainOutcome_DRAIN_OUTCOME_NOBODY_TAKES},
		{router.ErrDrainUnsupported, statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNKNOWN_TO_LEADER},
	} {
		fake := newFakeDrainer()
		fake.reports, fake.end = []router.DrainStatus{status, {Heeded: true}}, tc.end
		m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, _ *Config, d *Deps) { d.Drainer = fake })
		stream := drainStream(t, m.node("a"), wire.FromDrainGoal(router.TasksServed))
		first, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := wire.ToDrainStatus(first); !got.Equal(&status) || first.GetAnsweredBy() != "a" || first.GetOutcome() != 0 {
			t.Errorf("got %+v by %s, want %+v", got, first.GetAnsweredBy(), status)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		last, err := stream.Recv()
		if err != nil || last.GetOutcome() != tc.want || !last.GetHeeded() || len(last.GetTasks()) > 0 {
			t.Errorf("the end: %v, %v, want %s", last, err, tc.want)
		}
		if ended, got := wire.ToDrainOutcome(last); !ended || !errors.Is(got, tc.end) {
			t.Errorf("read as %v", got)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %v", err)
		}
		if fake.goal != router.TasksServed {
			t.Errorf("goal %d", fake.goal)
		}
	}
}

// TestDrainWhileStarting: that it is too early is no outcome but an error, which the caller can tell from others.
func TestDrainWhileStarting(t *testing.T) {
	t.Parallel()
	fake := newFakeDrainer()
	fake.end = fmt.Errorf("drain: %w", &store.NotReadyError{Reason: "starting", RetryAfter: time.Second})
	m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, _ *Config, d *Deps) { d.Drainer = fake })
	_, err := drainStream(t, m.node("a"), &statemeshv1.DrainRequest{}).Recv()
	e, ok := errors.AsType[*store.NotReadyError](wire.FromStatus(err))
	if !ok || e.Store != "" || e.Reason != "starting" || e.RetryAfter != time.Second || e.Error() != "not ready: starting" {
		t.Errorf("read as %v", wire.FromStatus(err))
	}
}

// A drain that is undone ends for who watches it; the end of the server ends the watch; an instance that does not drain says so.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	fake := newFakeDrainer()
	m := newMesh(t, 2, 1, func(int) int { return 0 }, func(id string, _ *Config, d *Deps) {
		if id == "a" {
			d.Drainer = fake
		}
	})
	a := m.node("a")
	stream := drainStream(t, a, &statemeshv1.DrainRequest{})
	if _, err := statemeshv1.NewAdminServiceClient(a.conn).Undrain(t.Context(), &statemeshv1.UndrainRequest{}); err != nil {
		t.Fatal(err)
	}
	last, err := stream.Recv()
	if err != nil || last.GetOutcome() != statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNDONE {
		t.Errorf("undone: %v, %v", last, err)
	}
	if fake.goal != router.CopiesReplaced {
		t.Errorf("goal %d of a request that says none", fake.goal)
	}
	_, err = drainStream(t, m.node("b"), &statemeshv1.DrainRequest{}).Recv()
	wantErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST)
}

func TestDrainEndsWithTheServer(t *testing.T) {
	t.Parallel()
	fake := newFakeDrainer()
	m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, _ *Config, d *Deps) { d.Drainer = fake })
	a := m.node("a")
	stream := drainStream(t, a, &statemeshv1.DrainRequest{})
	if _, err := a.meta().ListStores(t.Context(), &statemeshv1.ListStoresRequest{}); err != nil { // the stream is on its way, too
		t.Fatal(err)
	}
	a.stop()
	_, err := stream.Recv()
	wantErr(t, err, statemeshv1.Reason_REASON_SHUTTING_DOWN)
}

// Who may query may not drain: that takes what an instance of the mesh proves.
func TestOperatorsProveThemselves(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "mesh")
	server := ca.issue("server", 2, "mesh.internal")
	addr := secured(t, &TLS{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.file})
	undrain := func(name string) error {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(clientOf(t, ca.issue(name, 9, name))), grpc.WithNoProxy())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = statemeshv1.NewAdminServiceClient(conn).Undrain(t.Context(), &statemeshv1.UndrainRequest{})
		return err
	}
	wantErr(t, undrain("client.internal"), statemeshv1.Reason_REASON_PERMISSION_DENIED)
	wantErr(t, undrain("mesh.internal"), statemeshv1.Reason_REASON_INVALID_REQUEST) // it is let in, and this one cannot drain
}
