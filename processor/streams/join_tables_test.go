package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// globalJoins: streams meet a global table by a key that they have in their values; nothing is repartitioned.
func globalJoins() []vector {
	global := func(s scope) (*streams.Stream[string, string], *streams.GlobalTable[string, string]) {
		return s.texts("left"), streams.GlobalTableFrom(s.Builder, s.of("right"), serde.String(), serde.String(), s.kept("everywhere"))
	}
	return tabled([]vector{
		{name: "global inner", build: func(s scope) {
			l, g := global(s)
			streams.JoinGlobal(l, g, foreignKey, plus).To(s.of("out"))
		}},
		{name: "global left", build: func(s scope) {
			l, g := global(s)
			streams.LeftJoinGlobal(l, g, foreignKey, leftPlus).To(s.of("out"))
		}},
	})
}

func TestJoinGlobal(t *testing.T) {
	t.Parallel()
	driveAll(t, globalJoins())
}

// joinsAsOf: a versioned table is joined as it was at the time of the record, and with a grace records wait for what belongs to their
// time (KIP-923).
func joinsAsOf() []vector {
	build := func(opts ...streams.Option) func(s scope) {
		return func(s scope) {
			r := s.table("right", "versions", streams.History(100*time.Millisecond))
			streams.LeftJoinTable(s.texts("left"), r, leftPlus, append(opts, streams.Named(s.of("as-of")))...).To(s.of("out"))
		}
	}
	return tabled([]vector{
		{name: "as of: at once", build: build()},
		{name: "as of: with grace", build: build(streams.JoinGrace(10 * time.Millisecond))},
	})
}

