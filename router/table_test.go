package router

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/statemesh/statemesh/store"
)

// MR-04: the table follows the highest epoch, whatever the order; who left is gone.
func TestTableFollowsTheHighestEpoch(t *testing.T) {
	table := NewTable()
	if table.Load() != nil {
		t.Fatal("an empty table knows something")
	}
	e1, e2, e3 := mustSnapshot(t, fleet(1, 4, "a", "b")), mustSnapshot(t, fleet(2, 4, "a", "b", "c")), mustSnapshot(t, fleet(3, 4, "b", "c"))
	for _, s := range []*Snapshot{e1, e3} {
		if err := table.Publish(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []*Snapshot{e2, e3, e1} { // late, equal, older still
		if err := table.Publish(s); !errors.Is(err, ErrOldEpoch) {
			t.Fatal(err)
		}
	}
	if got := table.Load(); got != e3 {
		t.Fatal("epoch", got.Epoch())
	}
	if _, ok := table.Load().Instance("a"); ok {
		t.Fatal("a has left")
	}
}

// Metadata never regresses: what says less does not replace what says more.
func TestTableRefusesLess(t *testing.T) {
	hole := func(epoch Epoch) Data {
		d := fleet(epoch, 4, "a", "b")
		d.Instances[0].Active = slices.DeleteFunc(d.Instances[0].Active, func(id store.TaskID) bool { return id == task0(2) })
		return d
	}
	none := fleet(9, 4, "a", "b")
	none.Instances = nil
	noStores := fleet(9, 4, "a", "b")
	noStores.Stores = nil
	owners := fleet(9, 4, "a", "b")
	for i := range owners.Instances {
		owners.Instances[i].Active = nil
	}
	for name, d := range map[string]Data{"a hole": hole(9), "no instances": none, "no stores": noStores, "no owners": owners} {
		t.Run(name, func(t *testing.T) {
			table, good := NewTable(), mustSnapshot(t, fleet(1, 4, "a", "b"))
			if err := table.Publish(good); err != nil {
				t.Fatal(err)
			}
			if err := table.Publish(mustSnapshot(t, d)); !errors.Is(err, ErrPartial) {
				t.Fatal(err)
			}
			if table.Load() != good {
				t.Fatal("replaced")
			}
		})
	}
	t.Run("nil", func(t *testing.T) {
		if err := NewTable().Publish(nil); !errors.Is(err, ErrPartial) {
			t.Fatal(err)
		}
	})
	t.Run("something is more than nothing", func(t *testing.T) {
		table := NewTable()
		for e := Epoch(1); e <= 2; e++ {
			if err := table.Publish(mustSnapshot(t, hole(e))); err != nil {
				t.Fatal(err)
			}
		}
		if err := table.Publish(mustSnapshot(t, fleet(3, 4, "a", "b"))); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a task on its way is no hole", func(t *testing.T) {
		table := NewTable()
		if err := table.Publish(mustSnapshot(t, fleet(1, 4, "a", "b"))); err != nil {
			t.Fatal(err)
		}
		d := hole(2)
		d.Moving = map[store.TaskID]string{task0(2): "b"}
		if err := table.Publish(mustSnapshot(t, d)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTableWatch(t *testing.T) {
	table := NewTable()
	s, changed := table.Watch()
	if s != nil {
		t.Fatal("nothing yet")
	}
	if err := table.Publish(mustSnapshot(t, fleet(1, 1, "a"))); err != nil {
		t.Fatal(err)
	}
	<-changed
	s, changed = table.Watch()
	if s.Epoch() != 1 {
		t.Fatal(s.Epoch())
	}
	_ = table.Publish(s) // refused: nobody is woken
	select {
	case <-changed:
		t.Fatal("woken for nothing")
	case <-table.Changed():
		t.Fatal("woken for nothing")
	default:
	}
}

// MR-12: readers see whole versions that only grow, while many publish; a watcher ends at the newest.
func TestTableConcurrent(t *testing.T) {
	const versions, readers = 2000, 8
	snaps := make([]*Snapshot, versions)
	for i := range snaps {
		ids := []string{"a", "b"}
		if i%2 == 1 {
			ids = []string{"c", "d"}
		}
		snaps[i] = mustSnapshot(t, fleet(Epoch(i+1), 2, ids...))
	}
	table := NewTable()
	var done atomic.Bool
	var wg, pubs sync.WaitGroup
	for range readers {
		wg.Go(func() {
			var last Epoch
			for !done.Load() {
				s := table.Load()
				if s == nil {
					continue
				}
				if s.Epoch() < last {
					t.Errorf("epoch %d after %d", s.Epoch(), last)
					return
				}
				last = s.Epoch()
				a, _ := s.Active("counts", 0)
				b, _ := s.Active("counts", 1)
				if want := map[bool]string{true: "ab", false: "cd"}[last%2 == 1]; a.Instance+b.Instance != want {
					t.Errorf("epoch %d: %s%s", last, a.Instance, b.Instance)
					return
				}
			}
		})
	}
	wg.Go(func() {
		for {
			s, changed := table.Watch()
			if s != nil && s.Epoch() == versions {
				return
			}
			<-changed
		}
	})
	for range 4 {
		order := rand.Perm(versions)
		pubs.Go(func() {
			for _, i := range order {
				if err := table.Publish(snaps[i]); err != nil && !errors.Is(err, ErrOldEpoch) {
					t.Error(err)
				}
			}
		})
	}
	pubs.Wait()
	done.Store(true)
	wg.Wait()
	if got := table.Load().Epoch(); got != versions {
		t.Fatal(got)
	}
}
