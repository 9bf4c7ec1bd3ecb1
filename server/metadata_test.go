package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func TestMetadata(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 4, func(p int) int { return p % 2 })
	meta := m.node("c").meta()
	stores, err := meta.ListStores(t.Context(), &statemeshv1.ListStoresRequest{})
	if err != nil || stores.GetApplication() != "app" || stores.GetEpoch() != 1 || !slices.Equal(wire.ToStores(stores.GetStores()), m.data.Stores) {
		t.Errorf("%v, %v", stores, err)
	}
	all, err := meta.ListInstances(t.Context(), &statemeshv1.ListInstancesRequest{})
	if err != nil || len(all.GetInstances()) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	some, err := meta.ListInstances(t.Context(), &statemeshv1.ListInstancesRequest{Store: new(string(testStore))})
	if err != nil || len(some.GetInstances()) != 2 || len(some.GetInstances()[1].GetActive()) != 2 {
		t.Errorf("%v, %v", some, err)
	}
	for p := range store.Partition(4) {
		o, err := meta.FindOwner(t.Context(), &statemeshv1.FindOwnerRequest{Store: string(testStore), Key: m.keyIn(p)})
		if err != nil || o.GetPartition() != int32(p) || o.GetActive().GetId() != m.owner(p).id || o.GetEpoch() != 1 || o.GetMovingTo() != nil {
			t.Errorf("partition %d: %v, %v", p, o, err)
		}
	}
	d := m.data
	d.Epoch, d.Moving = 2, map[store.TaskID]string{{Partition: 0}: "c"}
	m.publish(m.node("c"), d)
	o, err := meta.FindOwner(t.Context(), &statemeshv1.FindOwnerRequest{Store: string(testStore), Key: m.keyIn(0)})
	if err != nil || o.GetMovingTo().GetId() != "c" || o.GetMovingTo().GetEndpoint() != endpointOf("c") || o.GetActive().GetId() != "a" {
		t.Errorf("%v, %v", o, err)
	}
}

// A watch sends the newest snapshot, then each newer one, and none twice.
func TestWatch(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 2, func(int) int { return 0 }, func(_ string, c *Config, _ *Deps) { c.MaxWatches = 2 })
	a := m.node("a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := a.meta().Watch(ctx, &statemeshv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	later, err := a.meta().Watch(ctx, &statemeshv1.WatchRequest{KnownEpoch: new(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.Recv()
	if err != nil || r.GetSnapshot().GetEpoch() != 1 {
		t.Fatal(r, err)
	}
	d, err := wire.ToData(r.GetSnapshot())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := router.NewSnapshot(d); err != nil || !proto.Equal(wire.FromData(d), r.GetSnapshot()) {
		t.Errorf("%v: %v", d, err)
	}
	next := m.data
	next.Epoch = 5
	m.publish(a, next)
	for name, s := range map[string]interface {
		Recv() (*statemeshv1.WatchResponse, error)
	}{"first": w, "that knew epoch 1": later} {
		if r, err := s.Recv(); err != nil || r.GetSnapshot().GetEpoch() != 5 {
			t.Errorf("the watch %s: %v, %v", name, r, err)
		}
	}
	third, err := a.meta().Watch(ctx, &statemeshv1.WatchRequest{})
	if err == nil {
		_, err = third.Recv()
	}
	wantErr(t, err, statemeshv1.Reason_REASON_OVERLOADED)
	cancel()
	_, err = w.Recv()
	if got := wire.FromStatus(err); !errors.Is(got, context.Canceled) {
		t.Error(got)
	}
}

func TestAdminPages(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ready := errors.New("2 of 4 tasks restore")
	m := newMesh(t, 1, 2, func(int) int { return 0 }, func(_ string, c *Config, d *Deps) {
		c.AdminListener = lis
		d.Ready = func() error { return ready }
		d.Status = func() any { return map[string]int{"tasks": 4} }
	})
	if _, err := m.node("a").query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)}); err != nil {
		t.Fatal(err)
	}
	page := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+lis.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, _ := page("/healthz"); code != http.StatusOK {
		t.Error(code)
	}
	if code, text := page("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, ready.Error()) {
		t.Error(code, text)
	}
	if _, text := page("/metrics"); !strings.Contains(text, `statemesh_server_requests_total{method="Count",origin="entry",outcome="OK",route="local"} 1`) {
		t.Error(text)
	}
	if code, _ := page("/debug/pprof/goroutine?debug=1"); code != http.StatusOK {
		t.Error(code)
	}
	_, text := page("/statusz")
	var st statusPage
	if err := json.Unmarshal([]byte(text), &st); err != nil || st.Instance != "a" || st.Epoch != 1 || st.Ready || st.NotReady != ready.Error() {
		t.Errorf("%s: %v", text, err)
	}
}
