package processor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// withStandbys lets the fleet keep n copies of each task.
func (f *fleet) withStandbys(n int) {
	before := f.options
	f.options = func(c *Config) {
		if before != nil {
			before(c)
		}
		c.NumStandbyReplicas = n
	}
}

// follows reports why not every one of tasks has an owner, and n copies that answer, among the instances.
func follows(tasks, n int, instances ...*instance) error {
	if err := allServe(tasks, instances...); err != nil {
		return err // what is on its way has its copy where it comes from
	}
	copies := make(map[store.TaskID]int)
	for _, in := range instances {
		for _, s := range in.rt.Standbys() {
			if s.Exact && !s.Warmup {
				copies[s.ID]++
			}
		}
	}
	for p := range tasks {
		id := store.TaskID{Partition: store.Partition(p)}
		if copies[id] != n {
			return fmt.Errorf("task %s has %d copies that answer, want %d", id, copies[id], n)
		}
	}
	return nil
}

// sum adds up the counts of one partition as an instance has them.
func (in *instance) total(p store.Partition, opts store.ReadOptions) (uint64, store.Facts, error) {
	r, err := in.rt.Read(in.f.t.Context(), testStore, p, opts)
	if err != nil {
		return 0, store.Facts{}, err
	}
	defer r.Close()
	if age := r.Facts().Age; opts.MaxAge > 0 && age > opts.MaxAge {
		in.f.t.Errorf("partition %d: %s of %s reads what is %s old, bound %s", p, r.Facts().Role, in.dir, age, opts.MaxAge)
	}
	it, err := keyValue(in.f.t, r).Scan(in.f.t.Context(), store.Scan{})
	if err != nil {
		return 0, store.Facts{}, err
	}
	defer it.Close()
	var n uint64
	for it.Next() {
		n += binary.BigEndian.Uint64(it.Entry().Data)
	}
	facts := r.Facts()
	if opts.MaxAge > 0 && facts.Age > opts.MaxAge { // a slow disk: whoever asked throws it away
		return 0, facts, errors.Join(fmt.Errorf("%s old, bound %s", facts.Age, opts.MaxAge), it.Err())
	}
	return n, facts, it.Err()
}

// witness reads partitions wherever it gets an answer, and checks what answers claim: an answer of age a contains all that
// anybody had been told a ago or before, and a session that passes its token along never sees time go backwards.
type witness struct {
	f    *fleet
	mu   sync.Mutex
	told map[store.Partition][]told
	last map[store.Partition]told
	// answers and failures by role of who answered; a failure is a read that nobody answered.
	answers  map[store.Role]int
	failures int
}

// told is an answer, and when it was there.
type told struct {
	at    time.Time
	sum   uint64
	token store.Token
}

func newWitness(f *fleet) *witness {
	return &witness{
		f: f, told: make(map[store.Partition][]told), last: make(map[store.Partition]told), answers: make(map[store.Role]int),
	}
}

// read asks the instances, in the order given, until one answers within the bound.
func (w *witness) read(p store.Partition, opts store.ReadOptions, instances ...*instance) error {
	w.f.t.Helper()
	var errs []error
	for _, in := range instances {
		sum, facts, err := in.total(p, opts)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		now := time.Now()
		w.answers[facts.Role]++
		sums.checked(1, 0)
		for _, t := range w.told[p] {
			if !t.at.After(now.Add(-facts.Age)) && sum < t.sum {
				w.f.t.Errorf("partition %d: %s says %d and claims to be %s old, but %d was told %s ago", p, facts.Role, sum, facts.Age, t.sum, now.Sub(t.at))
			}
		}
		if !opts.AtLeast.Empty() && sum < w.last[p].sum {
			w.f.t.Errorf("partition %d: %s says %d to a session that had %d", p, facts.Role, sum, w.last[p].sum)
		}
		t := told{at: now, sum: sum, token: facts.Token}
		w.told[p] = append(w.told[p], t)
		w.last[p] = t
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures++
	return errors.Join(errs...)
}

// session is read with the token of the last answer.
func (w *witness) session(p store.Partition, opts store.ReadOptions, instances ...*instance) error {
	w.f.t.Helper()
	w.mu.Lock()
	opts.AtLeast = w.last[p].token
	w.mu.Unlock()
	opts.Wait = time.Second
	return w.read(p, opts, instances...)
}

// watch reads all partitions, one after the other, at random instances, until stop is called.
func (w *witness) watch(rng *rand.Rand, partitions int, opts store.ReadOptions, instances func() []*instance) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
			}
			list := slices.Clone(instances())
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			p := store.Partition(rng.IntN(partitions))
			err := w.read(p, opts, list...)
			if rng.IntN(2) == 0 {
				err = errors.Join(err, w.session(p, opts, list...))
			}
			if err != nil {
				w.f.t.Errorf("partition %d: nobody answers: %v", p, err)
			}
			time.Sleep(time.Duration(1+rng.IntN(40)) * time.Millisecond)
		}
	}()
	return sync.OnceFunc(func() { close(end); <-done })
}

