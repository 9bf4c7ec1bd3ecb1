package client

import (
	"testing"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestGlobalStoreIsSpread: a client knows from the map on the wire that every instance has a global store, and asks them all in
// turn, none twice when it could not answer.
func TestGlobalStoreIsSpread(t *testing.T) {
	t.Parallel()
	made, err := router.NewSnapshot(router.Data{
		Application: "app", Epoch: 1,
		Instances: []router.Instance{{ID: "a", Endpoint: "a:1"}, {ID: "b", Endpoint: "b:1"}, {ID: "c", Endpoint: "c:1"}},
		Stores:    []router.StoreInfo{{Name: "rates", Kind: store.KindKeyValue, Partitions: 1, Global: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := wire.ToData(wire.FromSnapshot(made))
	if err != nil {
		t.Fatal(err)
	}
	s, err := router.NewSnapshot(data)
	if err != nil {
		t.Fatal(err)
	}
	c := newMesh(t, 1, "a").client(nil)
	for _, opts := range [][]Option{nil, {OnlyActive()}} {
		a := c.begin("get", "rates", gather(opts))
		asked := make(map[string]int)
		for range 300 {
			r, _, err := a.target(s, 0)
			if err != nil || r.Role != store.RoleActive {
				t.Fatalf("%+v, %v", r, err)
			}
			asked[r.Instance]++
		}
		if len(asked) != 3 {
			t.Errorf("asked %v", asked)
		}
		a.tried = []store.Candidate{{Instance: "a", Endpoint: "a:1"}, {Instance: "c", Endpoint: "c:1"}}
		if r, _, err := a.target(s, 0); err != nil || r.Instance != "b" {
			t.Errorf("after a and c: %+v, %v", r, err)
		}
	}
}