func TestJoinTableAsOf(t *testing.T) {
	t.Parallel()
	driveAll(t, joinsAsOf())
	grace := func(history ...streams.Option) func(b *streams.Builder) {
		return func(b *streams.Builder) {
			r := scope{Builder: b}.table("right", "", history...)
			streams.LeftJoinTable(texts(b, "left"), r, leftPlus, streams.JoinGrace(101*time.Millisecond)).To("out")
		}
	}
	for want, build := range map[string]func(b *streams.Builder){
		"beyond the table's history of 100ms": grace(streams.History(100 * time.Millisecond)),
		"needs a versioned table":             grace(),
	} {
		b := streams.NewBuilder()
		build(b)
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// tablesOutOfOrder: what came late into a versioned table changes no join (KIP-914). In tables that are not versioned the last record of a
// key counts, however old, as upstream.
func tablesOutOfOrder() []vector {
	return tabled([]vector{
		{name: "versioned tables out of order", build: func(s scope) {
			l, r := s.tables(streams.History(time.Hour))
			streams.ToStream(streams.LeftJoinTables(l, r, leftPlus)).To(s.of("out"))
		}},
		{name: "tables out of order", build: func(s scope) {
			l, r := s.tables()
			streams.ToStream(streams.JoinTables(l, r, plus)).To(s.of("out"))
		}},
	})
}

func TestTablesOutOfOrder(t *testing.T) {
	t.Parallel()
	driveAll(t, tablesOutOfOrder())
}

// derivedTables: filters tell no tombstones of what was never there where old values are known, and views need no store.
func derivedTables() []vector {
	short := func(_, v string) bool { return len(v) < 3 }
	loud := func(_, v string) string { return v + "!" }
	of := func(name string, table func(s scope) *streams.Table[string, string], rows map[string][]string, want map[int][]string) vector {
		v := vector{name: name, build: func(s scope) { streams.ToStream(table(s)).To(s.of("out")) }, rows: rows}
		for i, in := range []string{"L k long 1", "L k A 2", "L k long 3", "L k - 4", "L k B 5"} {
			v.steps = append(v.steps, step{in, want[i]})
		}
		return v
	}
	return []vector{
		of("of a table without a store", func(s scope) *streams.Table[string, string] {
			return s.table("left", "").Filter(short)
		}, nil, map[int][]string{0: {"k=-@1"}, 1: {"k=A@2"}, 2: {"k=-@3"}, 3: {"k=-@4"}, 4: {"k=B@5"}}),
		of("of a table with a store", func(s scope) *streams.Table[string, string] {
			return s.table("left", "lefts").Filter(short)
		}, map[string][]string{"lefts": {"k=B@5"}}, map[int][]string{1: {"k=A@2"}, 2: {"k=-@3"}, 4: {"k=B@5"}}),
		of("with a store", func(s scope) *streams.Table[string, string] {
			few := s.table("left", "lefts").FilterNot(func(k, v string) bool { return !short(k, v) }, streams.As(s.kept("short")))
			return streams.MapTableValues(few, loud, streams.As(s.kept("loud")))
		}, map[string][]string{"lefts": {"k=B@5"}, "short": {"k=B@5"}, "loud": {"k=B!@5"}}, map[int][]string{1: {"k=A!@2"}, 2: {"k=-@3"}, 4: {"k=B!@5"}}),
	}
}

func TestDerivedTables(t *testing.T) {
	t.Parallel()
	driveAll(t, derivedTables())
}

// TestReuseSourceTopic: a source table is restored from its topic and has no changelog; what reads it in a join neither.
func TestReuseSourceTopic(t *testing.T) {
	t.Parallel()
	d := vector{build: func(s scope) {
		s.ReuseSourceTopics()
		streams.JoinTable(s.texts("left"), s.table("right", ""), plus).To(s.of("out"))
	}, steps: []step{
		{"R k a 1", nil},
		{"L k A 2", []string{"k=A+a@2"}},
		{"restart", nil},
		{"L k B 3", []string{"k=B+a@3"}},
		{"R k - 4", nil},
		{"restart", nil},
		{"L k C 5", nil},
	}}.drive(t, streamstest.Config{})
	if text := d.Describe(); !strings.Contains(text, "right-STATE-STORE-0000000001") {
		t.Errorf("described as\n%s", text)
	}
}

// TestCopartitioned: both topics of a join are named when they cannot meet.
func TestCopartitioned(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(b *streams.Builder){
		"streams": func(b *streams.Builder) {
			l, r := sources(b)
			streams.JoinStreams(l, r, streams.Within(time.Second), plus, streams.As("j")).To("out")
		},
		"stream with table": func(b *streams.Builder) {
			l := streams.From(b, "left", serde.String(), serde.String())
			streams.JoinTable(l, streams.TableFrom(b, "right", serde.String(), serde.String(), ""), plus).To("out")
		},
		"tables": func(b *streams.Builder) {
			l, r := tables(b)
			streams.ToStream(streams.JoinTables(l, r, plus)).To("out")
		},
	} {
		b := streams.NewBuilder()
		build(b)
		topology, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		built, err := topology.Build("app")
		if err != nil {
			t.Fatal(err)
		}
		want := "topics left (2 partitions) and right (3 partitions)"
		if _, err := built.Plan(map[string]int32{"left": 2, "right": 3}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", name, err, want)
		}
	}
}

// TestRepartitionedJoins: rekeyed sides go through topics named as upstream's, which joins of one stream share, and those get the
// partitions of what they meet.
func TestRepartitionedJoins(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	l := streams.SelectKey(streams.From(b, "left", serde.String(), serde.String()), func(_, v string) string { return v })
	r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
	streams.JoinTable(l, r, plus).To("out")
	streams.LeftJoinTable(l, r, leftPlus).To("out")
	streams.JoinTable(l, r, plus, streams.Named("named")).To("out")
	streams.JoinStreams(l, l, streams.Within(time.Second), plus, streams.Named("both"), streams.As("j")).To("out")
	streams.ToStream(streams.JoinForeign(streams.ToTable(l, streams.Named("lefts")), streams.ToTable(l), foreignKey, plus, streams.Named("fk"))).To("out")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := built.Plan(map[string]int32{"left": 4, "right": 3})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int32{}
	for _, p := range plan.Repartitions {
		have[p.Topic] = p.Partitions
	}
	if d := cmp.Diff(map[string]int32{
		"app-KSTREAM-KEY-SELECT-0000000001-repartition": 3, "app-named-repartition": 3, "app-both-left-repartition": 4,
		"app-both-right-repartition": 4, "app-lefts-repartition": 4, "app-KSTREAM-TOTABLE-0000000037-repartition": 4,
		"app-fk-subscription-registration-topic": 4, "app-fk-subscription-response-topic": 4,
	}, have); d != "" {
		t.Errorf("(-want +got)\n%s\n%s", d, built.Describe())
	}
}

// TestJoinMistakes: what cannot be joined is an error of Build.
func TestJoinMistakes(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]streams.JoinWindows{
		"ends before it begins": {Before: time.Second, After: -2 * time.Second},
		"Grace is negative":     {Grace: -1},
		"whole milliseconds":    {Before: time.Microsecond},
	} {
		b := streams.NewBuilder()
		l, r := sources(b)
		streams.JoinStreams(l, r, w, plus, streams.As("j")).To("out")
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	b := streams.NewBuilder()
	l, r := tables(b)
	streams.JoinTables(l, r, plus, streams.As("j"), streams.Values(serde.Int64()))
	streams.JoinTables(l, r, func(string, string, string) struct{} { return struct{}{} }, streams.As("k"))
	_, err := b.Build()
	for _, want := range []string{"Values is serde.Serde[int64]", "serde of values"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
