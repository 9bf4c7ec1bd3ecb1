package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// pause makes an instance keep its connections and say nothing, until the returned function is called.
func (n *node) pause() (resume func()) {
	awake := make(chan struct{})
	n.stores.onRead = func(ctx context.Context, _ store.Partition) error {
		select {
		case <-awake:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return sync.OnceFunc(func() { close(awake) })
}

// asksAll asks c for something of each kind, which the copies answer.
func asksAll(t *testing.T, m *mesh, c *node, o *statemeshv1.ReadOptions) {
	t.Helper()
	batch, err := c.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{
		Store: string(testStore), Keys: [][]byte{m.keyIn(0), m.keyIn(1), []byte("nobody's")}, Options: o,
	})
	if err != nil || len(batch.GetAnswers()) != 2 || string(batch.GetResults()[0].GetValue().GetData()) != "copy" || batch.GetResults()[2].GetValue() != nil {
		t.Errorf("%v, %v", batch, err)
	}
	stream, err := c.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Options: o})
	if err != nil {
		t.Fatal(err)
	}
	if rows, _, answers, err := drainScan(stream); err != nil || len(rows) != 2 || len(answers) != 2 || string(rows[0].GetValue().GetData()) != "copy" {
		t.Errorf("%v, %v, %v", rows, answers, err)
	}
	count, err := c.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Options: o})
	if err != nil || count.GetApproximateCount() != 2 || len(count.GetPartitions()) != 2 {
		t.Errorf("%v, %v", count, err)
	}
}

// TestHedgeForAPausedOwner: an owner that says nothing costs a read a quarter of a second, whatever kind of read it is, and the next
// ones nothing; it is asked again after a while. Invariant 8 holds: nobody forwards what was forwarded.
func TestHedgeForAPausedOwner(t *testing.T) {
	kinds := map[string]func(t *testing.T, m *mesh, c *node){
		"get": func(t *testing.T, m *mesh, c *node) {
			resp, err := c.query().Get(t.Context(), get(m.keyIn(0)))
			if err != nil || string(resp.GetValue().GetData()) != "copy" || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_STANDBY {
				t.Errorf("%v, %v", resp, err)
			}
		},
		"all": func(t *testing.T, m *mesh, c *node) { asksAll(t, m, c, nil) },
	}
	for name, first := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := withCopies(t, 4, 2)
				d := m.data
				d.Epoch = 3
				d.Instances[3].Standby = nil // it has nothing of its own
				c := m.node("d")
				c.stores.drop(0)
				c.stores.drop(1)
				m.publish(c, d)
				a := m.node("a")
				resume := a.pause()
				begun := time.Now()
				first(t, m, c)
				if took := time.Since(begun); took != 250*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				asked := a.stores.reads.Load()
				begun = time.Now()
				asksAll(t, m, c, nil)
				if took := time.Since(begun); took != 0 || a.stores.reads.Load() != asked {
					t.Errorf("the next ones took %s, and the owner was asked %d times", took, a.stores.reads.Load()-asked)
				}
				if n := valueOf(t, c.srv.m.hedges.WithLabelValues("answered")); n != 1 {
					t.Errorf("copies have answered %v times for a slow one", n)
				}
				resume()
				time.Sleep(time.Second)
				resp, err := c.query().Get(t.Context(), get(m.keyIn(0)))
				if err != nil || string(resp.GetValue().GetData()) != "owner" {
					t.Errorf("the owner is back: %v, %v", resp, err)
				}
			})
		})
	}
}

// Who insists on the owner, or accepts no age, waits for it; and so does everybody when nobody else may answer.
func TestNoHedge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 1, func(id string, c *Config, _ *Deps) {
			if id == "c" {
				c.DefaultMaxStaleness = 0
			}
		})
		m.node("a").pause()
		b, c := m.node("b"), m.node("c")
		active := func(r *statemeshv1.GetRequest) {
			r.Options = &statemeshv1.ReadOptions{Role: statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE}
		}
		for _, ask := range []struct {
			of  *node
			req *statemeshv1.GetRequest
		}{{b, get(m.keyIn(0), active)}, {c, get(m.keyIn(0))}} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			begun := time.Now()
			_, err := ask.of.query().Get(ctx, ask.req)
			if err == nil || time.Since(begun) < 2900*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(begun))
			}
			cancel()
		}
		for _, n := range []*node{b, c} {
			for _, outcome := range []string{"answered", "overtaken", "failed"} {
				if got := valueOf(t, n.srv.m.hedges.WithLabelValues(outcome)); got != 0 {
					t.Errorf("%s: %v are %s", n.id, got, outcome)
				}
			}
		}
	})
}

