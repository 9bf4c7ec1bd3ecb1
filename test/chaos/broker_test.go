//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// ofNodes are the faults of a cluster's nodes. One node at a time is away, and instances have their faults meanwhile: the next
// one waits until every partition is in sync, for the last replica with an acknowledged record must not go. (Its disk would
// still have the record, but nobody could read it.)
func (h *faults) ofNodes() []fault {
	return []fault{
		{20, func(*instance) {
			h.node("broker kill", "", func(b *kafkatest.Broker) error {
				b.Kill()
				return b.Restart(h.ctx)
			})
		}},
		{8, func(*instance) {
			h.node("broker restart", "", func(b *kafkatest.Broker) error {
				b.Stop()
				return b.Restart(h.ctx)
			})
		}},
		{14, func(*instance) { // often longer than its session: what wakes up has been replaced, and does not know it
			d := h.upTo(500, 12000)
			h.node("broker pause", "for "+d.String(), func(b *kafkatest.Broker) error {
				if err := b.Pause(); err != nil {
					return err
				}
				h.wait(d)
				return b.Resume()
			})
		}},
		{12, func(i *instance) {
			n := h.rng.IntN(len(i.links))
			h.cut("to one broker", fmt.Sprintf("%s, node %d", i, h.cluster.Nodes()[n].ID()), i.links[n])
		}},
	}
}

// node has something happen to one of the nodes, which goes on when it returns.
func (h *faults) node(kind, detail string, do func(b *kafkatest.Broker) error) {
	h.t.Helper()
	b := h.cluster.Nodes()[h.rng.IntN(*nodes)]
	h.inSync()
	target := fmt.Sprintf("node %d", b.ID())
	ctx, cancel := context.WithTimeout(h.ctx, 5*time.Second)
	defer cancel()
	if leader, err := h.cluster.Controller(ctx); err == nil && leader == b.ID() {
		target += ", the controller"
	}
	mended := h.fault(kind, target, "%s", detail)
	h.aside.Go(func() {
		if err := do(b); err != nil {
			h.t.Errorf("%s of %s: %v", kind, target, err)
		}
		mended()
	})
}

// inSync waits until the node that was away is back and has caught up.
func (h *faults) inSync() {
	h.t.Helper()
	h.aside.Wait()
	ctx, cancel := context.WithTimeout(h.ctx, 2*time.Minute)
	defer cancel()
	began := time.Now()
	err := h.cluster.InSync(ctx)
	void(h.t, h.cluster)
	h.must(err)
	h.t.Logf("%s %8s: all brokers in sync after %s", time.Now().Format("15:04:05.000"), time.Since(h.begin).Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))
}

// ofBroker are the faults of a single broker, which at times leave a transaction without markers for good: see void.
func (h *faults) ofBroker() []fault {
	broker := h.cluster.Nodes()[0]
	return []fault{
		{4, func(*instance) {
			defer h.fault("broker kill", "broker", "")()
			broker.Kill()
			broker.MustRestart(h.t)
			void(h.t, h.cluster)
		}},
		{2, func(*instance) {
			d := h.upTo(500, 8000)
			defer h.fault("broker pause", "broker", "for %s", d)()
			h.must(broker.Pause())
			h.wait(d)
			h.must(broker.Resume())
			h.wait(time.Second) // its controller looks around
			void(h.t, h.cluster)
		}},
	}
}

// void ends a run in which a broker has broken its own promise: a coordinator that decides the end of a transaction while its
// partitions have no leader takes them for deleted and never writes the markers (seen with Kafka 4.4.0). The transaction then
// hangs in its partitions for good, and nothing that is built on it can go on. It happens to a single node after a kill between
// the decision and the markers, and after a pause that is longer than its session at its own controller.
func void(t *testing.T, cluster *kafkatest.Cluster) {
	t.Helper()
	const skipped = "these partitions are likely deleted already and hence can be skipped"
	for _, b := range cluster.Nodes() {
		if strings.Contains(b.LogTail(8<<20), skipped) {
			t.Skipf("node %d has dropped the markers of a decided transaction: this run proves nothing from here on", b.ID())
		}
	}
}
