package processor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// faultyFleet is a fleet to which things happen.
type faultyFleet struct {
	*fleet
	rng     *rand.Rand
	brokers *brokerFaults

	slots []*slot
	mu    sync.Mutex
	ever  []*instance // that were started
}

// slot is a place in the fleet, with its state directory and the process that is there; nil: none.
type slot struct {
	name  string
	lives int
	in    *instance
	// zombies were killed and may come back with their network.
	zombies []*instance
}

func (ff *faultyFleet) living() []*instance {
	ff.mu.Lock()
	defer ff.mu.Unlock()
	var list []*instance
	for _, s := range ff.slots {
		if s.in != nil {
			list = append(list, s.in)
		}
	}
	return list
}

func (ff *faultyFleet) begin(s *slot) {
	s.lives++
	in := ff.start(s.name)
	ff.mu.Lock()
	defer ff.mu.Unlock()
	s.in = in
	ff.ever = append(ff.ever, in)
}

func (ff *faultyFleet) gone(s *slot) *instance {
	ff.mu.Lock()
	defer ff.mu.Unlock()
	in := s.in
	s.in = nil
	return in
}

// happen lets one thing happen.
func (ff *faultyFleet) happen() {
	s := ff.slots[ff.rng.IntN(len(ff.slots))]
	living := len(ff.living())
	switch what := ff.rng.IntN(12); {
	case s.in == nil:
		ff.begin(s)
	case what <= 1 && living > 1:
		in := ff.gone(s)
		next := fmt.Sprintf("%s%d", s.name[:1], s.lives)
		ff.trace.note("%s: its disk is %s's", s.name, next)
		in.kill(next)
		s.zombies = append(s.zombies, in)
		s.name = next
	case what == 2 && living > 1:
		in := ff.gone(s)
		ff.happened(s.name, "kill, disk lost")
		in.cut.off()
		s.zombies = append(s.zombies, in)
		s.name = fmt.Sprintf("%s%dx", s.name[:1], s.lives)
	case what <= 4:
		d := ff.duration(time.Minute)
		in := s.in
		ff.trace.note("%s: for %s", s.name, d)
		in.cut.cut()
		time.AfterFunc(d, in.cut.mend)
	case what == 5 && living > 1:
		in := ff.gone(s)
		if err := in.stop(); err != nil && !ofDisk(err) && !strings.Contains(err.Error(), "did not answer within") {
			ff.t.Errorf("%s: stop: %v", s.name, err)
		}
	case what == 6 && len(s.zombies) > 0:
		ff.trace.note("%s: its zombies come back", s.name)
		for _, z := range s.zombies {
			z.cut.mend()
		}
		s.zombies = nil
	case what <= 8:
		ff.spoilDisk(s)
	default:
		ff.brokers.happen()
	}
}

func (ff *faultyFleet) duration(most time.Duration) time.Duration {
	return time.Duration(ff.rng.Int64N(most.Milliseconds())) * time.Millisecond
}

// spoilDisk makes a disk slow, full or broken for a while.
func (ff *faultyFleet) spoilDisk(s *slot) {
	disk, d := s.in.disk, ff.duration(40*time.Second)
	switch ff.rng.IntN(3) {
	case 0:
		takes := ff.duration(2 * time.Second)
		ff.trace.note("%s: each operation takes %s, for %s", s.name, takes, d)
		ff.happened(s.name, "disk slow")
		disk.becomes(takes, nil)
	case 1:
		ff.trace.note("%s: for %s", s.name, d)
		ff.happened(s.name, "disk full")
		disk.becomes(0, errDiskFull)
	default:
		ff.trace.note("%s: for %s", s.name, d)
		ff.happened(s.name, "disk broken")
		disk.becomes(ff.duration(100*time.Millisecond), errDiskBroken)
	}
	time.AfterFunc(d, func() {
		ff.trace.note("%s: disk well", s.name)
		disk.becomes(0, nil)
	})
}