// The first good answer counts: the owner's when it comes before the copy's, and when the copies have none.
func TestSlowOwnerAnswersAfterAll(t *testing.T) {
	for name, c := range map[string]struct {
		copies  func(ctx context.Context) error
		outcome string
	}{
		"copies are not ready": {func(context.Context) error {
			return &store.NotReadyError{Store: testStore, Reason: "restoring", Restored: 1, Total: 2}
		}, "failed"},
		"copies are slower": {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := withCopies(t, 3, 1)
				m.node("a").stores.onRead = func(context.Context, store.Partition) error { time.Sleep(600 * time.Millisecond); return nil }
				for _, id := range []string{"b", "c"} {
					m.node(id).stores.onRead = func(ctx context.Context, _ store.Partition) error { return c.copies(ctx) }
				}
				b := m.node("b")
				begun := time.Now()
				resp, err := b.query().Get(t.Context(), get(m.keyIn(0)))
				if took := time.Since(begun); err != nil || string(resp.GetValue().GetData()) != "owner" || took != 600*time.Millisecond {
					t.Errorf("%v, %v after %s", resp, err, took)
				}
				if n := valueOf(t, b.srv.m.hedges.WithLabelValues(c.outcome)); n != 1 {
					t.Errorf("%s: %v", c.outcome, n)
				}
			})
		})
	}
}

// An error of the slow owner is not the end while a copy is being asked.
func TestHedgeOutlivesTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 1)
		m.node("a").stores.onRead = func(context.Context, store.Partition) error {
			time.Sleep(300 * time.Millisecond)
			return store.ErrShuttingDown
		}
		m.node("b").stores.onRead = func(context.Context, store.Partition) error { time.Sleep(200 * time.Millisecond); return nil }
		begun := time.Now()
		resp, err := m.node("b").query().Get(t.Context(), get(m.keyIn(0)))
		if took := time.Since(begun); err != nil || string(resp.GetValue().GetData()) != "copy" || took != 450*time.Millisecond {
			t.Errorf("%v, %v after %s", resp, err, took)
		}
	})
}

// A slow owner that says who has the task now is followed at once: the copy that was asked for its sake may never answer.
func TestHedgeEndsForARedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 1)
		m.node("a").stores.onRead = func(context.Context, store.Partition) error {
			time.Sleep(300 * time.Millisecond)
			return &store.MovedError{Store: testStore, Instance: "c", Endpoint: endpointOf("c"), Epoch: 3}
		}
		begun := time.Now()
		for _, id := range []string{"b", "c"} {
			m.node(id).stores.onRead = func(ctx context.Context, _ store.Partition) error {
				if time.Since(begun) >= 300*time.Millisecond {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		resp, err := m.node("b").query().Get(t.Context(), get(m.keyIn(0)))
		if took := time.Since(begun); err != nil || string(resp.GetValue().GetData()) != "copy" || took != 300*time.Millisecond {
			t.Errorf("%v, %v after %s", resp, err, took)
		}
	})
}

// Who waits for a token is not slow: the copy is asked only when that wait is over.
func TestHedgeAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 1)
		m.node("a").pause()
		var asked atomic.Int64
		begun := time.Now()
		m.node("b").stores.onRead = func(context.Context, store.Partition) error { asked.Store(int64(time.Since(begun))); return nil }
		_, err := m.node("b").query().Get(t.Context(), get(m.keyIn(0), func(r *statemeshv1.GetRequest) {
			r.Options = &statemeshv1.ReadOptions{
				Wait: durationpb.New(time.Second), AtLeastPosition: wire.FromPosition(store.Position{"in": {0: 1}}),
			}
		}))
		if err != nil || time.Duration(asked.Load()) != 1250*time.Millisecond {
			t.Errorf("%v, the copy was asked after %s", err, time.Duration(asked.Load()))
		}
	})
}

// Where everything is slow, hedges are bounded; and what a caller leaves ends.
func TestHedgesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 1)
		for _, n := range m.nodes {
			n.pause()
		}
		b := m.node("b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 2 * maxHedges {
			wg.Go(func() {
				key := append(m.keyIn(0), byte(i), byte(i>>8))
				if _, err := b.query().Get(ctx, get(key), grpc.WaitForReady(true)); err == nil {
					t.Error("somebody answered")
				}
			})
		}
		time.Sleep(time.Second)
		if n := b.srv.hedges.Load(); n != maxHedges {
			t.Errorf("%d hedges, want %d", n, maxHedges)
		}
		cancel()
		wg.Wait()
		synctest.Wait()
		if n := b.srv.hedges.Load(); n != 0 {
			t.Errorf("%d hedges are left", n)
		}
	})
}

// A panic in a hedge is the process's to survive.
func TestHedgeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 2, 1)
		m.node("a").stores.onRead = func(context.Context, store.Partition) error { time.Sleep(time.Second); return nil }
		m.node("b").stores.onRead = func(context.Context, store.Partition) error { panic(errors.New("of a test")) }
		resp, err := m.node("b").query().Get(t.Context(), get(m.keyIn(0)))
		if err != nil || string(resp.GetValue().GetData()) != "owner" {
			t.Errorf("%v, %v", resp, err)
		}
	})
}
