package processor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/router"
)

// generation of the group, as the broker counts.
func (f *fleet) generation() int {
	f.t.Helper()
	info := f.cluster.GroupInfo(testApp)
	if info == nil {
		f.t.Fatal("no group")
	}
	return int(info.Epoch)
}

// TestSimLateNudge: an instance asks for two placements, and one more that it tells of them does not answer, so that telling the others of
// the first takes longer than the second. Each costs the group a generation, and what is told too late costs none.
func TestSimLateNudge(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.calm = soonCalm
		f.options = func(c *Config) { c.NumStreamThreads = 1 + rng.IntN(2) }
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		f.running(a, b, c)
		f.eventually("all run", time.Minute, func() error { return allServe(tasks, a, b, c) })
		time.Sleep(2 * f.calm)
		asks := []*instance{a, b, c}[rng.IntN(3)]
		before := f.generation()
		asks.mesh.takes.Store(int64(20 * time.Second)) // longer than heartbeats
		asks.rt.rejoin()
		time.Sleep(time.Second)
		if n := f.generation() - before; n != 1 {
			t.Errorf("%d generations for one wish", n)
		}
		asks.rt.rejoin()
		time.Sleep(5 * time.Second) // the others' heartbeats
		if n := f.generation() - before; n != 2 {
			t.Errorf("%d generations for two wishes", n)
		}
		time.Sleep(time.Minute)
		if n := f.generation() - before; n != 2 {
			t.Errorf("%d generations for two wishes, after all are told", n)
		}
		f.eventually("all run", time.Minute, func() error { return allServe(tasks, a, b, c) })
	})
}

// TestSimDrainGenerations: where copies have caught up a drain takes the two phases of a move, and no generation more. With several threads
// it may: one that has let go joins before the broker has told another what to let go of.
func TestSimDrainGenerations(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 6
		f := newFleet(t, true, tasks)
		f.calm = soonCalm
		f.withStandbys(1)
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		f.running(a, b, c)
		f.produce(truth{}, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		f.eventually("copies", 2*time.Minute, func() error { return follows(tasks, 1, a, b, c) })
		time.Sleep(2 * f.calm)
		before := f.generation()
		a.drain(10*time.Second, router.TasksServed)
		time.Sleep(f.calm / 2) // what the leader wishes for when things are calm is another matter
		if n := f.generation() - before; n != 2 {
			t.Errorf("%d generations, want 2", n)
		}
	})
}
