package streams_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// TestWithoutEffectIsRefused: what could never do what it says is an error of Build, and not silence.
func TestWithoutEffectIsRefused(t *testing.T) {
	t.Parallel()
	table := func(b *streams.Builder, opts ...streams.Option) *streams.Table[string, string] {
		return streams.TableFrom(b, "table", serde.String(), serde.String(), "", opts...)
	}
	history := streams.History(time.Hour)
	unlimited := func(b *streams.Builder, e streams.EmitStrategy) {
		streams.CountWindows(streams.WindowedBy(streams.GroupByKey(texts(b, "in")), windows.Unlimited{}).Emit(e), "s")
	}
	for name, c := range map[string]struct {
		build func(b *streams.Builder)
		want  string // in the error; empty: there is none
	}{
		"windows that never close": {func(b *streams.Builder) { unlimited(b, streams.OnWindowClose) }, "never close"},
		"unknown emit strategy":    {func(b *streams.Builder) { unlimited(b, 7) }, "emit strategy 7"},
		"emit on update":           {func(b *streams.Builder) { unlimited(b, streams.OnWindowUpdate) }, ""},
		"unknown bound": {func(b *streams.Builder) {
			table(b).Suppress(streams.UntilTimeLimit(time.Second, streams.Buffer{MaxRecords: 1, WhenFull: 9}), streams.Named("s"))
		}, "WhenFull is 9"},
		"history of nothing": {func(b *streams.Builder) { streams.ToStream(table(b, history)).To("out") }, "History has no effect"},
		"negative history": {func(b *streams.Builder) {
			streams.ToTable(texts(b, "in"), streams.As("s"), streams.History(-time.Hour))
		}, "History -1h"},
		"history of a view":        {func(b *streams.Builder) { table(b).Filter(func(_, _ string) bool { return true }, history) }, "name it with As"},
		"history of a joined view": {func(b *streams.Builder) { streams.JoinTables(table(b), streams.ToTable(texts(b, "in")), plus, history) }, "name it with As"},
		"history that a join needs": {func(b *streams.Builder) {
			streams.JoinTable(texts(b, "in"), table(b, history), plus, streams.JoinGrace(time.Second))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streams.NewBuilder()
			c.build(b)
			for range 2 { // building again finds the same
				_, err := b.Build()
				if c.want == "" && err != nil {
					t.Fatal(err)
				}
				if c.want == "" {
					continue
				}
				refused, ok := errors.AsType[*processor.TopologyError](err)
				if !ok || !strings.Contains(refused.Error(), c.want) || strings.Count(err.Error(), c.want) != 1 {
					t.Errorf("error %v, want one with %q", err, c.want)
				}
			}
		})
	}
}

// TestJSONNullIsNone: the null of JSON is no value and no key, as nil is where a type has one: a table deletes, aggregations drop, a sink
// writes a tombstone.
func TestJSONNullIsNone(t *testing.T) {
	t.Parallel()
	type row struct{ N int }
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		in := streams.From(b, "in", serde.String(), serde.JSON[*row]())
		in.To("out")
		streams.Count(streams.GroupByKey(in), "counts")
		streams.ToStream(streams.ToTable(in, streams.As("rows"), streams.CachingDisabled())).To("rows-out")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.Bytes())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.JSON[*row]())
	rows := streamstest.NewOutput(d, "rows-out", serde.String(), serde.JSON[*row]())
	in.Pipe("k", []byte(`{"N":1}`), 1)
	in.Pipe("k", []byte(`null`), 2)
	for name, records := range map[string][]streamstest.Record[string, *row]{"out": out.ReadAll(), "rows": rows.ReadAll()} {
		if len(records) != 2 || records[0].NullValue || !records[1].NullValue {
			t.Errorf("%s: %+v, want a value and a tombstone", name, records)
		}
	}
	if got := d.Dropped()["null value"]; got != 1 {
		t.Errorf("dropped %v, want one without a value", d.Dropped())
	}
}

// TestTombstoneOfANilableType goes through selectKey as null, as upstream; for a type without a nil there is nothing to make a key of, and
// it is dropped and counted.
func TestTombstoneOfANilableType(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		in := streams.From(b, "in", serde.String(), serde.Nullable(serde.String()))
		key := func(k string, v *string) string {
			if v == nil {
				return "none-of-" + k
			}
			return *v
		}
		streams.SelectKey(in, key).To("out")
		streams.SelectKey(texts(b, "plain"), func(_, v string) string { return v }).To("out")
	})
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@1", "a@2")
	pipe(streamstest.NewInput(d, "plain", serde.String(), serde.String()), "a@3")
	want(t, "out", out.ReadStrings(), "x=x@1", "none-of-a=null@2")
	if got := d.Dropped()["null value"]; got != 1 {
		t.Errorf("dropped %v", d.Dropped())
	}
}

// TestHandlerGoesOnAtTheNode: a handler that goes on takes the record from the operator that failed, and from nobody beside it or before it
// (KIP-1033).
func TestHandlerGoesOnAtTheNode(t *testing.T) {
	t.Parallel()
	for _, action := range []processor.HandlerAction{processor.Continue, processor.DeadLetter} {
		d := drive(t, streamstest.Config{ProcessingHandler: action}, func(b *streams.Builder) {
			in := texts(b, "in")
			streams.Process(in, func() streams.Processor[string, string, string, string] {
				return &refusing{word: "bad", err: errors.New("bad")}
			}).To("passed")
			in.To("out")
			streams.Count(streams.GroupByKey(in), "counts")
		})
		in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.String())
		pipe(in, "a=good@1", "a=bad@2")
		want(t, "beside it", out(), "a=good@1", "a=bad@2")
		want(t, "behind it", streamstest.NewOutput(d, "passed", serde.String(), serde.String()).ReadStrings(), "a=good@1")
		dropped := 0
		for _, n := range d.Dropped() {
			dropped += n
		}
		if letters := len(d.DeadLetters()); dropped != 1 || action == processor.DeadLetter && letters != 1 {
			t.Errorf("%v: %v dropped, %d dead letters", action, d.Dropped(), letters)
		}
	}
}

// TestDeclarationOfTwoTopologies: a store that is declared once for all may be used by topologies that are built at the same time.
func TestDeclarationOfTwoTopologies(t *testing.T) {
	t.Parallel()
	counts := streams.KeyValueStore("counts", serde.String(), serde.Int64())
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 200 {
				b := streams.NewBuilder()
				for _, topic := range []string{"a", "b"} {
					streams.Process(texts(b, topic), func() streams.Processor[string, string, string, string] {
						return &refusing{}
					}, streams.Uses(counts))
				}
				topology, err := b.Build()
				if err == nil {
					_, err = topology.Build("app")
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
