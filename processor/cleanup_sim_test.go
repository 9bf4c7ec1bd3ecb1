package processor

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/store"
)

// TestSimCleanup: tasks move away and come back just before the delay has passed, and find their copies; they move away
// for longer, and the copies go. No copy that is needed ever does (SE-09, RB-12).
func TestSimCleanup(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks, delay = 4, 2 * time.Minute
		f := newFleet(t, true, tasks)
		f.options = func(c *Config) { c.StateCleanupDelay = delay }
		tr := truth{}
		a := f.start("a")
		f.produce(tr, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		a.waitRunning()

		away := func() *instance { // half of the tasks go to another instance
			b := f.start("b")
			f.eventually("balanced", time.Minute, func() error { return allServe(tasks, a, b) })
			for len(a.rt.Tasks()) == tasks || len(b.rt.Tasks()) == 0 {
				time.Sleep(time.Second)
			}
			f.produce(tr, rng, 100, 50)
			f.waitCaughtUp(time.Minute)
			return b
		}
		stays := func(d time.Duration) { // no instance ever lacks a copy of what it runs
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				tasks := a.rt.Tasks()
				copies := a.copies()
				for _, info := range tasks {
					if info.Serving && !slices.Contains(copies, info.ID) {
						t.Fatalf("%s: task %s runs and its copy is gone", time.Now(), info.ID)
					}
				}
			}
		}

		b := away()
		stays(delay - 30*time.Second)
		if n := len(a.copies()); n != tasks {
			t.Errorf("%d copies before the delay has passed, want %d", n, tasks)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		a.waitRunning()
		stays(2 * delay)
		if n := len(a.copies()); n != tasks {
			t.Errorf("%d copies after the tasks have come back, want %d", n, tasks)
		}

		b = away()
		// The group has the former owner keep its copy until the new one has the task for sure, which is looked at once more half a
		// minute later; from then on the copy is needed by nobody.
		stays(followUpWait + 10*time.Second + delay + delay/5)
		kept := a.copies()
		if len(kept) != len(a.rt.Tasks()) || len(kept) == tasks {
			t.Errorf("copies of %v after the delay, while %d tasks run here", kept, len(a.rt.Tasks()))
		}
		if n := len(b.copies()); n != len(b.rt.Tasks()) {
			t.Errorf("the other instance has %d copies and runs %d tasks", n, len(b.rt.Tasks()))
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		f.produce(tr, rng, 50, 50)
		f.waitCaughtUp(time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(tasks, a) })
		f.check(tr, a)
	})
}

// TestSimCleanupNeedsTheGroup: an instance that is cut off from the brokers drops nothing, however long that lasts.
func TestSimCleanupNeedsTheGroup(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 2
		f := newFleet(t, true, tasks)
		f.options = func(c *Config) { c.StateCleanupDelay, c.TaskTimeout = time.Minute, time.Hour }
		tr := truth{}
		a := f.start("a")
		f.produce(tr, rng, 100, 50)
		f.waitCaughtUp(time.Minute)
		a.waitRunning()
		a.cut.cut()
		b := f.start("b")
		f.eventually("taken over", 5*time.Minute, func() error { return allServe(tasks, b) })
		time.Sleep(10 * time.Minute)
		if n := len(a.copies()); n != tasks {
			t.Errorf("%d copies without a group, want %d", n, tasks)
		}
		a.cut.mend()
		f.eventually("back", 5*time.Minute, func() error { return allServe(tasks, a, b) })
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Minute)
		f.check(tr, a, b)
	})
}

// copies lists the tasks that the instance has a copy of.
func (in *instance) copies() []store.TaskID {
	var ids []store.TaskID
	for _, h := range in.stores.Held() {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestCleanupReview(t *testing.T) {
	t.Parallel()
	one, two := store.TaskID{Partition: 1}, store.TaskID{Partition: 2}
	held := []store.TaskID{two, one}
	c := cleanup{delay: time.Minute}
	start := time.Unix(1000, 0)
	for i, step := range []struct {
		at     time.Duration
		held   []store.TaskID
		needed []store.TaskID
		due    []store.TaskID
	}{
		{0, held, held, nil},
		{time.Hour, held, []store.TaskID{one}, nil}, // the delay begins here, not before
		{time.Hour + time.Minute - 1, held, []store.TaskID{one}, nil},
		{time.Hour + time.Minute - 1, held, []store.TaskID{one, two}, nil}, // back at the last moment
		{time.Hour + time.Minute, held, []store.TaskID{one}, nil},
		{time.Hour + 2*time.Minute - 1, held, nil, nil},
		{time.Hour + 2*time.Minute, held, nil, []store.TaskID{two}},
		{time.Hour + 3*time.Minute, held, nil, []store.TaskID{one, two}},
		{time.Hour + 4*time.Minute, []store.TaskID{one}, nil, []store.TaskID{one}},
		{time.Hour + 5*time.Minute, held, nil, []store.TaskID{one}}, // the other is a new copy
	} {
		due := c.review(start.Add(step.at), step.held, func(id store.TaskID) bool { return slices.Contains(step.needed, id) })
		if !slices.Equal(due, step.due) {
			t.Errorf("step %d: %v are due, want %v", i, due, step.due)
		}
	}
}

func TestPromised(t *testing.T) {
	t.Parallel()
	id := func(p int32) store.TaskID { return store.TaskID{Partition: store.Partition(p)} }
	view := &group.View{Members: []group.ViewMember{
		{Member: group.Member{ProcessID: "us"}, Assignment: group.Assignment{Active: []store.TaskID{id(0)}, Standby: []store.TaskID{id(1)}}},
		{Member: group.Member{ProcessID: "us"}, Assignment: group.Assignment{
			Incoming: []store.TaskID{id(2)}, Releasing: []group.Release{{Task: id(3), To: "them"}},
		}},
		{Member: group.Member{ProcessID: "them"}, Assignment: group.Assignment{
			Active: []store.TaskID{id(5)}, Releasing: []group.Release{{Task: id(4), To: "us"}, {Task: id(6), To: "others"}},
		}},
	}}
	for process, want := range map[string][]int32{"us": {0, 1, 2, 3, 4}, "them": {3, 4, 5, 6}, "nobody": nil} {
		tasks, member := promised(view, process)
		if member != (want != nil) || len(tasks) != len(want) {
			t.Errorf("%s: member %t, %d tasks, want %d", process, member, len(tasks), len(want))
		}
		for _, p := range want {
			if !tasks[id(p)] {
				t.Errorf("%s: task %d may be dropped", process, p)
			}
		}
	}
}
