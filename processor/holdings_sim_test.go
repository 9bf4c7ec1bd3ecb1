package processor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestSimHoldings: the instances together hold each task once as its owner and once as a standby that follows.
func TestSimHoldings(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		tr := truth{}
		f.produce(tr, rng, 200, 50)
		all := []*instance{f.start("a"), f.start("b"), f.start("c")}
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, all...) })
		f.waitCaughtUp(time.Minute)
		f.eventually("each task is held twice", time.Minute, func() error {
			owners, standbys := make(map[store.TaskID]int), make(map[store.TaskID]int)
			for _, in := range all {
				for _, h := range in.rt.Holdings() {
					switch {
					case h.Role == router.HeldAsOwner && h.State == router.HoldingServing && h.Lag == 0 && h.Age >= 0: // it proves itself anew when it is read
						owners[h.Task]++
					case h.Role == router.HeldAsStandby && h.State == router.HoldingFollowing && h.Lag == 0 && h.Age >= 0 && h.Age < time.Minute:
						standbys[h.Task]++
					case h.Role == router.HeldAsRetained: // of a move a moment ago
					default:
						return fmt.Errorf("%s holds %+v", in.dir, h)
					}
				}
			}
			for p := range tasks {
				if id := (store.TaskID{Partition: store.Partition(p)}); owners[id] != 1 || standbys[id] != 1 {
					return fmt.Errorf("task %s: %d owners and %d standbys", id, owners[id], standbys[id])
				}
			}
			return nil
		})
	})
}

// TestHoldings: how far what nobody answers from is.
func TestHoldings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	r := &Runtime{now: func() time.Time { return now }, tasks: newRegistry(time.Now)}
	r.standbys = newStandbys(r)
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stores.Close() })
	state, err := stores.OpenTask(t.Context(), store.TaskID{Partition: 9}, []store.Spec{{Name: "st", Kind: store.KindKeyValue}})
	if err != nil {
		t.Fatal(err)
	}
	proven := &replica{since: now.Add(-3 * time.Second)}
	for p, e := range []*entryTask{
		0: {thread: 0},
		1: {thread: 0, state: state, read: &readSoFar{}},
		2: {thread: 1, state: state, replica: proven},
		3: {thread: 1, state: state, hidden: true, replica: proven},
		4: {thread: free, state: state, replica: proven},
		5: {thread: free, state: state},
		6: {thread: barred},
		7: {thread: followed},
		8: {thread: followed, state: state, replica: &replica{follower: &restore.Standby{}}},
		// Taking the copy of another instance.
		10: {thread: followed},
		11: {thread: 1, state: state},
	} {
		if e == nil {
			continue
		}
		e.id, e.read = store.TaskID{Partition: store.Partition(p)}, &readSoFar{}
		r.tasks.entries[e.id] = e
	}
	r.tasks.progress(store.TaskID{Partition: 1}, 3, 10, time.Minute)
	for p := store.Partition(10); p <= 11; p++ {
		r.tasks.seeding(store.TaskID{Partition: p}, "b")
		r.tasks.copied(store.TaskID{Partition: p}, 20, 50, 4000, time.Second)
	}
	r.standbys.told.Warmup, r.standbys.told.Standby = []store.TaskID{{Partition: 7}}, []store.TaskID{{Partition: 8}, {Partition: 10}}
	want := []router.Holding{
		{Role: router.HeldAsOwner, State: router.HoldingStarting, Lag: -1, Age: -1},
		{Role: router.HeldAsOwner, State: router.HoldingRestoring, Restored: 3, Total: 10, Left: time.Minute, Lag: 7, Age: -1},
		{Role: router.HeldAsOwner, State: router.HoldingStarting, Lag: -1, Age: 3 * time.Second},
		{Role: router.HeldAsRetained, State: router.HoldingResting, Lag: -1, Age: 3 * time.Second},
		{Role: router.HeldAsRetained, State: router.HoldingResting, Lag: -1, Age: 3 * time.Second},
		{Role: router.HeldAsWarmup, State: router.HoldingStarting, Lag: -1, Age: -1},
		{Role: router.HeldAsStandby, State: router.HoldingStarting, Lag: -1, Age: -1},
		{Role: router.HeldAsStandby, State: router.HoldingCopying, Restored: 20, Total: 50, Left: time.Second, From: "b", Bytes: 4000, Lag: -1, Age: -1},
		{Role: router.HeldAsOwner, State: router.HoldingCopying, Restored: 20, Total: 50, Left: time.Second, From: "b", Bytes: 4000, Lag: -1, Age: -1},
	}
	for i, p := range []store.Partition{0, 1, 2, 3, 4, 7, 8, 10, 11} {
		want[i].Task.Partition = p
	}
	got := r.Holdings()
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("\n got %+v\nwant %+v", got[i], want[i])
		}
	}
}
