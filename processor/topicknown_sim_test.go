package processor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/topics"
)

// TestSimTopicKnownLater: a broker that does not know yet of a topic denies that it exists, or has no leader to name, and a start asks
// again; for what is missing it does not ask for long.
func TestSimTopicKnownLater(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		f.produce(tr, rng, 50, 10)
		f.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Metadata}, Topic: testInput, Count: 1 + rng.IntN(4),
			Err: pick(rng, []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable}),
		})
		in := f.start("a")
		in.waitRunning()
		f.waitCaughtUp(time.Minute)
		f.check(tr, in)
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: testInput, Err: kerr.UnknownTopicOrPartition, Count: -1})
		begun := time.Now()
		again := f.start("a")
		<-again.done
		if took := time.Since(begun); !is[*topics.MissingError](again.err) || took > 10*time.Second {
			t.Errorf("after %s: %v", took, again.err)
		}
	})
}
