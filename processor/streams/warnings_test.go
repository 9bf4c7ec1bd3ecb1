package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TestWarnings: whatever is named by position, and outlives a restart under that name, is warned of; nothing is where all have names.
func TestWarnings(t *testing.T) {
	t.Parallel()
	rekeyed := func(b *streams.Builder, topic string) *streams.Stream[string, string] {
		return streams.SelectKey(texts(b, topic), func(k, _ string) string { return k })
	}
	table := func(b *streams.Builder, name store.Name) *streams.Table[string, string] {
		return streams.TableFrom(b, "table", serde.String(), serde.String(), name)
	}
	for name, c := range map[string]struct {
		build func(b *streams.Builder)
		want  []string // of each warning, its beginning
	}{
		"join of streams": {
			func(b *streams.Builder) {
				streams.JoinStreams(rekeyed(b, "l"), rekeyed(b, "r"), streams.Within(time.Second), plus, streams.As("join"))
			},
			[]string{"KSTREAM-KEY-SELECT-0000000001: the repartition topic", "KSTREAM-KEY-SELECT-0000000003: the repartition topic"},
		},
		"join of streams with a name": {
			func(b *streams.Builder) {
				streams.JoinStreams(rekeyed(b, "l"), rekeyed(b, "r"), streams.Within(time.Second), plus, streams.As("join"), streams.Named("join"))
			},
			nil,
		},
		"join with a table": {
			func(b *streams.Builder) { streams.JoinTable(rekeyed(b, "in"), table(b, ""), plus) },
			[]string{"KSTREAM-KEY-SELECT-0000000001: the repartition topic", "table-STATE-STORE-0000000002: something needs the store"},
		},
		"join with a table, all with names": {
			func(b *streams.Builder) {
				streams.JoinTable(rekeyed(b, "in"), table(b, "rows"), plus, streams.Named("join"))
			},
			nil,
		},
		"buffer": {
			func(b *streams.Builder) {
				versions := streams.TableFrom(b, "table", serde.String(), serde.String(), "rows", streams.History(time.Hour))
				streams.JoinTable(texts(b, "in"), versions, plus, streams.JoinGrace(time.Second))
			},
			[]string{"KSTREAM-JOIN-0000000003-Buffer: the buffer"},
		},
		"table of a stream": {
			func(b *streams.Builder) {
				streams.JoinTables(streams.ToTable(rekeyed(b, "in")), table(b, "rows"), plus)
			},
			[]string{"KSTREAM-TOTABLE-0000000002: the repartition topic", "KSTREAM-TOTABLE-STATE-STORE-0000000003: something needs the store"},
		},
		"store that nobody needs": {
			func(b *streams.Builder) { streams.ToStream(table(b, "")).To("out") },
			nil,
		},
		"global table": {
			func(b *streams.Builder) { streams.GlobalTableFrom(b, "table", serde.String(), serde.String(), "") },
			[]string{"table-STATE-STORE-0000000000: the store of the global table"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streams.NewBuilder()
			c.build(b)
			if _, err := b.Build(); err != nil {
				t.Fatal(err)
			}
			have := b.Warnings()
			if len(have) != len(c.want) {
				t.Fatalf("warnings %q, want %q", have, c.want)
			}
			for i, w := range have {
				if !strings.HasPrefix(w.String(), c.want[i]) {
					t.Errorf("warning %q, want %q", w, c.want[i])
				}
			}
		})
	}
}

// TestAggregationsShareATopic: aggregations of one grouping that has a name share its repartition topic, whatever they make; positions are
// used up as if each had its own.
func TestAggregationsShareATopic(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		g := streams.GroupBy(texts(b, "in"), func(_, v string) string { return v }, streams.Named("by-value"))
		streams.ToStream(streams.Count(g, "counts")).To("out")
		streams.Reduce(g, "last", func(_, v string) string { return v })
		streams.CountWindows(streams.WindowedBy(g, windows.Tumbling(time.Hour, 0)), "hourly")
	})
	out := read(d, serde.Int64())
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@1", "b=x@2")
	want(t, "out", out(), "x=1@1", "x=2@2")
	if n := strings.Count(d.Describe(), "Sink: by-value-repartition-sink"); n != 1 {
		t.Errorf("%d repartition topics of one grouping\n%s", n, d.Describe())
	}
	if !strings.Contains(d.Describe(), "KSTREAM-REDUCE-0000000008") { // as upstream: after the positions of a topic, a node and a sink
		t.Errorf("positions\n%s", d.Describe())
	}
}
