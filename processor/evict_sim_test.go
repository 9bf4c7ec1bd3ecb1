package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// incarnation names an instance as its peers know it.
func (in *instance) incarnation(proof string) Dead {
	return Dead{Process: in.rt.cfg.ProcessID, Incarnation: in.rt.cfg.Incarnation, Proof: proof}
}

// joinGivenUp is longer than a client waits for the answer to a join, 70 s. Kafka answers the join of a member that is removed; the trial
// broker says nothing, and the member joins anew when it has waited that long.
const joinGivenUp = 3 * time.Minute

// waitMap waits until an instance's map has the members of n instances.
func (in *instance) waitMap(n int) {
	in.f.t.Helper()
	in.f.eventually("a map of all", joinGivenUp, func() error {
		processes := make(map[string]bool)
		for _, m := range in.rt.observer.View().Members {
			processes[m.Member.ProcessID] = true
		}
		if len(processes) != n {
			return fmt.Errorf("%d processes in the map, want %d", len(processes), n)
		}
		return nil
	})
}

// openTransactions reports how far the last stable offsets of a topic are behind its ends.
func (f *fleet) openTransactions(topic string) int64 {
	f.t.Helper()
	adm := kadm.NewClient(f.client)
	ends, err := adm.ListEndOffsets(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	stable, err := adm.ListCommittedOffsets(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	var behind int64
	ends.Each(func(o kadm.ListedOffset) {
		s, _ := stable.Lookup(o.Topic, o.Partition)
		behind += o.Offset - s.Offset
	})
	return behind
}

// leaveOpen makes instances keep their transactions open for long: what they process is not committed.
func leaveOpen(c *Config) {
	c.CommitInterval, c.TransactionTimeout = 30*time.Second, 40*time.Second
}

// TestSimEviction: an instance dies with a transaction open. One survivor, or both at once, or one after the other and again,
// evict it: the transaction is ended and its tasks run elsewhere within two seconds, though its session
// would last 45 and its transaction 40 (CR-03: the writer of an open transaction is dead). Nothing is lost or doubled, also when it was alive and comes back.
func TestSimEviction(t *testing.T) {
	for name, evict := range map[string]func(t *testing.T, d Dead, b, c *instance){
		"one": func(t *testing.T, d Dead, b, c *instance) { // and the other is told
			epoch := b.rt.Epoch()
			defer func() { c.rt.Nudge(epoch) }()
			n, err := b.rt.Evict(t.Context(), d)
			if n != 2 || err != nil {
				t.Fatalf("removed %d members, want 2: %v", n, err)
			}
		},
		"both": func(t *testing.T, d Dead, b, c *instance) {
			var wg sync.WaitGroup
			var removed atomic.Int64
			for _, in := range []*instance{b, c} {
				wg.Go(func() {
					n, err := in.rt.Evict(t.Context(), d)
					if err != nil {
						t.Error(err)
					}
					removed.Add(int64(n))
				})
			}
			wg.Wait()
			if n := removed.Load(); n != 2 {
				t.Errorf("removed %d members, want 2", n)
			}
		},
		"again": func(t *testing.T, d Dead, b, c *instance) {
			for i, in := range []*instance{b, b, c} {
				if n, err := in.rt.Evict(t.Context(), d); err != nil || i > 0 && n > 0 {
					t.Fatalf("eviction %d removed %d: %v", i, n, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				const partitions = 6
				f := newFleet(t, true, partitions)
				fenceLikeKafka(f)
				f.options = func(c *Config) { c.NumStreamThreads = 2 }
				a, b, c := f.start("a", leaveOpen), f.start("b"), f.start("c")
				tr := truth{}
				for _, in := range []*instance{a, b, c} {
					in.waitRunning()
					in.waitMap(3)
				}
				f.eventually("all served", time.Minute, func() error { return allServe(partitions, a, b, c) })
				f.produce(tr, rng, 600, 100)
				f.eventually("a transaction of a is open", time.Minute, func() error {
					if f.openTransactions(testOut) == 0 {
						return errors.New("none")
					}
					return nil
				})
				time.Sleep(time.Second) // the others commit
				a.cut.cut()
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				f.produce(tr, rng, 100, 100)

				began := time.Now()
				evict(t, a.incarnation("test"), b, c)
				f.eventually("taken over", 2*time.Second, func() error { return allServe(partitions, b, c) })
				took := time.Since(began)
				f.waitCaughtUp(2 * time.Second)
				f.eventually("nothing of a is open", 2*time.Second, func() error {
					if n := f.openTransactions(testOut); n > 0 {
						return fmt.Errorf("%d offsets behind", n)
					}
					return nil
				})
				f.check(tr, b, c)

				a.cut.mend() // it was alive: it is refused, joins anew, and takes part
				f.produce(tr, rng, 200, 100)
				f.eventually("all take part", 3*time.Minute, func() error {
					if err := allServe(partitions, a, b, c); err != nil {
						return err
					}
					if len(a.rt.Tasks()) == 0 {
						return errors.New("a has nothing")
					}
					return nil
				})
				f.waitCaughtUp(3 * time.Minute)
				f.check(tr, a, b, c)
				t.Logf("taken over after %s", took)
			})
		})
	}
}

// TestSimEvictionOfTheLiving: RB-06, CR-18. An instance that works is evicted by mistake, again and again. It is fenced like a zombie, joins
// anew, and nothing is lost or doubled. The eviction of its old members does not hit the new ones.
func TestSimEvictionOfTheLiving(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const partitions = 4
		f := newFleet(t, true, partitions)
		fenceLikeKafka(f)
		a, b := f.start("a"), f.start("b")
		tr := truth{}
		a.waitRunning()
		b.waitRunning()
		for range 5 {
			f.eventually("all served", time.Minute, func() error { return allServe(partitions, a, b) })
			b.waitMap(2)
			f.produce(tr, rng, 100, 50)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			if n, err := b.rt.Evict(t.Context(), a.incarnation("mistake")); err != nil || n > 1 {
				t.Fatalf("removed %d: %v", n, err)
			}
			f.produce(tr, rng, 100, 50)
		}
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(partitions, a, b) })
		f.check(tr, a, b)

		old := b.rt.observer.View()
		f.eventually("evicted once more", time.Minute, func() error { // as soon as the map has the members of now
			old = b.rt.observer.View()
			n, err := b.rt.Evict(t.Context(), a.incarnation("mistake"))
			if err == nil && n != 1 {
				err = fmt.Errorf("removed %d", n)
			}
			return err
		})
		f.eventually("a is back", joinGivenUp, func() error {
			if b.rt.observer.View().Epoch <= old.Epoch || len(a.rt.Tasks()) == 0 {
				return errors.New("not yet")
			}
			return allServe(partitions, a, b)
		})
		var members []string
		for _, m := range old.Members {
			if m.Member.ProcessID == "a" {
				members = append(members, m.ID)
			}
		}
		if n, err := b.rt.expel(t.Context(), members, "late"); n != 0 || err != nil {
			t.Fatalf("a late eviction removed %d: %v", n, err)
		}
		f.produce(tr, rng, 100, 50)
		f.waitCaughtUp(time.Minute)
		f.check(tr, a, b)
	})
}

