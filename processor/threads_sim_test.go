package processor

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// TestSimThreadsStart: an application's first transactions, in topics that its producers see for the first time, while its threads
// join one after another. Each record is counted once.
func TestSimThreadsStart(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		f.options = func(c *Config) { c.NumStreamThreads = 2 }
		f.topo = func() *Topology {
			return NewTopology().AddSource("source", SourceOptions{}, testInput).
				AddProcessor("rekey", func() Processor { return &rekey{} }, "source").
				AddRepartition("by-half", RepartitionOptions{}, "rekey").
				AddProcessor("count", func() Processor { return &counter{} }, "by-half").
				AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count")
		}
		var records []*kgo.Record
		for word := range strings.FieldsSeq("the cat and the dog and the bird") {
			records = append(records, &kgo.Record{Topic: testInput, Key: []byte(word), Value: []byte("v"), Partition: 1})
		}
		a := f.start("a")
		time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
		if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		a.waitRunning()
		time.Sleep(2 * time.Second)
		f.waitCaughtUp(time.Minute)
		time.Sleep(2 * time.Second)
		want := truth{"half-e": 3, "half-t": 1, "half-d": 3, "half-g": 1}
		logged, _ := f.replay(testApp + "-counts-changelog")
		if d := diff(logged, want); len(logged) != len(want) || d != "0 keys differ: " {
			t.Fatalf("counted %v: %s", logged, d)
		}
	})
}
