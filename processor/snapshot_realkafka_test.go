//go:build realkafka

package processor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRealKafkaSnapshot: against a real broker, with records and transactions that go on all the time, a new instance is seeded by the
// owner, over a connection that breaks once; it follows from there, and takes over with what it has.
func TestRealKafkaSnapshot(t *testing.T) {
	const partitions = 2
	f, _ := newRealFleet(t, partitions)
	f.withStandbys(1)
	n := newCopyNet(f)
	tr, rng := truth{}, rand.New(rand.NewPCG(5, 5))
	a := n.start("a")
	a.waitRunning()
	n.grow(tr, rng)
	n.see(after(200<<10, n.cut))
	b := n.start("b")
	f.eventually("copies", time.Minute, func() error {
		f.produce(tr, rng, 5, 80)
		return follows(partitions, 1, a, b)
	})
	if taken, resumed := b.asked("taken"), counted(b.rt.metrics.copyResumes); taken != partitions || resumed == 0 {
		t.Errorf("%d copies were taken, gone on with %d times: want %d, and some", taken, resumed, partitions)
	}
	f.waitCaughtUp(time.Minute)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.eventually("b has it all", time.Minute, func() error {
		if err := allServe(partitions, b); err != nil {
			return fmt.Errorf("after a has left: %w", err)
		}
		return nil
	})
	f.produce(tr, rng, 100, 80)
	f.waitCaughtUp(time.Minute)
	f.check(tr, b)
}
