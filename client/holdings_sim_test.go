package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestHoldings: any instance tells; one that is gone is passed over, and one of another application is not believed. Ages
// count what has passed since the instances looked.
func TestHoldings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b", "c")
		for _, id := range []string{"a", "b", "c"} {
			m.member(id).age = 20 * time.Millisecond
		}
		c := m.client(nil)
		m.stop("a")
		for range 10 {
			list, err := c.Holdings(t.Context(), "")
			if err != nil || len(list) != 3 {
				t.Fatal(list, err)
			}
			n := 0
			for _, in := range list {
				for _, h := range in.Holdings {
					if n++; h.Role != router.HeldAsOwner || h.State != router.HoldingServing || h.Age < 20*time.Millisecond || in.Looked > time.Second || m.owner[h.Task.Partition] != in.ID {
						t.Errorf("%s, looked %s ago: %+v", in.ID, in.Looked, h)
					}
				}
			}
			if n != 4 {
				t.Errorf("%d tasks are held", n)
			}
		}
		if _, err := c.Holdings(t.Context(), "", Via("a:1")); err == nil {
			t.Error("who is gone told something")
		}
		other := m.client(func(cfg *Config) { cfg.Application = "another" })
		if _, err := other.Holdings(t.Context(), ""); !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("of another application: %v", err)
		}
	})
}
