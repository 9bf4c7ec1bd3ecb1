//go:build realkafka

package processor

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

var (
	manyKills = flag.Int("kills", 8, "how many instances TestRealKafkaManyKills kills")
	killsSeed = flag.Uint64("kills.seed", 0, "seed of its schedule; 0 takes a new one")
)

// TestRealKafkaManyKills kills instances of a fleet with standbys, one after the other, at any moment of a commit: some are evicted,
// some are left to their session; some leave their disk to the successor, some take it along; some come back as zombies. Changelog,
// output and answers are the truth after every ten kills and at the end.
func TestRealKafkaManyKills(t *testing.T) {
	seed := *killsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -kills=%d -kills.seed=%d", *manyKills, seed)
	const partitions = 6
	f, _ := newRealFleet(t, partitions)
	f.withStandbys(1)
	k := &killer{f: f, rng: rand.New(rand.NewPCG(seed, 0)), truth: truth{}, done: make(map[string]int)}
	for i := range 3 {
		k.fleet = append(k.fleet, f.start(fmt.Sprintf("i%d", i)))
	}
	for _, in := range k.fleet {
		in.waitRunning()
		in.waitMap(len(k.fleet))
	}
	for i := range *manyKills {
		k.produce()
		k.round(i)
		if i%10 == 9 {
			k.check(partitions)
		}
	}
	k.check(partitions)
	k.zombies.Wait()
	t.Logf("%d kills, %d records: %v", *manyKills, k.produced, k.done)
}

// killer keeps a fleet of three alive by killing it.
type killer struct {
	f        *fleet
	rng      *rand.Rand
	fleet    []*instance
	truth    truth
	produced int
	zombies  sync.WaitGroup
	done     map[string]int // how often what was done
}

func (k *killer) produce() {
	for range 1 + k.rng.IntN(4) {
		n := 20 + k.rng.IntN(200)
		k.f.produce(k.truth, k.rng, n, 200)
		k.produced += n
		pause(time.Duration(k.rng.IntN(60)) * time.Millisecond)
	}
}

// round kills one instance and starts its successor.
func (k *killer) round(i int) {
	victim := k.rng.IntN(len(k.fleet))
	dead := k.fleet[victim]
	name := fmt.Sprintf("k%d", i)
	if k.one("disk kept", "disk lost") {
		dead.kill(name)
	} else {
		dead.cut.cut()
	}
	if k.one("evicted", "left to its session") {
		by := k.fleet[(victim+1)%len(k.fleet)]
		if _, err := by.rt.Evict(k.f.t.Context(), dead.incarnation("test")); err != nil {
			k.done["eviction refused"]++ // the group moves, or the map of the survivor has not the victim yet
		}
	}
	k.produce()
	k.fleet[victim] = k.f.start(name)
	k.produce()
	back, after := k.one("zombie", "gone"), time.Duration(k.rng.IntN(3000))*time.Millisecond
	k.zombies.Go(func() {
		if back {
			pause(after)
			dead.cut.mend()
			pause(time.Second)
		}
		_ = dead.stop() // it was fenced or evicted, or it leaves as any other
	})
}

// one draws one of two and counts it.
func (k *killer) one(first, second string) bool {
	is := k.rng.IntN(2) == 0
	if is {
		k.done[first]++
	} else {
		k.done[second]++
	}
	return is
}

func (k *killer) check(partitions int) {
	k.f.t.Helper()
	k.f.waitCaughtUp(2 * time.Minute)
	k.f.eventually("all served", 2*time.Minute, func() error { return allServe(partitions, k.fleet...) })
	k.ended()
	k.f.check(k.truth, k.fleet...)
}

// ended waits until no transaction is open in the output, as everybody does who reads it committed. Who is killed and not evicted may
// leave one that the broker ends, by its timeout: the next owner fences whom the leader's map names, and with so many kills it
// may have missed one.
func (k *killer) ended() {
	k.f.t.Helper()
	k.f.eventually("no transaction is open", time.Minute, func() error {
		if n := k.f.openTransactions(testOut); n > 0 {
			return fmt.Errorf("%d offsets of the output are behind one", n)
		}
		return nil
	})
}
