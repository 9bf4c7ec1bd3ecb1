package streamstest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// countdown writes n-1 to its own input for each n above 0.
func countdown(ctx *processor.Context, r *processor.Record) error {
	var n int
	if _, err := fmt.Sscan(string(r.Value), &n); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return ctx.Forward(processor.Record{Key: r.Key, Value: fmt.Append(nil, n-1), Timestamp: r.Timestamp + 1})
}

// TestLoop: what the topology writes to a topic that it reads comes in, in order, until nothing moves.
func TestLoop(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{process: countdown}), "in").AddSink("again", processor.SinkOptions{}, "in", "p")
	for _, guarantee := range []processor.Guarantee{processor.ExactlyOnce, processor.AtLeastOnce} {
		d := streamstest.NewT(t, topology, streamstest.Config{Guarantee: guarantee})
		streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("a", "3", 10)
		want(t, "in", streamstest.NewOutput(d, "in", serde.String(), serde.String()).ReadStrings(), []string{"a=3@10", "a=2@11", "a=1@12", "a=0@13"})
	}
	d := streamstest.NewT(t, topology, streamstest.Config{CommitInterval: streamstest.Never})
	in := streamstest.NewOutput(d, "in", serde.String(), serde.String())
	streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("a", "3", 10)
	want(t, "before the commit", in.ReadStrings(), []string{"a=3@10"})
	d.Commit()
	want(t, "after it", in.ReadStrings(), []string{"a=2@11", "a=1@12", "a=0@13"})
}

// TestNoRest: a topology that feeds itself without an end is told of, rather than to hang.
func TestNoRest(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").AddSink("again", processor.SinkOptions{}, "in", "in")
	d := streamstest.NewT(t, topology, streamstest.Config{Guarantee: processor.AtLeastOnce, CommitInterval: streamstest.Never})
	err := d.Try(func() { streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("a", "", 1) })
	if err == nil || !strings.Contains(err.Error(), "feeds itself") {
		t.Errorf("%v", err)
	}
}

// TestPartitioners: those of sinks are asked, with the partitions that there are.
func TestPartitioners(t *testing.T) {
	t.Parallel()
	last := func(_ string, _ *processor.Record, partitions int32) int32 { return partitions - 1 }
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddSink("out", processor.SinkOptions{Partitioner: last}, "out", "in").
		AddRepartition("parts", processor.RepartitionOptions{Partitions: 4, Partitioner: last}, "in").
		AddSink("end", processor.SinkOptions{}, "end", "parts")
	d := streamstest.NewT(t, topology, streamstest.Config{Partitions: map[string]int32{"out": 3}})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	for i := range 5 {
		in.Pipe(fmt.Sprint(i), "", int64(i))
	}
	for topic, partition := range map[string]int32{"out": 2, "streamstest-parts-repartition": 3, "end": 0} {
		records := streamstest.NewOutput(d, topic, serde.String(), serde.String()).ReadAll()
		if len(records) != 5 {
			t.Errorf("%s: %d records", topic, len(records))
		}
		for i, r := range records {
			if r.Partition != partition || r.Offset != int64(i) {
				t.Errorf("%s: %s in partition %d at %d", topic, r, r.Partition, r.Offset)
			}
		}
	}
}

// TestDynamicSink: a topic that a record names has the partitions that the configuration says, and may be one that the topology reads.
func TestDynamicSink(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in", "back").
		AddDynamicSink("out", processor.SinkOptions{}, func(r *processor.Record, m processor.RecordMetadata) string {
			if m.Topic == "back" {
				return "end"
			}
			return string(r.Value)
		}, "in")
	d := streamstest.NewT(t, topology, streamstest.Config{
		Partitions: map[string]int32{"odd": 2}, ProcessingHandler: processor.Continue,
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	for i, topic := range []string{"odd", "back", "?", "odd"} {
		in.Pipe(fmt.Sprint(i), topic, int64(i))
	}
	for topic, records := range map[string][]string{"odd": {"0=odd@0", "3=odd@3"}, "end": {"1=back@1"}, "never": nil} {
		want(t, topic, streamstest.NewOutput(d, topic, serde.String(), serde.String()).ReadStrings(), records)
	}
	if n := d.Dropped()["processing error"]; n != 1 {
		t.Errorf("%d records for topics with no good name", n)
	}
}

// TestRealTimeStandsStill: nothing waits and nothing is left running. A bubble would say so.
func TestRealTimeStandsStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		d := streamstest.NewT(t, words(), streamstest.Config{CommitInterval: time.Second, Partitions: map[string]int32{"lines": 2}})
		in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
		for range 100 {
			in.PipeValue("a b c")
			d.AdvanceWallClock(time.Minute)
		}
		d.Restart()
		d.Commit()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

func BenchmarkPipe(b *testing.B) {
	d, err := streamstest.New(b.Context(), words(), streamstest.Config{})
	if err != nil {
		b.Fatal(err)
	}
	in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		in.Pipe("", "word", int64(i))
	}
	if err := d.Close(); err != nil {
		b.Error(err)
	}
}
