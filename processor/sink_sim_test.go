package processor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSimDynamicSink: records go to the topics that they name, within the transaction; one that names none that can be written is left to
// the handler, with a reason, and the others go on, as does the sink beside it. Partitions are those of the sink's own choice, also beside a sink that leaves it to
// the key.
func TestSimDynamicSink(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 4)
		adm := kadm.NewClient(f.client)
		small := "500"
		for _, topic := range []struct {
			name   string
			config map[string]*string
		}{{"even", nil}, {"odd", nil}, {"small", map[string]*string{"max.message.bytes": &small}}} {
			if _, err := adm.CreateTopic(t.Context(), 4, 1, topic.config, topic.name); err != nil {
				t.Fatal(err)
			}
		}
		last := func(_ string, _ *Record, partitions int32) int32 { return partitions - 1 }
		f.topo = func() *Topology {
			return NewTopology().
				AddSource("source", SourceOptions{}, testInput).
				AddDynamicSink("by value", SinkOptions{Partitioner: last}, func(r *Record, _ RecordMetadata) string {
					return string(r.Value)
				}, "source").
				AddSink("fixed", SinkOptions{}, testOut, "source")
		}
		f.options = func(c *Config) { c.ProcessingHandler, c.DeadLetterTopic = DeadLetter, "dead" }
		in := f.start("disk")
		for i := range 60 {
			topic := []string{"even", "odd", "missing", "small", "no/topic", ""}[i%6]
			r := &kgo.Record{Topic: testInput, Key: fmt.Appendf(nil, "key-%d", i), Value: []byte(topic)}
			if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		f.waitCaughtUp(5 * time.Minute)
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		for topic, want := range map[string]int{"even": 10, "odd": 10, "small": 0, testOut: 60, "dead": 40} {
			got := 0
			for key, values := range f.texts(topic) {
				got += len(values)
				if (topic == "even" || topic == "odd") && !slices.Equal(values, []string{topic}) {
					t.Errorf("%s: %s is %q", topic, key, values)
				}
			}
			if got != want {
				t.Errorf("%s has %d records, want %d", topic, got, want)
			}
		}
		ends, err := adm.ListCommittedOffsets(t.Context(), "even", "odd")
		if err != nil {
			t.Fatal(err)
		}
		ends.Each(func(o kadm.ListedOffset) {
			if (o.Partition == 3) != (o.Offset > 0) {
				t.Errorf("%s-%d ends at %d: all belongs into the last partition", o.Topic, o.Partition, o.Offset)
			}
		})
	})
}

// TestSimDynamicSinkFails: without a handler that goes on, the error names the topic and the record.
func TestSimDynamicSinkFails(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = func() *Topology {
			return NewTopology().
				AddSource("source", SourceOptions{}, testInput).
				AddDynamicSink("by value", SinkOptions{}, func(r *Record, _ RecordMetadata) string { return string(r.Value) }, "source")
		}
		for _, topic := range []string{testOut, testOut, "missing"} {
			r := &kgo.Record{Topic: testInput, Key: []byte("k"), Value: []byte(topic)}
			if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		in := f.start("disk")
		<-in.done
		if e := in.err; !is[*SinkTopicError](e) || !strings.Contains(e.Error(), "sink topic missing: does not exist") || !strings.Contains(e.Error(), "in-0 offset 2") {
			t.Errorf("ended with %v", e)
		}
		if n := len(f.texts(testOut)["k"]); n != 2 {
			t.Errorf("%d records of those before it, want 2", n)
		}
	})
}
