package processor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// running waits until instances are members of the group: what others serve without them says nothing of that.
func (f *fleet) running(instances ...*instance) {
	f.t.Helper()
	for _, in := range instances {
		in.waitRunning()
	}
}

// pauseGoal is what a planned move may cost writers: the goal of the whole, and here all but the time that real work takes.
const pauseGoal = 300 * time.Millisecond

// underRace makes a schedule smaller under the race detector: that of Go 1.26 fails in its own bookkeeping of a bubble's timers, as a
// crash of the process, when there were very many (go.dev/issue/78156).
func underRace[T any](small, otherwise T) T {
	if raceDetector {
		return small
	}
	return otherwise
}

// dripInterval is how often each partition gets a record while drains are looked at.
func dripInterval() time.Duration { return underRace(50*time.Millisecond, 20*time.Millisecond) }

// soonCalm is how long such a fleet waits before it asks for one more placement: what follows is the same after the half minute of
// production, which is spent at rest.
const soonCalm = 3 * time.Second

// crew are the instances of a fleet that run, for those who look on.
type crew struct {
	mu  sync.Mutex
	all []*instance
}

func (c *crew) list() []*instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

func (c *crew) add(in *instance) *instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, in)
	return in
}

func (c *crew) remove(in *instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(x *instance) bool { return x == in })
}

// drain gives everything away within a time, and checks that nothing is left.
func (in *instance) drain(within time.Duration, goal router.DrainGoal) {
	in.f.t.Helper()
	ctx, cancel := context.WithTimeout(in.f.t.Context(), within)
	defer cancel()
	began := time.Now()
	var seen []router.DrainStatus
	if err := in.rt.Drain(ctx, goal, func(s router.DrainStatus) { seen = append(seen, s) }); err != nil {
		in.f.t.Fatalf("drain of %s: %v; seen %+v", in.rt.cfg.ProcessID, err, seen)
	}
	in.f.t.Logf("%s drained in %s, %d changes", in.rt.cfg.ProcessID, time.Since(began), len(seen))
	if left := in.rt.Tasks(); len(left) > 0 {
		in.f.t.Errorf("%s drained and has %+v", in.rt.cfg.ProcessID, left)
	}
}

// TestSimDrainRolls restarts a whole fleet, one instance after another, as an upgrade does: each gives its tasks away, leaves and
// comes back. No read within its bound finds nobody, none goes backwards, and writers wait for less than the goal, with standbys
// and without (RB-07, CA-09).
func TestSimDrainRolls(t *testing.T) {
	for _, standbys := range []int{0, 1} {
		t.Run(fmt.Sprintf("standbys=%d", standbys), func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				tasks := underRace(3, 6)
				n := 2 + rng.IntN(underRace(1, 2))
				f := newFleet(t, true, int32(tasks))
				f.calm = soonCalm
				waited := f.measurePauses(tasks)
				f.withStandbys(standbys)
				c := &crew{}
				for i := range n {
					c.add(f.start(fmt.Sprintf("i%d", i)))
				}
				f.running(c.list()...)
				f.eventually("all run", time.Minute, func() error { return follows(tasks, standbys, c.list()...) })
				tr := truth{}
				stop := f.drip(int32(tasks), dripInterval(), tr)
				defer stop()
				time.Sleep(2 * time.Second)
				waited.take()
				w := newWitness(f)
				stopReads := w.watch(rng, tasks, store.ReadOptions{MaxAge: 5 * time.Second}, c.list)
				defer stopReads()
				for i := range n {
					owned := f.outage(tasks, c.list)
					in := c.list()[0]
					in.drain(10*time.Second, router.TasksServed)
					if worst := owned(); worst > pauseGoal {
						t.Errorf("nobody answered as the owner for %s", worst)
					}
					c.remove(in)
					if err := in.stop(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
					f.running(c.add(f.start(fmt.Sprintf("i%d", i))))
					f.eventually("all run", time.Minute, func() error { return follows(tasks, standbys, c.list()...) })
					time.Sleep(3 * time.Second) // warm-ups bring its tasks back
					worst := waited.take()
					t.Logf("restart of i%d: writers waited %s", i, worst)
					if worst > pauseGoal {
						t.Errorf("that is more than %s", pauseGoal)
					}
				}
				stopReads()
				stop()
				f.waitCaughtUp(time.Minute)
				f.eventually("all served", time.Minute, func() error { return allServe(tasks, c.list()...) })
				f.check(tr, c.list()...)
				t.Logf("%d instances: answers %v", n, w.answers)
			})
		})
	}
}

