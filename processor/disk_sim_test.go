package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// servesSome reports why an instance does not serve at least n tasks, and all of those that it has.
func (in *instance) servesSome(n int) error {
	tasks := in.rt.Tasks()
	for _, info := range tasks {
		if !info.Serving {
			return fmt.Errorf("task %s is not served", info.ID)
		}
	}
	if len(tasks) < n {
		return fmt.Errorf("%d tasks, want at least %d", len(tasks), n)
	}
	select {
	case <-in.done:
		return errors.Join(errors.New("it has ended"), in.err)
	default:
		return nil
	}
}

// TestSimDiskRefuses: disks take no writes for a while. A task whose last move fails leaves all the same, and a task whose copy cannot be
// begun waits for it. No instance ends, the other tasks go on, and nothing is lost or doubled.
func TestSimDiskRefuses(t *testing.T) {
	for name, refuses := range map[string]error{"full": errDiskFull, "broken": errDiskBroken} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				const partitions = 4
				f := newFleet(t, true, partitions)
				tr := truth{}
				a := f.start("a")
				a.waitRunning()
				f.eventually("a serves all", time.Minute, func() error { return a.servesSome(partitions) })
				a.disk.becomes(0, refuses)
				f.produce(tr, rng, 200, 50)
				f.waitCaughtUp(time.Minute)

				b := f.start("b") // takes tasks over from a, which cannot write what it has of them
				f.eventually("b serves", 2*time.Minute, func() error { return b.servesSome(1) })
				f.produce(tr, rng, 200, 50)
				time.Sleep(20 * time.Second) // longer than what has left stays open
				f.eventually("a serves the others", time.Minute, func() error { return a.servesSome(1) })
				f.waitCaughtUp(time.Minute)

				c := f.start("c") // takes over what a and b had, and has no place for it
				c.disk.becomes(0, refuses)
				for _, in := range []*instance{a, b} {
					if err := in.stop(); err != nil && !ofDisk(err) {
						t.Fatal(err)
					}
				}
				f.produce(tr, rng, 200, 50)
				time.Sleep(time.Duration(10+rng.IntN(50)) * time.Second)
				c.disk.becomes(0, nil)
				f.eventually("c serves all", time.Minute, func() error { return c.servesSome(partitions) })
				f.waitCaughtUp(time.Minute)
				f.check(tr, c)
			})
		})
	}
}