// TestSimEvictionAtLeastOnce: without transactions there is nothing to fence.
func TestSimEvictionAtLeastOnce(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const partitions = 4
		f := newFleet(t, true, partitions)
		f.options = func(c *Config) { c.Guarantee, c.CommitInterval = AtLeastOnce, 100*time.Millisecond }
		a, b := f.start("a"), f.start("b")
		tr := truth{}
		a.waitRunning()
		b.waitRunning()
		b.waitMap(2)
		f.produce(tr, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		var fences atomic.Int64
		f.cluster.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			if req.(*kmsg.InitProducerIDRequest).TransactionalID != nil {
				fences.Add(1)
			}
			return nil, nil, false
		})
		a.cut.cut()
		if n, err := b.rt.Evict(t.Context(), a.incarnation("test")); n != 1 || err != nil {
			t.Fatalf("removed %d: %v", n, err)
		}
		f.eventually("taken over", 2*time.Second, func() error { return allServe(partitions, b) })
		if n := fences.Load(); n != 0 {
			t.Errorf("%d transactional ids initialised", n)
		}
		f.produce(tr, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		f.checkReads(tr, b)
	})
}

// TestSimEvictionRefused: who may not be evicted is not, and every attempt is counted.
func TestSimEvictionRefused(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		reg, offReg := prometheus.NewRegistry(), prometheus.NewRegistry()
		a := f.start("a", func(c *Config) { c.Registerer = reg })
		b := f.start("b", func(c *Config) { c.Registerer, c.NoEviction = offReg, true })
		if _, err := a.rt.Evict(t.Context(), b.incarnation("early")); !errors.Is(err, ErrNotEvicted) && err != nil {
			t.Fatal(err)
		}
		if a.rt.Nudge(0) && a.rt.observer == nil {
			t.Fatal("nudged before it was ready")
		}
		a.waitRunning()
		b.waitRunning()
		a.waitMap(2)
		time.Sleep(10 * time.Second)
		before := a.rt.observer.View()
		if _, err := a.rt.Evict(t.Context(), a.incarnation("self")); !errors.Is(err, ErrNotEvicted) {
			t.Errorf("itself: %v", err)
		}
		if _, err := b.rt.Evict(t.Context(), a.incarnation("off")); !errors.Is(err, ErrNotEvicted) {
			t.Errorf("switched off: %v", err)
		}
		other := b.incarnation("other")
		other.Incarnation += "0"
		if n, err := a.rt.Evict(t.Context(), other); n != 0 || err != nil {
			t.Errorf("another incarnation of the process: removed %d, %v", n, err)
		}
		time.Sleep(10 * time.Second)
		if now := a.rt.observer.View(); now.Epoch != before.Epoch {
			t.Errorf("epoch %d, was %d: something happened to the group", now.Epoch, before.Epoch)
		}
		for name, tc := range map[string]struct {
			reg  *prometheus.Registry
			want float64
		}{"a": {reg, 2}, "b": {offReg, 1}} {
			if n := metric(t, tc.reg, "evictions_refused_total"); n < tc.want {
				t.Errorf("%s: %v evictions refused, want at least %v", name, n, tc.want)
			}
			if n := metric(t, tc.reg, "evictions_total"); n != 0 {
				t.Errorf("%s: %v evictions", name, n)
			}
		}
	})
}

// TestSimNudge: a nudge for the map of today makes the threads look at once; a second one in the same second, or one for a map
// that is past, does nothing.
func TestSimNudge(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		f.options = func(c *Config) { c.NumStreamThreads = 2 }
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		a.waitMap(2)
		f.eventually("all served", time.Minute, func() error { return allServe(4, a, b) })
		time.Sleep(5 * time.Second)
		epoch := a.rt.observer.View().Epoch
		if a.rt.Nudge(epoch - 1) {
			t.Error("nudged for a map that is past")
		}
		var joins atomic.Int64
		f.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			joins.Add(1)
			return nil, nil, false
		})
		if !a.rt.Nudge(epoch) {
			t.Error("not nudged for the map of today")
		}
		if a.rt.Nudge(epoch) {
			t.Error("nudged twice")
		}
		time.Sleep(100 * time.Millisecond)
		if n := joins.Load(); n < 2 {
			t.Errorf("%d joins within 100ms, want one of each thread", n)
		}
		f.eventually("all served", time.Minute, func() error { return allServe(4, a, b) })
	})
}
