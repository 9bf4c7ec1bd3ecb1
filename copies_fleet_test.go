package statemesh_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Two instances with a copy of each other's tasks: any of them tells who has what, and a read with a bound is answered by the copy
// of whoever is asked, with the same value.
func TestCopiesOfAFleet(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 2)
	nodes := make([]*node, 2)
	for i := range nodes {
		cfg := b.config(t)
		cfg.Processor.NumStandbyReplicas = 1
		nodes[i] = startNode(t, cfg)
	}
	keys := []string{"ATL", "JFK", "LGA", "ORD"}
	b.produce(t, "in", keys...)
	for _, n := range nodes {
		for _, k := range keys {
			eventually(t, func() error { return wantCount(t, n, "count", k, 1) })
		}
	}
	for _, n := range nodes {
		cl, err := client.New(client.Config{Seeds: []string{n.Endpoint()}, Application: "app"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cl.Close() })
		eventually(t, func() error { return heldTwice(t, cl) })
		for _, k := range keys {
			eventually(t, func() error {
				r, err := n.Get(t.Context(), "count", []byte(k), client.MaxStaleness(time.Minute))
				if err != nil || r.Answer.Instance != n.ID() {
					return fmt.Errorf("%s: answered by %s in %s: %w", k, r.Answer.Facts.Role, r.Answer.Instance, err)
				}
				return wantCount(t, n, "count", k, 1)
			})
		}
	}
}

// heldTwice checks that each task has an owner that serves and a standby that follows, in the words of the instances.
func heldTwice(t *testing.T, cl *client.Client) error {
	t.Helper()
	list, err := cl.Holdings(t.Context(), "count")
	if err != nil {
		return err
	}
	owners, standbys := make(map[store.TaskID]int), make(map[store.TaskID]int)
	for _, in := range list {
		if in.Problem != "" {
			return fmt.Errorf("%s: %s", in.ID, in.Problem)
		}
		for _, h := range in.Holdings {
			switch {
			case h.Role == router.HeldAsOwner && h.State == router.HoldingServing:
				owners[h.Task]++
			case h.Role == router.HeldAsStandby && h.State == router.HoldingFollowing && h.Age >= 0 && h.Lag >= 0:
				standbys[h.Task]++
			}
		}
	}
	for id, n := range owners {
		if n != 1 || standbys[id] != 1 {
			return fmt.Errorf("task %s has %d owners and %d standbys", id, n, standbys[id])
		}
	}
	if len(owners) != 2 {
		return fmt.Errorf("%d tasks have an owner, want 2", len(owners))
	}
	return nil
}