// TestSimStandbyAnswers: copies on other instances have every commit, know how old they are, and answer whom that is enough.
func TestSimStandbyAnswers(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		tr := truth{}
		f.produce(tr, rng, 200, 50)
		all := []*instance{f.start("a"), f.start("b"), f.start("c")}
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, all...) })
		w := newWitness(f)
		bound := store.ReadOptions{MaxAge: 5 * time.Second}
		stop := w.watch(rng, tasks, bound, func() []*instance { return all })
		defer stop()
		for range 20 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		f.waitCaughtUp(time.Minute)
		stop()
		if w.answers[store.RoleStandby] == 0 || w.answers[store.RoleActive] == 0 {
			t.Fatalf("answers by role: %v, want some of both", w.answers)
		}
		f.check(tr, all...)
		// What is committed now is at the copies within a round or two, and they say so.
		var want uint64
		for _, n := range tr {
			want += n
		}
		f.eventually("copies have it all", 10*time.Second, func() error {
			sums := make(map[store.Partition]uint64) // a copy that is about to go may still be there beside the one that stays
			for _, in := range all {
				for _, s := range in.rt.Standbys() {
					n, facts, err := in.total(s.ID.Partition, store.ReadOptions{MaxAge: time.Second})
					if err != nil {
						return err
					}
					if facts.Role != store.RoleStandby || len(facts.Position[testInput]) == 0 {
						return fmt.Errorf("facts %+v: want a standby that knows its position", facts)
					}
					if _, _, err := in.total(s.ID.Partition, store.ReadOptions{OnlyActive: true}); !errors.Is(err, store.ErrMoved) {
						return fmt.Errorf("a standby says %w to who wants the owner, want MOVED", err)
					}
					if have, ok := sums[s.ID.Partition]; ok && have != n {
						return fmt.Errorf("copies of partition %d have %d and %d", s.ID.Partition, have, n)
					}
					sums[s.ID.Partition] = n
				}
			}
			var sum uint64
			for _, n := range sums {
				sum += n
			}
			if sum != want {
				return fmt.Errorf("copies have %d, want %d", sum, want)
			}
			return nil
		})
	})
}

// TestSimStandbyPromoted kills an owner: its copies answer all the time, within their bound, and the new owner goes on where its
// copy is, reading no more than the end of the changelog (KIP-441, RS-01).
func TestSimStandbyPromoted(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 4
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		var mu sync.Mutex
		var restored []int64
		f.options = func(next func(*Config)) func(*Config) {
			return func(c *Config) {
				next(c)
				c.SessionTimeout = 6 * time.Second
				c.Listener.RestoreEnd = func(i RestoreInfo) {
					mu.Lock()
					defer mu.Unlock()
					restored = append(restored, i.Total)
				}
			}
		}(f.options)
		tr := truth{}
		a, b, c := f.start("a"), f.start("b"), f.start("c")
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, a, b, c) })
		for range 20 {
			f.produce(tr, rng, 200, 50)
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		}
		w := newWitness(f)
		// The session is over after 6 s, and the last proof of the dead owner is a commit old.
		stop := w.watch(rng, tasks, store.ReadOptions{MaxAge: 10 * time.Second}, func() []*instance { return []*instance{b, c} })
		defer stop()
		mu.Lock()
		restored = nil
		mu.Unlock()
		a.kill("d")
		f.reap(b, c)
		f.eventually("all run", 2*time.Minute, func() error { return allServe(tasks, b, c) })
		for range 10 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		}
		f.waitCaughtUp(2 * time.Minute)
		stop()
		mu.Lock()
		for _, n := range restored {
			if n > 100 { // of about 2,000 in each changelog
				t.Errorf("a task was taken over by reading %d offsets: its copy was not used", n)
			}
		}
		mu.Unlock()
		f.check(tr, b, c)
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, b, c) })
	})
}

// TestSimStandbyMoves lets instances come and go while records flow and readers read: no read within its bound finds nobody, none
// goes backwards, and nothing is lost or counted twice. What leaves stays as a copy until the new owner answers.
func TestSimStandbyMoves(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 6
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		tr := truth{}
		var mu sync.Mutex
		all := []*instance{f.start("a"), f.start("b")}
		instances := func() []*instance {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, all...) })
		w := newWitness(f)
		stop := w.watch(rng, tasks, store.ReadOptions{MaxAge: 5 * time.Second}, instances)
		defer stop()
		flow := func(n int) {
			for range n {
				f.produce(tr, rng, 50, 50)
				time.Sleep(100 * time.Millisecond)
			}
		}
		flow(10)
		c := f.start("c")
		mu.Lock()
		all = append(all, c)
		mu.Unlock()
		flow(40)
		f.eventually("copies after a join", time.Minute, func() error { return follows(tasks, 1, instances()...) })
		leaves := instances()[rng.IntN(2)]
		if err := leaves.stop(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		all = slices.DeleteFunc(all, func(in *instance) bool { return in == leaves })
		mu.Unlock()
		flow(20)
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all run", 2*time.Minute, func() error { return allServe(tasks, instances()...) })
		stop()
		f.check(tr, instances()...)
	})
}
