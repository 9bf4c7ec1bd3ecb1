package server

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// fakeThreads answers every change with one name and error.
type fakeThreads struct {
	name    string
	err     error
	threads []router.Thread
}

func (f *fakeThreads) AddThread(context.Context) (string, error) { return f.name, f.err }

func (f *fakeThreads) RemoveThread(context.Context) (string, error) { return f.name, f.err }

func (f *fakeThreads) Threads() []router.Thread { return f.threads }

func (*fakeThreads) MaxThreads() int { return 5 }

func TestThreadsAreTold(t *testing.T) {
	t.Parallel()
	fake := &fakeThreads{
		name:    "stream-thread-3",
		threads: []router.Thread{{Name: "stream-thread-0", State: router.ThreadRunning, Tasks: []store.TaskID{{Partition: 2}}}},
	}
	m := newMesh(t, 2, 1, func(int) int { return 0 }, func(id string, _ *Config, d *Deps) {
		if id == "a" {
			d.Threads = fake
		}
	})
	admin := statemeshv1.NewAdminServiceClient(m.node("a").conn)
	list, err := admin.ListThreads(t.Context(), &statemeshv1.ListThreadsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, limit := wire.ToThreads(list); !reflect.DeepEqual(got, fake.threads) || limit != 5 || list.GetAnsweredBy() != "a" {
		t.Errorf("listed %+v, at most %d, by %q", got, limit, list.GetAnsweredBy())
	}
	for _, want := range []error{nil, &router.ThreadLimitError{Threads: 1, Limit: 2, MemoryLimit: 3}, router.ErrLastThread, router.ErrThreadLingers} {
		fake.err = want
		if want != nil {
			fake.err = fmt.Errorf("change: %w", want)
		}
		added, err := admin.AddThread(t.Context(), &statemeshv1.AddThreadRequest{})
		if err != nil || added.GetThread() != fake.name || added.GetAnsweredBy() != "a" {
			t.Errorf("added %v, %v", added, err)
		}
		if got := wire.ToThreadRefusal(added.GetRefusal(), added.GetLimit()); !reflect.DeepEqual(got, want) {
			t.Errorf("adding ends with %v, want %v", got, want)
		}
		removed, err := admin.RemoveThread(t.Context(), &statemeshv1.RemoveThreadRequest{})
		if err != nil || removed.GetThread() != fake.name || removed.GetAnsweredBy() != "a" || removed.GetRefusal() != added.GetRefusal() {
			t.Errorf("removed %v, %v", removed, err)
		}
	}
	fake.err = fmt.Errorf("add: %w", store.ErrShuttingDown)
	_, err = admin.AddThread(t.Context(), &statemeshv1.AddThreadRequest{})
	wantErr(t, err, statemeshv1.Reason_REASON_SHUTTING_DOWN)
	_, err = statemeshv1.NewAdminServiceClient(m.node("b").conn).RemoveThread(t.Context(), &statemeshv1.RemoveThreadRequest{})
	wantErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST)
}

// TestAdminIsForOperators: no call of the admin service is open to who may only query.
func TestAdminIsForOperators(t *testing.T) {
	t.Parallel()
	methods := (&Server{}).methods()
	service := statemeshv1.AdminService_ServiceDesc
	names := make([]string, 0, len(service.Methods)+len(service.Streams))
	for _, m := range service.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range service.Streams {
		names = append(names, s.StreamName)
	}
	for _, name := range names {
		if m, ok := methods["/"+service.ServiceName+"/"+name]; !ok || !m.operator {
			t.Errorf("%s is open to who may only query", name)
		}
	}
}

func TestTopologyIsTold(t *testing.T) {
	t.Parallel()
	want := &router.Topology{Application: "app", Text: "t", Subtopologies: []router.Subtopology{{ID: 3}}}
	m := newMesh(t, 2, 1, func(int) int { return 0 }, func(id string, _ *Config, d *Deps) {
		if id == "a" {
			d.Topology = func() *router.Topology { return want }
		}
	})
	got, err := m.node("a").meta().DescribeTopology(t.Context(), &statemeshv1.DescribeTopologyRequest{})
	if err != nil || !reflect.DeepEqual(wire.ToTopology(got), want) || got.GetAnsweredBy() != "a" {
		t.Errorf("described %v, %v", got, err)
	}
	_, err = m.node("b").meta().DescribeTopology(t.Context(), &statemeshv1.DescribeTopologyRequest{})
	wantErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST)
	if e, ok := errors.AsType[*store.InvalidRequestError](wire.FromStatus(err)); !ok || !strings.Contains(e.Reason, "topology") {
		t.Errorf("%v", err)
	}
}
