package processor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// TestSimNewLeaderEpochIsNoTruncation: what was written to a changelog under a later leader epoch than what was read of
// it is beyond the end of the earlier epoch, and yet nothing was cut off: the copy on disk stays.
func TestSimNewLeaderEpochIsNoTruncation(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1, kfake.NumBrokers(2), kfake.Ports(9092, 9093))
		tr := truth{}
		f.produce(tr, rng, 200, 50)
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		b := f.start("b") // reads the changelog, under the epoch there is
		b.waitRunning()
		log := testApp + "-counts-changelog"
		if err := f.cluster.MoveTopicPartition(log, 0, 1-f.cluster.LeaderFor(log, 0)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			f.produce(tr, rng, 100, 50)
			f.waitCaughtUp(time.Minute)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		var total int64
		b = f.start("b", func(c *Config) {
			c.Listener.RestoreEnd = func(info RestoreInfo) { total += info.Total }
		})
		b.waitRunning()
		if total > 2 {
			t.Errorf("%d offsets of the changelog read again, want the end of the last transaction at most", total)
		}
		f.check(tr, b)
		if pos := b.rt.Tasks()[0].Checkpoint.Changelogs[testStore]; pos.LeaderEpoch < 0 {
			t.Errorf("%+v: no leader epoch: a truncation would not be noticed", pos)
		}
	})
}
