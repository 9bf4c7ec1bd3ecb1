package streamstest_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TestFailure: a record that nobody takes ends the application with everything before it committed and nothing of it (PL-13).
func TestFailure(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{0, streamstest.Never} {
		d := streamstest.NewT(t, sum(true), streamstest.Config{CommitInterval: interval})
		in := streamstest.NewInput(d, "in", serde.String(), serde.String())
		out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
		sums := streamstest.NewKeyValue(d, "sums", serde.String(), serde.String())
		in.Pipe("A", "1", 1)
		in.Pipe("B", "2", 2)
		err := d.Try(func() {
			in.Pipe("A", "x", 3)
			t.Error("a failure went on")
		})
		e, ok := errors.AsType[*processor.TaskError](err)
		if !ok || e.Record == nil || e.Record.Offset != 2 || e.Task != (store.TaskID{}) || !strings.Contains(e.Error(), "deserialization.exception.handler") {
			t.Fatalf("%v: %v", interval, err)
		}
		if _, ok := errors.AsType[*processor.DeserializationError](err); !ok {
			t.Errorf("the cause is lost: %v", err)
		}
		if !errors.Is(d.Ended(), e) {
			t.Errorf("ended by %v", d.Ended())
		}
		want(t, "committed", out.ReadStrings(), []string{"A=1 (old )@1", "B=2 (old )@2"})
		if v, ok := sums.Get("A"); v != "1" || !ok {
			t.Errorf("A: %q, %t", v, ok)
		}
		if at := d.Committed()[store.TopicPartition{Topic: "in"}]; at != 2 {
			t.Errorf("committed offset %d, want that of the record, 2", at)
		}
		if err := d.Try(func() { in.Pipe("A", "1", 4) }); !errors.Is(err, e) {
			t.Errorf("an application that has ended goes on: %v", err)
		}
		// The record is still there, as it is for the next instance.
		if err := d.Try(d.Restart); err == nil || d.Ended() == nil {
			t.Errorf("restart: %v", err)
		}
	}
}

// TestRollback: what a failed record has forwarded and put, in whatever task, was never there. A failure that passes is gone after a restart.
func TestRollback(t *testing.T) {
	t.Parallel()
	fail := true
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("count", supply(count("counts")), "in").
		AddStateStore(store.Spec{Name: "counts", Kind: store.KindKeyValue}, "count").
		AddSink("first", processor.SinkOptions{}, "first", "count").
		AddProcessor("fails", supply(node{process: func(_ *processor.Context, r *processor.Record) error {
			if fail && string(r.Key) == "bad" {
				panic("bad")
			}
			return nil
		}}), "count")
	d := streamstest.NewT(t, topology, streamstest.Config{Partitions: map[string]int32{"in": 2}, CommitInterval: streamstest.Never})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	first := streamstest.NewOutput(d, "first", serde.String(), serde.Int64())
	in.To(1).Pipe("good", "", 1)
	in.To(0).Pipe("other", "", 2)
	err := d.Try(func() { in.To(1).Pipe("bad", "", 3) })
	if e, ok := errors.AsType[*processor.PanicError](err); !ok || e.Value != "bad" {
		t.Fatalf("failure: %v", err)
	}
	want(t, "committed", first.ReadStrings(), []string{"other=1@2", "good=1@1"})
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	if len(counts.Rows()) != 2 || len(counts.Uncommitted().Rows()) != 2 {
		t.Errorf("rows %v", counts.Uncommitted().Rows())
	}
	fail = false
	d.Restart()
	d.Commit()
	want(t, "after the restart", first.ReadStrings(), []string{"bad=1@3"})
	if d.Ended() != nil {
		t.Error(d.Ended())
	}
}

