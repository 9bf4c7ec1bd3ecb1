package processor

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSimRestartWhileJoining: an instance is killed while it waits in a join, and starts again before the group has
// noticed: for the leader two processes have one id. The new one waits until the old one's session is over. A process
// that really has a twin ends.
func TestSimRestartWhileJoining(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		f.produce(tr, rng, 100, 20)
		f.waitCaughtUp(time.Minute)
		f.eventually("two each", time.Minute, func() error { return errors.Join(allServe(2, a), allServe(2, b)) })
		ghost, _ := a.rt.streamThreads()[0].current.Load().client.GroupMetadata()
		slow, _ := b.rt.streamThreads()[0].current.Load().client.GroupMetadata()
		var joined atomic.Bool
		release := make(chan struct{})
		f.cluster.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			switch req.(*kmsg.JoinGroupRequest).MemberID {
			case ghost:
				joined.Store(true)
			case slow:
				f.cluster.SleepControl(func() { <-release })
			}
			return nil, nil, false
		})
		c := f.start("c")
		f.eventually("a joins", time.Minute, func() error {
			if !joined.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		a.kill("a-again")
		again := f.start("a-again", func(c *Config) { c.ProcessID = "a" })
		time.Sleep(time.Second)
		close(release)
		time.Sleep(time.Duration(5+rng.IntN(30)) * time.Second)
		select {
		case <-again.done:
			t.Fatalf("run: %v", again.err)
		default:
		}
		f.expel(ghost)
		f.produce(tr, rng, 100, 20)
		f.reap(again, b, c) // a was killed in a join
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all served", 2*time.Minute, func() error { return allServe(4, again, b, c) })
		f.check(tr, again, b, c)

		twin := f.start("twin", func(c *Config) { c.ProcessID = "b" })
		select {
		case <-twin.done:
		case <-time.After(10 * time.Minute):
			t.Fatal("two processes with one id")
		}
		if !is[*RefusedError](twin.err) {
			t.Fatalf("run: %v", twin.err)
		}
	})
}