// TestSimScaleOutPauses: instances that join get their tasks by moves that writers hardly notice (KIP-441).
func TestSimScaleOutPauses(t *testing.T) {
	for _, standbys := range []int{0, 1} {
		t.Run(fmt.Sprintf("standbys=%d", standbys), func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				tasks := underRace(4, 8)
				f := newFleet(t, true, int32(tasks))
				f.calm = soonCalm
				waited := f.measurePauses(tasks)
				f.withStandbys(standbys)
				f.options = func(next func(*Config)) func(*Config) {
					return func(c *Config) { next(c); c.NumStreamThreads, c.AcceptableRecoveryLag = 2, 100 } // the log is soon longer
				}(f.options)
				c := &crew{}
				c.add(f.start("a"))
				c.add(f.start("b"))
				f.eventually("all run", time.Minute, func() error { return follows(tasks, standbys, c.list()...) })
				tr := truth{}
				stop := f.drip(int32(tasks), dripInterval(), tr)
				defer stop()
				time.Sleep(5 * time.Second)
				waited.take()
				w := newWitness(f)
				stopReads := w.watch(rng, tasks, store.ReadOptions{MaxAge: 5 * time.Second}, c.list)
				defer stopReads()
				for _, name := range []string{"c", "d"}[:underRace(1, 2)] {
					in := c.add(f.start(name))
					f.eventually("its share", time.Minute, func() error { return allServe(tasks/len(c.list()), in) })
					time.Sleep(3 * time.Second)
					worst := waited.take()
					t.Logf("%s joined: writers waited %s", name, worst)
					if worst > pauseGoal {
						t.Errorf("that is more than %s", pauseGoal)
					}
				}
				stopReads()
				stop()
				f.waitCaughtUp(time.Minute)
				f.check(tr, c.list()...)
			})
		})
	}
}

// TestSimDrainKills kills in the middle of a drain: who drains, or another. What is there at the end is the truth, and everything
// has an owner (CR-08).
func TestSimDrainKills(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		tasks := underRace(4, 6)
		f := newFleet(t, true, int32(tasks))
		f.withStandbys(rng.IntN(2))
		f.options = func(next func(*Config)) func(*Config) {
			return func(c *Config) { next(c); c.SessionTimeout = 6 * time.Second }
		}(f.options)
		tr := truth{}
		c := &crew{}
		for _, name := range []string{"a", "b", "c"} {
			c.add(f.start(name))
		}
		f.running(c.list()...)
		f.eventually("all run", time.Minute, func() error { return allServe(tasks, c.list()...) })
		stop := f.drip(int32(tasks), dripInterval(), tr)
		defer stop()
		time.Sleep(2 * time.Second)
		for round := range 2 {
			list := c.list()
			drained, victim := list[0], list[rng.IntN(2)]
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- drained.rt.Drain(ctx, router.TasksServed, nil) }()
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			victim.kill(fmt.Sprintf("s%d", round))
			c.remove(victim)
			c.add(f.start(fmt.Sprintf("s%d", round)))
			f.reap(c.list()...)
			if victim != drained {
				f.eventually("drained all the same", 2*time.Minute, func() error {
					if n := len(drained.rt.Tasks()); n > 0 {
						return fmt.Errorf("%d tasks left", n)
					}
					return nil
				})
				drained.rt.Undrain()
			}
			cancel()
			t.Logf("round %d: the drain ended with %v", round, <-done)
			f.eventually("all run", 2*time.Minute, func() error { return allServe(tasks, c.list()...) })
		}
		stop()
		f.waitCaughtUp(2 * time.Minute)
		f.check(tr, c.list()...)
	})
}

// TestSimDrainNobodyTakes: alone there is nothing to wait for, and of a fleet that drains as a whole nobody waits for long.
func TestSimDrainNobodyTakes(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		a := f.start("a")
		f.placed(a)
		began := time.Now()
		if err := a.rt.Drain(t.Context(), router.TasksServed, nil); !errors.Is(err, router.ErrNobodyTakes) || a.rt.Draining() {
			t.Errorf("alone: %v, draining %t", err, a.rt.Draining())
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("alone it waited %s", took)
		}
		b := f.start("b")
		f.running(a, b)
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, a, b) })
		errs := make(chan error, 2)
		began = time.Now()
		for _, in := range []*instance{a, b} {
			go func() { errs <- in.rt.Drain(t.Context(), router.TasksServed, nil) }()
		}
		first, second := <-errs, <-errs
		if !errors.Is(first, router.ErrNobodyTakes) && !errors.Is(second, router.ErrNobodyTakes) {
			t.Errorf("both drained: %v, %v", first, second)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
		f.eventually("all run", time.Minute, func() error { return allServe(tasks, a, b) })
	})
}

