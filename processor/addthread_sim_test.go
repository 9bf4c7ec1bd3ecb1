package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// addThread adds a thread, which must be in the group when that is done.
func (in *instance) addThread() string {
	in.f.t.Helper()
	ctx, cancel := context.WithTimeout(in.f.t.Context(), time.Minute)
	defer cancel()
	name, err := in.rt.AddThread(ctx)
	if err != nil {
		in.f.t.Fatal(err)
	}
	return name
}

func (in *instance) removeThread() string {
	in.f.t.Helper()
	ctx, cancel := context.WithTimeout(in.f.t.Context(), time.Minute)
	defer cancel()
	name, err := in.rt.RemoveThread(ctx)
	if err != nil {
		in.f.t.Fatal(err)
	}
	return name
}

// spread reports why the tasks are not served by all threads.
func (in *instance) spread(tasks, threads int) error {
	if err := allServe(tasks, in); err != nil {
		return err
	}
	list := in.rt.Threads()
	if len(list) != threads {
		return fmt.Errorf("%d threads, want %d", len(list), threads)
	}
	for _, t := range list {
		if t.State != router.ThreadRunning || len(t.Tasks) < tasks/threads {
			return fmt.Errorf("%+v", list)
		}
	}
	return nil
}

// open are the open states of an instance's tasks.
func (in *instance) open(tasks int) []*layered.Task {
	states := make([]*layered.Task, tasks)
	for p := range tasks {
		if e := in.rt.tasks.lookup(store.TaskID{Partition: store.Partition(p)}); e != nil {
			states[p] = e.state
		}
	}
	return states
}

// TestSimAddAndRemoveThreads: threads come and go while records flow. Tasks are spread over those that there are, their stores stay
// open, no read within its bound finds nobody, and nothing is lost or counted twice. Who is removed is out of the group at once.
func TestSimAddAndRemoveThreads(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		waited := f.measurePauses(tasks)
		a := f.start("a")
		f.running(a)
		tr := truth{}
		stop := f.drip(tasks, dripInterval(), tr)
		defer stop()
		time.Sleep(time.Second)
		w := newWitness(f)
		stopReads := w.watch(rng, tasks, store.ReadOptions{MaxAge: 5 * time.Second}, func() []*instance { return []*instance{a} })
		defer stopReads()
		opened := a.open(tasks)
		waited.take()
		names := map[string]bool{a.rt.Threads()[0].Name: true}
		threads := 1
		for range 6 {
			owned := f.outage(tasks, func() []*instance { return []*instance{a} })
			if threads == 1 || threads < 3 && rng.IntN(2) == 0 {
				name := a.addThread()
				if names[name] {
					t.Fatalf("%s was there before", name)
				}
				names[name] = true
				threads++
			} else {
				a.removeThread()
				threads--
				if n := len(f.cluster.GroupInfo(testApp).Members); n != threads {
					t.Fatalf("%d members are in the group, want %d", n, threads)
				}
			}
			f.eventually("tasks on all threads", time.Minute, func() error { return a.spread(tasks, threads) })
			time.Sleep(time.Duration(500+rng.IntN(1000)) * time.Millisecond)
			if worst := owned(); worst > pauseGoal {
				t.Errorf("nobody answered as the owner for %s", worst)
			}
			if worst := waited.take(); worst > pauseGoal {
				t.Errorf("writers waited for %s", worst)
			}
		}
		if !slices.Equal(opened, a.open(tasks)) {
			t.Error("a store was opened anew")
		}
		stopReads()
		stop()
		f.waitCaughtUp(time.Minute)
		f.check(tr, a)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if n := len(f.cluster.GroupInfo(testApp).Members); n > 0 || !a.rt.HasLeft() {
			t.Errorf("%d members are left", n)
		}
	})
}

// TestSimThreadsRefused: the last thread is not removed, none is added beyond the limit, or before and after a life.
func TestSimThreadsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		a := f.start("a", func(c *Config) { c.MaxStreamThreads = 2 })
		if _, err := a.rt.AddThread(t.Context()); err != nil && !errors.Is(err, store.ErrNotReady) {
			t.Errorf("too early: %v", err)
		}
		a.waitRunning()
		if len(a.rt.Threads()) == 1 {
			a.addThread()
		}
		_, err := a.rt.AddThread(t.Context())
		if e, ok := errors.AsType[*router.ThreadLimitError](err); !ok || e.Threads != 2 || e.Limit != 2 {
			t.Errorf("beyond the limit: %v", err)
		}
		a.removeThread()
		if _, err := a.rt.RemoveThread(t.Context()); !errors.Is(err, router.ErrLastThread) {
			t.Errorf("the last one: %v", err)
		}
		a.addThread() // there is room again
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.rt.AddThread(t.Context()); !errors.Is(err, store.ErrShuttingDown) {
			t.Errorf("too late: %v", err)
		}
		if _, err := a.rt.RemoveThread(t.Context()); !errors.Is(err, store.ErrShuttingDown) {
			t.Errorf("too late: %v", err)
		}
	})
}

// TestSimThreadLingers: a thread that cannot tell the group that it leaves says so, its tasks come to the others with the end of its
// session, and the instance does not claim to have left.
func TestSimThreadLingers(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.options = func(c *Config) {
			c.NumStreamThreads, c.SessionTimeout, c.TransactionTimeout = 2, 10*time.Second, 5*time.Second
		}
		a := f.start("a")
		tr := truth{}
		f.produce(tr, rng, 100, 20)
		f.eventually("tasks on both threads", time.Minute, func() error { return a.spread(tasks, 2) })
		f.cluster.ControlKey(int16(kmsg.LeaveGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
			resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
			return resp, nil, true
		})
		name, err := a.rt.RemoveThread(t.Context())
		if !errors.Is(err, router.ErrThreadLingers) || name == "" {
			t.Fatalf("removed %q: %v", name, err)
		}
		f.produce(tr, rng, 100, 20)
		f.eventually("all on the other", time.Minute, func() error { return a.spread(tasks, 1) })
		f.waitCaughtUp(time.Minute)
		f.check(tr, a)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if a.rt.HasLeft() {
			t.Error("the instance says that it has left")
		}
	})
}

