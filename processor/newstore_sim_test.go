package processor

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
)

// A store that is added to an application which has read its input would lack what came before and say "not found" of it:
// by the record's own key it shares a sub-topology that has commits, behind a repartition topic that sub-topology feeds it.
func TestSimNewStoreIsRefused(t *testing.T) {
	spec := store.Spec{Name: "added", Kind: store.KindTimestampedKeyValue}
	for name, topology := range map[string]func() *Topology{
		"by the record's key": func() *Topology {
			return countTopology().
				AddProcessor("more", func() Processor { return &counter{} }, "source").
				AddStateStore(spec, "more")
		},
		"by another key": func() *Topology {
			return countTopology().
				AddProcessor("rekey", func() Processor { return &rekey{} }, "source").
				AddRepartition("by-rest", RepartitionOptions{}, "rekey").
				AddProcessor("more", func() Processor { return &counter{} }, "by-rest").
				AddStateStore(spec, "more")
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				f := newFleet(t, true, 2)
				tr := truth{}
				f.produce(tr, rng, 50, 10)
				in := f.start("a")
				in.waitRunning()
				f.waitCaughtUp(time.Minute)
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
				f.topo = topology
				changed := f.start("a")
				<-changed.done
				if lost, ok := errors.AsType[*topics.LostError](changed.err); !ok {
					t.Fatalf("have %v, want a topic that must exist", changed.err)
				} else {
					t.Log(lost)
				}
				f.topo = countTopology
				same := f.start("a")
				same.waitRunning()
				f.check(tr, same)
			})
		})
	}
}