// TestPunctuationFails: no record is to blame, so everything since the last commit is undone.
func TestPunctuationFails(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{init: func(ctx *processor.Context) error {
			_, err := ctx.Schedule(time.Second, processor.WallClockTime, func(int64) error { return errors.New("no") })
			return err
		}}), "in").AddSink("out", processor.SinkOptions{}, "out", "p")
	d := streamstest.NewT(t, topology, streamstest.Config{CommitInterval: streamstest.Never})
	streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("a", "b", 1)
	err := d.Try(func() { d.AdvanceWallClock(time.Second) })
	if e, ok := errors.AsType[*processor.TaskError](err); !ok || e.Record != nil {
		t.Fatalf("%v", err)
	}
	if n := streamstest.NewOutput(d, "out", serde.String(), serde.String()).Len(); n != 0 || d.Commits() != 0 {
		t.Errorf("%d records, %d commits", n, d.Commits())
	}
}

// TestHandlers: dropped and dead-lettered records are counted by reason, and the letters say where they came from (KIP-1034).
func TestHandlers(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, sum(false), streamstest.Config{DeserializationHandler: processor.DeadLetter, ProcessingHandler: processor.Continue})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	in.Pipe("A", "1", 1)
	in.PipeRecord(streamstest.Record[string, string]{Key: "A", Value: "x", Timestamp: 2, Headers: []processor.Header{{Key: "h", Value: []byte("v")}}})
	in.PipeRecord(streamstest.Record[string, string]{NullKey: true, Value: "3", Timestamp: 3}) // the store takes no null key
	in.Pipe("A", "20", 4)
	if have := d.Dropped(); len(have) != 2 || have["no number"] != 1 || have["processing error"] != 1 {
		t.Errorf("dropped %v", have)
	}
	if infos := d.DroppedRecords(); len(infos) != 2 || !infos[0].DeadLettered || infos[0].Record.Offset != 1 || infos[1].DeadLettered {
		t.Errorf("dropped %+v", infos)
	}
	letters := d.DeadLetters()
	if len(letters) != 1 || letters[0].String() != "A=x@2" {
		t.Fatalf("dead letters %v", letters)
	}
	for key, value := range map[string]string{"h": "v", "__streams.errors.exception": "no number", "__streams.errors.offset": "1", "__streams.errors.node": "sum"} {
		if v, ok := letters[0].Header(key); string(v) != value || !ok {
			t.Errorf("header %s: %q, %t", key, v, ok)
		}
	}
	want(t, "out", streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings(), []string{"A=1 (old )@1", "A=21 (old 1)@4"})
}

// TestTry returns what is wrong with the test's own doing, too, and lets a panic of the test through.
func TestTry(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, sum(false), streamstest.Config{})
	for name, f := range map[string]func(){
		"input":  func() { streamstest.NewInput(d, "nowhere", serde.String(), serde.String()) },
		"output": func() { streamstest.NewOutput(d, "nowhere", serde.String(), serde.String()) },
		"store":  func() { streamstest.NewKeyValue(d, "nothing", serde.String(), serde.String()) },
		"kind":   func() { streamstest.NewWindow(d, "sums", serde.String(), serde.String()).Rows() },
		"serde":  func() { streamstest.NewInput(d, "in", serde.Serde[string]{}, serde.String()) },
		"task":   func() { d.StreamTime(store.TaskID{Subtopology: 7}) },
		"decoded": func() {
			streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("long enough", "1", 1)
			streamstest.NewOutput(d, "out", serde.Int64(), serde.String()).Read()
		},
	} {
		if err := d.Try(f); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	defer func() {
		if v := recover(); v != "own" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = d.Try(func() { panic("own") })
}

// TestNewErrors are those of the configuration and of the topology.
func TestNewErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		topology *processor.Topology
		cfg      streamstest.Config
	}{
		"guarantee":  {sum(false), streamstest.Config{Guarantee: "at_most_once"}},
		"partitions": {sum(false), streamstest.Config{Partitions: map[string]int32{"in": -1}}},
		"interval":   {sum(false), streamstest.Config{CommitInterval: -1}},
		"topology":   {processor.NewTopology(), streamstest.Config{}},
		"init": {processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
			AddProcessor("p", supply(node{init: func(*processor.Context) error { return errors.New("no") }}), "in"), streamstest.Config{}},
	} {
		if _, err := streamstest.New(t.Context(), tc.topology, tc.cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
