package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// A stop: health first, watches end with a reason, what is in flight ends in peace, what is new is refused, and Run
// returns.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, 1, func(int) int { return 0 })
		a := m.node("a")
		key := m.keyIn(0)
		m.put(key, []byte("v"))
		hc := grpc_health_v1.NewHealthClient(a.conn)
		synctest.Wait()
		if r, err := hc.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatal(r, err)
		}
		hw, err := hc.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "statemesh.v1.QueryService"})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := hw.Recv(); err != nil || r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatal(r, err)
		}
		watch, err := a.meta().Watch(t.Context(), &statemeshv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := watch.Recv(); err != nil || r.GetSnapshot().GetEpoch() != 1 {
			t.Fatal(r, err)
		}
		a.stores.onRead = func(context.Context, store.Partition) error { time.Sleep(2 * time.Second); return nil }
		var wg sync.WaitGroup
		wg.Go(func() {
			if r, err := a.query().Get(t.Context(), get(key)); err != nil || string(r.GetValue().GetData()) != "v" {
				t.Errorf("in flight: %v, %v", r, err)
			}
		})
		synctest.Wait()
		a.stop()
		begin := time.Now()
		_, err = watch.Recv()
		wantErr(t, err, statemeshv1.Reason_REASON_SHUTTING_DOWN)
		for err = nil; err == nil; {
			_, err = hw.Recv()
		}
		if c := status.Code(err); c != codes.Canceled {
			t.Errorf("health watch: %v", err)
		}
		if _, err := a.query().Get(t.Context(), get(key)); err == nil {
			t.Error("a new call was answered while stopping")
		}
		wg.Wait()
		err = <-a.done
		a.done <- err
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("the stop took %s, the call 2s", took)
		}
	})
}

// A call that does not end is cut off after GracePeriod, so Run is bounded.
func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, 1, func(int) int { return 0 })
		a := m.node("a")
		a.stores.onRead = func(ctx context.Context, _ store.Partition) error { <-ctx.Done(); return context.Cause(ctx) }
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		wg.Go(func() {
			if _, err := a.query().Get(ctx, get(m.keyIn(0))); err == nil {
				t.Error("answered")
			}
		})
		synctest.Wait()
		begin := time.Now()
		a.stop()
		err := <-a.done
		a.done <- err
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("took %s", took)
		}
		wg.Wait()
	})
}

// GN-03: an idle connection with the keepalive that clients use is never sent away.
func TestIdleConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 1, 1, func(int) int { return 0 })
		a := m.node("a")
		conn, err := grpc.NewClient("passthrough:///a", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithIdleTimeout(0), grpc.WithContextDialer(a.dialer()),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{
				Time: wire.KeepaliveTime, Timeout: wire.KeepaliveTimeout, PermitWithoutStream: true,
			}))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		q := statemeshv1.NewMetadataServiceClient(conn)
		if _, err := q.ListStores(t.Context(), &statemeshv1.ListStoresRequest{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a connection answers before its state says that it is ready
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if conn.WaitForStateChange(ctx, connectivity.Ready) {
			t.Fatalf("the idle connection became %s", conn.GetState())
		}
	})
}

// A call without a deadline gets the default; a scan, which goes at the pace of its reader, a longer one; a watch none.
func TestDefaultDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, 2, func(p int) int { return p })
		left := make(chan time.Duration, 1)
		for _, n := range m.nodes {
			n.stores.onRead = func(ctx context.Context, _ store.Partition) error {
				d, _ := ctx.Deadline()
				left <- time.Until(d)
				return store.ErrUnknownStore
			}
		}
		q := m.node("a").query()
		for p, want := range []time.Duration{10 * time.Second, 10*time.Second - maxReserve} { // here, and by a hop
			_, _ = q.Get(t.Context(), get(m.keyIn(store.Partition(p))))
			if got := <-left; got != want {
				t.Errorf("get of partition %d: %s left, want %s", p, got, want)
			}
		}
		s, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Partitions: []int32{0}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, _ = drainScan(s)
		if got := <-left; got != 300*time.Second {
			t.Errorf("scan: %s left", got)
		}
	})
}

// The age that a caller sees covers the way back, and the bound is held to it: what was fresh when the owner sent it may
// be too old when it arrives.
func TestAgeCountsTheHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, 2, func(p int) int { return p })
		key := m.keyIn(1)
		m.put(key, []byte("v"))
		m.node("b").stores.onRead = func(context.Context, store.Partition) error { time.Sleep(3 * time.Second); return nil }
		resp, err := m.node("a").query().Get(t.Context(), get(key, within(4*time.Second)))
		if err != nil || resp.GetAnswer().GetAge().AsDuration() != 3*time.Second {
			t.Errorf("%v, %v", resp, err)
		}
		_, err = m.node("a").query().Get(t.Context(), get(key, within(2*time.Second)))
		if got := asErr(t, err, statemeshv1.Reason_REASON_NOT_READY); !errors.Is(got, store.ErrNotReady) {
			t.Error(got)
		}
	})
}