// lookAfter tells of processes that ended by themselves, and lets supervisors start them again.
func (ff *faultyFleet) lookAfter() {
	for _, s := range ff.slots {
		if s.in == nil {
			continue
		}
		select {
		case <-s.in.done:
			in := ff.gone(s)
			ff.happened(s.name, "ended by itself")
			ff.t.Errorf("%s ended: %v", s.name, in.err)
		default:
		}
	}
}

// calm ends all faults. In every other schedule the processes that are there go on; in the others all are killed and start again, with
// what is on the disks, in the logs and in the group's offsets.
func (ff *faultyFleet) calm(tasks int) {
	ff.brokers.calm()
	again := ff.rng.IntN(2) == 0
	if again {
		ff.trace.note("calm: all are killed, and start again")
		for _, s := range ff.slots {
			if in := ff.gone(s); in != nil {
				next := fmt.Sprintf("%s%dz", s.name[:1], s.lives)
				in.kill(next)
				s.name = next
			}
		}
	} else {
		ff.trace.note("calm: who is there goes on")
	}
	ff.apart()
	time.Sleep(time.Minute) // no network and no disk comes back later than that
	ff.apart()
	if again {
		ff.reap()
	}
	for _, s := range ff.slots {
		if s.in == nil {
			ff.begin(s)
		}
	}
	// What the trial broker's group has been through it may not get over by itself: members that broke off in a join stay in it, and
	// each newcomer's join begins the wait for them anew.
	for range 10 {
		ff.reap(ff.living()...)
		if allServe(tasks, ff.living()...) == nil {
			return
		}
	}
}

// apart takes the network away from who was killed, and gives it to who lives.
func (ff *faultyFleet) apart() {
	for _, in := range ff.ever {
		in.cut.off()
	}
	for _, in := range ff.living() {
		in.cut.on()
	}
}

// TestSimRandomFaults lets anything happen to a fleet of up to five instances with standbys, in any order, while records flow
// and readers read: kills with the disk kept or lost, zombies that come back, networks away, planned stops, disks that are slow, full or
// broken, and at each kind of request brokers that break connections, lose or delay answers, slow clients down, refuse, or do what they
// are asked and deny it. No answer claims more than it holds, no session goes backwards; and when all is calm again, state,
// changelog, output and answers are the truth, each output record once.
func TestSimRandomFaults(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		tasks := 2 + rng.IntN(4)
		f := newFleet(t, true, int32(tasks))
		f.withStandbys(rng.IntN(3))
		ff := &faultyFleet{fleet: f, rng: rng, brokers: newBrokerFaults(f, rng)}
		for i := range 2 + rng.IntN(4) {
			ff.slots = append(ff.slots, &slot{name: string(rune('a' + i))})
			ff.begin(ff.slots[i])
		}
		tr := truth{}
		f.produce(tr, rng, 20, 40) // the test's own client would take a broken first connection for a wrong password
		w := newWitness(f)
		readers := w.wander(rng, tasks, ff.living)
		defer readers()
		for range 8 {
			ff.lookAfter()
			ff.happen()
			if rng.IntN(2) == 0 {
				ff.brokers.happen()
			}
			for range rng.IntN(8) {
				f.produce(tr, rng, 20, 40)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
		}
		ff.lookAfter()
		ff.calm(tasks)
		f.produce(tr, rng, 100, 40)
		f.waitCaughtUp(5 * time.Minute)
		f.eventually("all run", 3*time.Minute, func() error { return allServe(tasks, ff.living()...) })
		readers()
		f.check(tr, ff.living()...)
	})
}

// wander reads as watch does; a read that nobody answers is none of its business.
func (w *witness) wander(rng *rand.Rand, partitions int, instances func() []*instance) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Duration(1+rng.IntN(200)) * time.Millisecond):
			}
			list := slices.Clone(instances())
			rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			p := store.Partition(rng.IntN(partitions))
			opts := store.ReadOptions{MaxAge: time.Duration(1+rng.IntN(20)) * time.Second}
			_ = w.read(p, opts, list...)
			_ = w.session(p, opts, list...)
		}
	}()
	return sync.OnceFunc(func() { close(end); <-done })
}
