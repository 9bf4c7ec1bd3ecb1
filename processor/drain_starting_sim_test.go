package processor

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestSimDrainWhileStarting: before the group has let the instance in, nobody knows who takes its tasks: not ready, to be asked again.
func TestSimDrainWhileStarting(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 4)
		var asked atomic.Bool
		release := make(chan struct{})
		f.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
			asked.Store(true)
			f.cluster.SleepControl(func() { <-release })
			return nil, nil, false
		})
		var early error
		a := f.start("a", func(c *Config) {
			c.Listener.StateChange = func(_, to State) {
				if to == Rebalancing { // before anything else
					f.mu.Lock()
					rt := f.all[0].rt
					f.mu.Unlock()
					early = rt.Drain(t.Context(), router.TasksServed, nil)
				}
			}
		})
		f.eventually("a joins", time.Minute, func() error {
			if !asked.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		for when, err := range map[string]error{"first of all": early, "in a join": a.rt.Drain(t.Context(), router.TasksServed, nil)} {
			notReady, ok := errors.AsType[*store.NotReadyError](err)
			if !ok || notReady.Reason != "starting" || notReady.RetryAfter <= 0 || a.rt.Draining() {
				t.Errorf("%s: %v, draining %t", when, err, a.rt.Draining())
			}
		}
		close(release)
		f.placed(a)
		if err := a.rt.Drain(t.Context(), router.TasksServed, nil); !errors.Is(err, router.ErrNobodyTakes) {
			t.Errorf("alone: %v", err)
		}
	})
}
