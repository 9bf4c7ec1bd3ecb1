//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/statemesh/statemesh/history"
	"github.com/statemesh/statemesh/internal/kafkatest"
)

// havoc makes faults for as long as the flag says, then mends everything.
func havoc(ctx context.Context, t *testing.T, rng *rand.Rand, rec *history.Recorder, fleet []*instance, cluster *kafkatest.Cluster) {
	t.Helper()
	h := &faults{t: t, ctx: ctx, rng: rng, rec: rec, fleet: fleet, cluster: cluster, begin: time.Now()}
	defer h.aside.Wait()    // also when a fault ends the test
	h.wait(5 * time.Second) // something is there to lose
	all := h.ofInstances()
	switch {
	case *brokerToo && *nodes > 1:
		all = append(all, h.ofNodes()...)
	case *brokerToo:
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
				f.make(h.one())
				break
			}
		}
		for _, i := range fleet {
			if i.died() {
				void(t, cluster)
				t.Errorf("%s: %s ended by itself:\n%s", time.Now().Format("15:04:05.000"), i, i.tail())
				restart(t, i)
			}
		}
		h.wait(h.upTo(500, 3500))
	}
	if *nodes > 1 {
		h.inSync()
	}
}

// faults is what can be done to a fleet and its brokers.
type faults struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // of the test
	rng     *rand.Rand
	rec     *history.Recorder
	fleet   []*instance // the last one is a spare, which runs at times
	cluster *kafkatest.Cluster
	begin   time.Time

	aside sync.WaitGroup // a node that is away while other faults are made
}

type fault struct {
	weight int
	make   func(i *instance)
}

func (h *faults) ofInstances() []fault {
	return []fault{
		{18, func(i *instance) { h.again("kill", syscall.SIGKILL, i) }},
		{6, func(i *instance) { h.again("kill two", syscall.SIGKILL, i, h.other(i)) }},
		{2, func(*instance) { h.again("kill all", syscall.SIGKILL, h.running()...) }},
		{12, func(i *instance) { h.again("drain", syscall.SIGTERM, i) }},
		{3, func(*instance) { h.again("drain all", syscall.SIGTERM, h.running()...) }},
		{6, func(*instance) { h.roll() }},
		{5, h.handOver},
		{8, func(*instance) { h.scale() }},
		{14, h.pause},
		{12, func(i *instance) { h.cut("to the broker", i.String(), i.links...) }},
		{12, func(i *instance) { h.cut("from peers and clients", i.String(), i.front) }},
		{6, h.empty},
		{5, h.recall},
	}
}

// fault says and records what is broken; what it returns, that it is mended.
func (h *faults) fault(kind, target, format string, args ...any) func() {
	h.t.Helper()
	h.t.Logf("%s %8s: %s: %s %s", time.Now().Format("15:04:05.000"), time.Since(h.begin).Round(time.Millisecond), kind, target, fmt.Sprintf(format, args...))
	return h.rec.Fault(kind, target).Mended
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

// running are the instances that are there; all but the spare always are.
func (h *faults) running() []*instance {
	var is []*instance
	for _, i := range h.fleet {
		if i.runs() {
			is = append(is, i)
		}
	}
	return is
}

func (h *faults) one() *instance {
	is := h.running()
	return is[h.rng.IntN(len(is))]
}

func (h *faults) other(than *instance) *instance {
	for {
		if i := h.one(); i != than {
			return i
		}
	}
}

// again ends instances at once and starts them one after another.
func (h *faults) again(kind string, sig syscall.Signal, who ...*instance) {
	pause := h.upTo(0, 2000)
	defer h.fault(kind, fmt.Sprint(who), "again after %s", pause)()
	for _, i := range who {
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

// roll restarts one instance after the other, in order, as an upgrade does.
func (h *faults) roll() {
	defer h.fault("rolling restart", fmt.Sprint(h.running()), "")()
	for _, i := range h.running() {
		i.end(syscall.SIGTERM)
		restart(h.t, i)
		h.wait(h.upTo(2000, 4000))
	}
}

// handOver has an instance give everything away and takes it back a while later, without a restart.
func (h *faults) handOver(i *instance) {
	defer h.fault("hand over", i.String(), "")()
	h.t.Logf("%s", i.drain(h.ctx, "--tasks-only", "--timeout", "20s"))
	h.wait(h.upTo(0, 3000))
	h.t.Logf("%s", i.drain(h.ctx, "--undo"))
}

// scale starts the spare, or ends it in order.
func (h *faults) scale() {
	spare := h.fleet[len(h.fleet)-1]
	if spare.runs() {
		defer h.fault("scale in", spare.String(), "")()
		spare.end(syscall.SIGTERM)
		return
	}
	defer h.fault("scale out", spare.String(), "")()
	restart(h.t, spare)
	h.wait(h.upTo(2000, 6000))
}

// pause often lasts longer than a session: what wakes up is a zombie.
func (h *faults) pause(i *instance) {
	d := h.upTo(100, 11000)
	defer h.fault("pause", i.String(), "for %s", d)()
	i.signal(syscall.SIGSTOP)
	h.wait(d)
	i.signal(syscall.SIGCONT)
}

// cut breaks links of an instance, in the same way.
func (h *faults) cut(which, target string, links ...*link) {
	c := cut(1 + h.rng.IntN(int(cuts)-1))
	d := h.upTo(100, 11000)
	defer h.fault("link "+which, target, "%s for %s", c, d)()
	for _, l := range links {
		l.become(c)
	}
	h.wait(d)
	for _, l := range links {
		l.become(whole)
	}
}

// empty takes the state directory away: a new disk.
func (h *faults) empty(i *instance) {
	defer h.fault("disk lost", i.String(), "")()
	i.end(syscall.SIGKILL)
	h.must(os.RemoveAll(i.state()))
	restart(h.t, i)
}

// recall brings an old state directory back: a disk restored from a backup.
func (h *faults) recall(i *instance) {
	defer h.fault("disk from a backup", i.String(), "")()
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

func restart(t *testing.T, i *instance) {
	t.Helper()
	if i.died() {
		i.end(syscall.SIGKILL)
	}
	if err := i.start(); err != nil {
		t.Errorf("%s: %v", i, err)
	}
}
