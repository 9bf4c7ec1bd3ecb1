//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// havoc makes faults for as long as the flag says, then mends everything.
func havoc(ctx context.Context, t *testing.T, rng *rand.Rand, fleet []*instance, broker *kafkatest.Broker) {
	t.Helper()
	h := &faults{t: t, ctx: ctx, rng: rng, fleet: fleet, broker: broker, begin: time.Now()}
	h.wait(5 * time.Second) // something is there to lose
	all := h.ofInstances()
	if *brokerToo {
		all = append(all, h.ofBroker()...)
	}
	sum := 0
	for _, f := range all {
		sum += f.weight
	}
	for time.Since(h.begin) < *length && ctx.Err() == nil {
		p := rng.IntN(sum)
		for _, f := range all {
			if p -= f.weight; p < 0 {
				f.make(fleet[rng.IntN(len(fleet))])
				break
			}
		}
		for _, i := range fleet {
			if i.died() {
				t.Errorf("%s: instance %d ended by itself:\n%s", time.Now().Format("15:04:05.000"), i.number, i.tail())
				restart(t, i)
			}
		}
		h.wait(h.upTo(500, 3500))
	}
}

// faults is what can be done to a fleet and its broker.
type faults struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // of the test
	rng    *rand.Rand
	fleet  []*instance
	broker *kafkatest.Broker
	begin  time.Time
}

type fault struct {
	weight int
	make   func(i *instance)
}

func (h *faults) ofInstances() []fault {
	return []fault{
		{18, func(i *instance) { h.again(syscall.SIGKILL, i) }},
		{8, func(i *instance) { h.again(syscall.SIGKILL, i, h.fleet[(i.number+1)%len(h.fleet)]) }},
		{3, func(*instance) { h.again(syscall.SIGKILL, h.fleet...) }},
		{12, func(i *instance) { h.again(syscall.SIGTERM, i) }},
		{5, func(*instance) { h.again(syscall.SIGTERM, h.fleet...) }},
		{18, h.pause},
		{18, h.cut},
		{6, h.empty},
		{6, h.recall},
	}
}

// ofBroker are the faults of a single broker, which at times leave a transaction without markers for good: see void.
func (h *faults) ofBroker() []fault {
	return []fault{
		{4, func(*instance) {
			h.say("kill the broker")
			h.broker.Kill()
			h.broker.MustRestart(h.t)
			void(h.t, h.broker)
		}},
		{2, func(*instance) {
			d := h.upTo(500, 8000)
			h.say("pause the broker for %s", d)
			if err := h.broker.Pause(); err != nil {
				h.t.Fatal(err)
			}
			h.wait(d)
			if err := h.broker.Resume(); err != nil {
				h.t.Fatal(err)
			}
		}},
	}
}

func (h *faults) say(format string, args ...any) {
	h.t.Helper()
	h.t.Logf("%s %8s: %s", time.Now().Format("15:04:05.000"), time.Since(h.begin).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

func (h *faults) upTo(low, high int) time.Duration {
	return time.Duration(low+h.rng.IntN(high-low)) * time.Millisecond
}

func (h *faults) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// again ends instances at once and starts them one after another.
func (h *faults) again(sig syscall.Signal, who ...*instance) {
	pause := h.upTo(0, 2000)
	for _, i := range who {
		h.say("%v to instance %d, again after %s", sig, i.number, pause)
		i.signal(sig)
	}
	for _, i := range who {
		i.end(sig)
	}
	for _, i := range who {
		h.wait(pause)
		if h.rng.IntN(3) == 0 {
			h.must(i.backup())
		}
		restart(h.t, i)
	}
}

// pause often lasts longer than a session: what wakes up is a zombie.
func (h *faults) pause(i *instance) {
	d := h.upTo(100, 11000)
	h.say("pause instance %d for %s", i.number, d)
	i.signal(syscall.SIGSTOP)
	h.wait(d)
	i.signal(syscall.SIGCONT)
}

func (h *faults) cut(i *instance) {
	c := cut(1 + h.rng.IntN(4))
	d := h.upTo(100, 11000)
	h.say("link of instance %d is %s for %s", i.number, c, d)
	i.link.become(c)
	h.wait(d)
	i.link.become(whole)
}

// empty takes the state directory away: a new disk.
func (h *faults) empty(i *instance) {
	h.say("instance %d loses its disk", i.number)
	i.end(syscall.SIGKILL)
	h.must(os.RemoveAll(i.state()))
	restart(h.t, i)
}

// recall brings an old state directory back: a disk restored from a backup.
func (h *faults) recall(i *instance) {
	h.say("instance %d gets its backup back", i.number)
	i.end(syscall.SIGKILL)
	h.must(i.recall())
	restart(h.t, i)
}

func (h *faults) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// void ends a run in which the broker has broken its own promise: a single node that was killed between the decision of
// a transaction and its markers loads the decision before it knows any leader, takes the partitions for deleted, and
// never writes the markers (seen with Kafka 4.4.0). The transaction then hangs in its partitions for good, and nothing
// that is built on it can go on.
func void(t *testing.T, broker *kafkatest.Broker) {
	t.Helper()
	const skipped = "these partitions are likely deleted already and hence can be skipped"
	if strings.Contains(broker.LogTail(8<<20), skipped) {
		t.Skipf("the broker has dropped the markers of a decided transaction: this run proves nothing from here on")
	}
}

func restart(t *testing.T, i *instance) {
	t.Helper()
	if i.died() {
		i.end(syscall.SIGKILL)
	}
	if err := i.start(); err != nil {
		t.Errorf("instance %d: %v", i.number, err)
	}
}