// TestSimThreadSharesFollow: what threads share is divided among those that there are, and a record cache that has to shrink does.
func TestSimThreadSharesFollow(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks, cache = 2, 8 << 10
		f := newFleet(t, true, tasks)
		f.options = func(c *Config) { c.CacheMaxBytes, c.InputBufferMaxBytes = cache, 6000 }
		f.topo = func() *Topology {
			return NewTopology().AddSource("source", SourceOptions{}, testInput).
				AddProcessor("count", func() Processor { return &counter{} }, "source").
				AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue, Caching: true}, "count")
		}
		a := f.start("a")
		a.waitRunning()
		tr := truth{}
		f.produce(tr, rng, 500, 200)
		f.waitCaughtUp(time.Minute)
		held := func() (bytes []int64) {
			for _, th := range a.rt.streamThreads() {
				bytes = append(bytes, th.env.cache.Bytes())
			}
			return bytes
		}
		alone := held()[0]
		if alone <= cache/2 {
			t.Fatalf("the cache holds %d bytes: nothing to shrink", alone)
		}
		if share := a.rt.streamThreads()[0].inputShare(); share != 6000 {
			t.Errorf("input share %d", share)
		}
		a.addThread()
		f.eventually("tasks on both threads", time.Minute, func() error { return a.spread(tasks, 2) })
		f.produce(tr, rng, 500, 200)
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Second)
		for i, n := range held() {
			if n > cache/2 {
				t.Errorf("thread %d holds %d bytes, its share is %d", i, n, cache/2)
			}
		}
		if share := a.rt.streamThreads()[0].inputShare(); share != 3000 {
			t.Errorf("input share of two %d", share)
		}
		a.removeThread()
		f.eventually("all on the first", time.Minute, func() error { return a.spread(tasks, 1) })
		f.produce(tr, rng, 500, 200)
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Second)
		if n := held()[0]; n <= cache/2 || n > cache {
			t.Errorf("alone again it holds %d bytes of %d", n, cache)
		}
		logged, _ := f.replay(testApp + "-counts-changelog")
		if !maps.Equal(logged, tr) {
			t.Fatalf("changelog is not the truth: %s", diff(logged, tr))
		}
	})
}

// TestSimRandomThreads lets the faults of [TestSimRandomFaults] happen to a fleet whose threads come and go at the same time.
func TestSimRandomThreads(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		tasks := 3 + rng.IntN(4)
		f := newFleet(t, true, int32(tasks))
		f.withStandbys(rng.IntN(2))
		ff := &faultyFleet{fleet: f, rng: rng, brokers: newBrokerFaults(f, rng)}
		for i := range 2 + rng.IntN(2) {
			ff.slots = append(ff.slots, &slot{name: string(rune('a' + i))})
			ff.begin(ff.slots[i])
		}
		tr := truth{}
		f.produce(tr, rng, 20, 40)
		w := newWitness(f)
		readers := w.wander(rng, tasks, ff.living)
		defer readers()
		changes := 0
		for range 8 {
			ff.lookAfter()
			if rng.IntN(2) == 0 {
				ff.happen()
			}
			for range 1 + rng.IntN(3) {
				changes += ff.changeThreads()
			}
			for range rng.IntN(6) {
				f.produce(tr, rng, 20, 40)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
		}
		ff.lookAfter()
		ff.calm(tasks)
		for _, in := range ff.living() {
			f.settled(ff.living()...) // who waits for a join cannot leave in order
			if len(in.rt.Threads()) < 2 {
				in.addThread()
			} else {
				in.removeThread()
			}
		}
		f.produce(tr, rng, 100, 40)
		f.waitCaughtUp(5 * time.Minute)
		f.eventually("all run", 3*time.Minute, func() error { return allServe(tasks, ff.living()...) })
		readers()
		f.check(tr, ff.living()...)
		t.Logf("%d changes of threads", changes)
	})
}

// changeThreads adds a thread to a living instance, or removes one, and does not wait for long. It says whether it could.
func (ff *faultyFleet) changeThreads() int {
	living := ff.living()
	if len(living) == 0 {
		return 0
	}
	in := living[ff.rng.IntN(len(living))]
	ctx, cancel := context.WithTimeout(ff.t.Context(), ff.duration(3*time.Second)+time.Millisecond)
	defer cancel()
	change, what := in.rt.AddThread, "add"
	if n := len(in.rt.Threads()); n > 3 || n > 1 && ff.rng.IntN(2) == 0 {
		change, what = in.rt.RemoveThread, "remove"
	}
	name, err := change(ctx)
	ff.trace.note("%s: %s a thread: %q, %v", in.rt.cfg.ProcessID, what, name, err)
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrShuttingDown),
		errors.Is(err, router.ErrThreadLingers), errors.Is(err, router.ErrLastThread):
	case ofDisk(err), strings.Contains(err.Error(), "did not answer within"):
	default:
		ff.t.Errorf("%s: %s a thread: %v", in.rt.cfg.ProcessID, what, err)
	}
	if name == "" {
		return 0
	}
	return 1
}
