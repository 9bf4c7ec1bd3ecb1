package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// holding gives each node one task that it holds: the partition that is its number.
func holding(id string, _ *Config, d *Deps) {
	p := store.Partition(id[0] - 'a')
	d.Holdings = func() []router.Holding {
		return []router.Holding{
			{Task: store.TaskID{Partition: p}, Role: router.HeldAsOwner, State: router.HoldingServing, Age: time.Millisecond},
			{Task: store.TaskID{Subtopology: 7, Partition: p}, Role: router.HeldAsStandby, State: router.HoldingRestoring, Restored: 1, Total: 4, Lag: 3, Age: -1},
		}
	}
}

// TestHoldingsOfAll: whoever is asked asks all the others, and says of whom nothing is known, and why.
func TestHoldingsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, 4, func(p int) int { return p }, holding, func(id string, _ *Config, d *Deps) {
			if id == "d" {
				d.Holdings = nil
			}
		})
		d := m.data
		d.Epoch = 2
		d.Instances = append(d.Instances, router.Instance{ID: "e", Incarnation: "1", Endpoint: endpointOf("e")}, router.Instance{ID: "f", Incarnation: "1"},
			router.Instance{ID: "g", Incarnation: "1", Endpoint: endpointOf("b")})
		a := m.node("a")
		m.publish(a, d)
		resp, err := a.meta().ListInstances(t.Context(), &statemeshv1.ListInstancesRequest{WithHoldings: true})
		if err != nil || len(resp.GetInstances()) != 7 || resp.GetEpoch() != 2 {
			t.Fatal(resp, err)
		}
		problems := map[string]string{
			"d": "does not say", "e": "connection refused", "f": "no endpoint", "g": "b answers there",
		}
		for i, in := range resp.GetInstances() {
			h := wire.ToHoldings(in.GetHoldings())
			if want, ok := problems[in.GetId()]; ok {
				if !strings.Contains(h.Problem, want) || len(h.Of) > 0 {
					t.Errorf("%s: %+v, want %q", in.GetId(), h, want)
				}
				continue
			}
			if h.Problem != "" || len(h.Of) != 2 || h.Of[0].Task.Partition != store.Partition(i) || h.Of[1].Lag != 3 || h.Of[1].Age != -1 || h.LookedBefore < 0 {
				t.Errorf("%s: %+v", in.GetId(), h)
			}
		}
	})
}

// Of a store: who holds some of it in its own words, or by the map, and of that alone; who does not answer may hold some.
func TestHoldingsOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 3, 1, func(int) int { return 0 }, holding, func(id string, _ *Config, d *Deps) {
			if id == "c" {
				d.Holdings = func() []router.Holding { return []router.Holding{{Task: store.TaskID{Subtopology: 7}}} }
			}
		})
		resp, err := m.node("c").meta().ListInstances(t.Context(), &statemeshv1.ListInstancesRequest{Store: new(string(testStore)), WithHoldings: true})
		if err != nil || len(resp.GetInstances()) != 2 {
			t.Fatal(resp, err)
		}
		for _, in := range resp.GetInstances() {
			if h := in.GetHoldings().GetHoldings(); len(h) != 1 || h[0].GetTask().GetSubtopology() != 0 {
				t.Errorf("%s: %v", in.GetId(), h)
			}
		}
		plain, err := m.node("c").meta().ListInstances(t.Context(), &statemeshv1.ListInstancesRequest{})
		if err != nil || len(plain.GetInstances()) != 3 || plain.GetInstances()[0].GetHoldings() != nil {
			t.Errorf("nobody asked for holdings: %v, %v", plain, err)
		}
	})
}

// Invariant 8: what a peer forwards is answered with this instance's own, and nobody is asked.
func TestHoldingsOneHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 3, 3, func(p int) int { return p }, holding)
		ctx := wire.Forwarded{By: "a", Application: "app"}.Outgoing(t.Context())
		resp, err := m.node("b").meta().ListInstances(ctx, &statemeshv1.ListInstancesRequest{WithHoldings: true})
		if err != nil || len(resp.GetInstances()) != 1 || resp.GetInstances()[0].GetId() != "b" {
			t.Errorf("%v, %v", resp, err)
		}
	})
}
