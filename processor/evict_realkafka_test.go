//go:build realkafka

package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestRealKafkaEviction is TestSimEviction on a real broker, where fencing is what it is: an instance with an open transaction
// dies, both survivors evict it at once; its transaction is ended and its tasks run elsewhere long before its session (45 s) or
// its transaction (40 s) would have ended. Then it comes back, is refused, and joins anew.
func TestRealKafkaEviction(t *testing.T) {
	const partitions = 6
	f, _ := newRealFleet(t, partitions)
	f.options = func(c *Config) { c.NumStreamThreads = 2 }
	a, b, c := f.start("a", leaveOpen), f.start("b"), f.start("c")
	tr, rng := truth{}, rand.New(rand.NewPCG(11, 11))
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
	pause(time.Second) // the others commit
	before := b.rt.observer.View().Epoch
	a.cut.cut()
	began := time.Now()
	var wg sync.WaitGroup
	for _, in := range []*instance{b, c} {
		wg.Go(func() {
			if _, err := in.rt.Evict(t.Context(), a.incarnation("test")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	evicted := time.Since(began)
	f.eventually("nothing of a is open", 20*time.Second, func() error {
		if n := f.openTransactions(testOut); n > 0 {
			return fmt.Errorf("%d offsets behind", n)
		}
		return nil
	})
	stable := time.Since(began)
	f.eventually("taken over", 20*time.Second, func() error { return allServe(partitions, b, c) })
	served := time.Since(began)
	f.eventually("a map without a", 20*time.Second, func() error {
		if b.rt.observer.View().Epoch == before {
			return errors.New("not yet")
		}
		return nil
	})
	t.Logf("both evictions %s, last stable offset moved %s, tasks taken over %s after the kill", evicted, stable, served)
	f.waitCaughtUp(time.Minute)
	f.check(tr, b, c)

	a.cut.mend()
	f.produce(tr, rng, 300, 100)
	f.eventually("all take part", time.Minute, func() error {
		if err := allServe(partitions, a, b, c); err != nil {
			return err
		}
		if len(a.rt.Tasks()) == 0 {
			return errors.New("a has nothing")
		}
		return nil
	})
	f.waitCaughtUp(time.Minute)
	f.check(tr, a, b, c)
}