// TestSimDrainGoals: copies that were here are replaced where there is somebody to have them, and stay where there is nobody. An
// instance that does not drain any more has its share again; a drain that is undone ends for those who watch it.
func TestSimDrainGoals(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 6
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		tr := truth{}
		f.produce(tr, rng, 500, 50)
		f.running(a, b, c)
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, a, b, c) })
		a.drain(10*time.Second, router.CopiesReplaced)
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, b, c) })
		f.eventually("no copies are left", time.Second, func() error { // their keepers end
			if left := a.rt.Standbys(); len(left) > 0 {
				return fmt.Errorf("%+v", left)
			}
			return nil
		})
		a.drain(time.Second, router.CopiesReplaced) // once more is no more
		b.drain(10*time.Second, router.CopiesReplaced)
		if n := len(b.rt.Standbys()) + len(a.rt.Standbys()); n != tasks {
			t.Errorf("%d copies, want %d: nobody else could have them", n, tasks)
		}
		a.rt.Undrain()
		f.eventually("its share", time.Minute, func() error { return allServe(tasks/2, a) })
		b.rt.Undrain()
		f.eventually("as before", time.Minute, func() error {
			return errors.Join(follows(tasks, 1, a, b, c), allServe(2, a), allServe(2, b), allServe(2, c))
		})

		a.mesh.deaf.Store(true) // it does not hear that others serve what it had
		done := make(chan error, 1)
		go func() { done <- a.rt.Drain(t.Context(), router.TasksServed, nil) }()
		f.eventually("it is away", time.Minute, func() error { return allServe(tasks, b, c) })
		a.rt.Undrain()
		if err := <-done; !errors.Is(err, router.ErrDrainUndone) {
			t.Errorf("undone: %v", err)
		}
		f.eventually("its share", time.Minute, func() error { return allServe(2, a) })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.rt.Drain(ctx, router.TasksServed, nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 tasks") {
			t.Errorf("not done in time: %v", err)
		}
		a.rt.Undrain()
		f.waitCaughtUp(time.Minute)
		f.check(tr, a, b, c)
	})
}

// TestSimFarewell: others are told of a leave when the broker has confirmed it, and of no other: a member that is left in the group
// would hold up whoever joins, and who is told of a leave does not look whether the instance is dead.
func TestSimFarewell(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 4)
		f.options = func(c *Config) { c.TransactionTimeout, c.SessionTimeout = 2*time.Second, 6*time.Second }
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		f.running(a, b, c)
		f.eventually("all run", time.Minute, func() error { return allServe(4, a, b, c) })
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if n := a.mesh.farewells.Load(); n != 1 || !a.rt.HasLeft() {
			t.Errorf("%d farewells, left %t", n, a.rt.HasLeft())
		}
		b.cut.cut()
		_ = b.stop() // it says that the brokers did not answer, if anything was uncommitted
		if n := b.mesh.farewells.Load(); n != 0 || b.rt.HasLeft() {
			t.Errorf("cut off: %d farewells, left %t", n, b.rt.HasLeft())
		}
		f.reap(c) // b may have been cut off in a join
		f.eventually("the last one has it all", time.Minute, func() error { return allServe(4, c) })
	})
}

// placed waits until an instance runs and knows of it: what a drain would otherwise call not ready.
func (f *fleet) placed(in *instance) {
	f.t.Helper()
	in.waitRunning()
	f.eventually("the map is known", time.Minute, func() error {
		if !in.rt.placed() {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestSimDrainUnderOldLeader: who is led by an instance that knows no drain is told so, and does not wait.
func TestSimDrainUnderOldLeader(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 4)
		a, b := f.start("a"), f.start("b")
		f.eventually("all run", time.Minute, func() error { return errors.Join(allServe(2, a), allServe(2, b)) })
		f.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			join := req.(*kmsg.JoinGroupRequest)
			for i := range join.Protocols {
				var meta kmsg.ConsumerMemberMetadata
				if err := meta.ReadFrom(join.Protocols[i].Metadata); err != nil {
					t.Error(err)
				}
				said, err := group.DecodeMember(meta.UserData)
				if err != nil {
					t.Error(err)
				}
				said.Draining = false
				meta.UserData = said.AppendTo(nil)
				join.Protocols[i].Metadata = meta.AppendTo(nil)
			}
			return nil, nil, false
		})
		began := time.Now()
		if err := a.rt.Drain(t.Context(), router.TasksServed, nil); !errors.Is(err, router.ErrDrainUnsupported) {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
