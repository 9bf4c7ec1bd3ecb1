package router

import (
	"testing"

	"github.com/statemesh/statemesh/store"
)

// TestGlobalStore: every instance answers for a global store itself, a caller from outside may ask any of them, and nobody is
// missing for it.
func TestGlobalStore(t *testing.T) {
	t.Parallel()
	d := fleet(1, 2, "a", "b", "c")
	d.Stores = append(d.Stores, StoreInfo{Name: "rates", Kind: store.KindKeyValue, Subtopology: 2, Partitions: 1, Global: true})
	s := mustSnapshot(t, d)
	if missing := s.Missing(); len(missing) != 0 {
		t.Errorf("missing %v", missing)
	}
	if p, err := s.Partition("rates", []byte("any key")); err != nil || p != 0 {
		t.Errorf("partition %d, %v", p, err)
	}
	for _, self := range []string{"a", "b", "c"} {
		for _, origin := range []Origin{OriginEntry, OriginPeer} {
			if r := Decide(s, Query{Store: "rates", Self: self, Origin: origin}); r.Verdict != Local || r.Err != nil {
				t.Errorf("%s, origin %v: %+v", self, origin, r)
			}
		}
	}
	r := Decide(s, Query{Store: "rates", Prefer: OnlyActive})
	if r.Verdict != Remote || len(r.Candidates) != 3 {
		t.Errorf("from outside: %+v", r)
	}
	r = Decide(s, Query{Store: "rates", Self: "a", Tried: []store.Candidate{{Instance: "a"}}})
	if r.Verdict != Remote || len(r.Candidates) != 2 || r.Candidates[0].Instance == "a" {
		t.Errorf("after its own copy was not ready: %+v", r)
	}
	if r := Decide(s, Query{Store: "rates", Self: "a", Partition: 1}); r.Err == nil {
		t.Errorf("partition 1 of a global store: %+v", r)
	}
	d.Stores[len(d.Stores)-1].Partitions = 4
	if _, err := NewSnapshot(d); err == nil {
		t.Error("a global store of 4 partitions is a mistake")
	}
}
