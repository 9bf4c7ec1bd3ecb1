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

// TestJoinGlobal: streams meet a global table by a key that they have in their values; nothing is repartitioned.
func TestJoinGlobal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		left  bool
		steps []step
		drops map[string]int
	}{
		"inner": {false, []step{
			{"R a A 1", nil},
			{"L k a:x 2", []string{"k=a:x+A@2"}},
			{"L k b:x 3", nil},
			{"R a B 1", nil},
			{"restart", nil},
			{"L k a:y 4", []string{"k=a:y+B@4"}},
			{"L k none 5", nil},
			{"L k - 6", nil},
			{"L - a:z 7", []string{"=a:z+B@7"}},
			{"R a - 1", nil},
			{"R - x 1", nil},
			{"L k a:x 8", nil},
		}, map[string]int{"null key": 2, "null value": 1}},
		"left": {true, []step{
			{"R a A 1", nil},
			{"L k a:x 2", []string{"k=a:x+A@2"}},
			{"L k b:x 3", []string{"k=b:x+null@3"}},
			{"L k none 5", []string{"k=none+null@5"}},
			{"L k - 6", nil},
			{"L - none 7", []string{"=none+null@7"}},
		}, map[string]int{"null value": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
				l := streams.From(b, "left", serde.String(), serde.String())
				g := streams.GlobalTableFrom(b, "right", serde.String(), serde.String(), "everywhere")
				if tt.left {
					streams.LeftJoinGlobal(l, g, foreignKey, leftPlus).To("out")
				} else {
					streams.JoinGlobal(l, g, foreignKey, plus).To("out")
				}
			})
			b.run(tt.steps)
			b.dropped(tt.drops)
		})
	}
}

// TestJoinTableAsOf: a versioned table is joined as it was at the time of the record, and with a grace records wait for what belongs to
// their time (KIP-923).
func TestJoinTableAsOf(t *testing.T) {
	t.Parallel()
	history := streams.History(100 * time.Millisecond)
	build := func(opts ...streams.Option) func(b *streams.Builder) {
		return func(b *streams.Builder) {
			l := streams.From(b, "left", serde.String(), serde.String())
			r := streams.TableFrom(b, "right", serde.String(), serde.String(), "versions", history)
			streams.LeftJoinTable(l, r, leftPlus, opts...).To("out")
		}
	}
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		newJoinBench(t, streamstest.Config{}, build()).run([]step{
			{"R k a 10", nil},
			{"R k b 20", nil},
			{"L k A 15", []string{"k=A+a@15"}},
			{"L k B 20", []string{"k=B+b@20"}},
			{"R k - 17", nil},
			{"restart", nil},
			{"L k C 18", []string{"k=C+null@18"}},
			{"L k D 5", []string{"k=D+null@5"}},
			{"R k c 12", nil},
			{"L k E 16", []string{"k=E+c@16"}},
		})
	})
	t.Run("with grace", func(t *testing.T) {
		t.Parallel()
		b := newJoinBench(t, streamstest.Config{}, build(streams.JoinGrace(10*time.Millisecond)))
		b.run([]step{
			{"L k A 15", nil},
			{"R k a 10", nil},
			{"L k B 12", nil},
			{"R k b 12", nil},
			{"L k C 12", nil},
			{"restart", nil},
			{"L k D 22", []string{"k=B+b@12", "k=C+b@12"}},
			{"L k E 11", []string{"k=E+a@11"}},
			{"L - F 20", []string{"=F+null@20"}},
			{"L k - 23", nil},
			{"L z G 40", []string{"k=A+b@15", "k=D+b@22"}},
		})
		b.dropped(map[string]int{"null value": 1})
	})
	for want, build := range map[string]func(b *streams.Builder){
		"beyond the table's history of 100ms": build(streams.JoinGrace(101 * time.Millisecond)),
		"needs a versioned table": func(b *streams.Builder) {
			l := streams.From(b, "left", serde.String(), serde.String())
			r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
			streams.JoinTable(l, r, plus, streams.JoinGrace(time.Millisecond)).To("out")
		},
	} {
		b := streams.NewBuilder()
		build(b)
		if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestVersionedTablesOutOfOrder: what came late into a versioned table changes no join (KIP-914).
func TestVersionedTablesOutOfOrder(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		l, r := tables(b, streams.History(time.Hour))
		streams.ToStream(streams.LeftJoinTables(l, r, leftPlus)).To("out")
	})
	b.run([]step{
		{"L k A 10", []string{"k=A+null@10"}}, {"L k B 5", nil}, {"R k a 9", []string{"k=A+a@10"}}, {"R k b 8", nil}, {"R k c 11", []string{"k=A+c@11"}},
	})
	b.dropped(map[string]int{"out of order": 2})
}

// TestTablesOutOfOrder: the last record of a key counts in tables that are not versioned, however old, as upstream.
func TestTablesOutOfOrder(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		l, r := tables(b)
		streams.ToStream(streams.JoinTables(l, r, plus)).To("out")
	})
	b.run([]step{{"L k A 10", nil}, {"R k a 20", []string{"k=A+a@20"}}, {"L k B 5", []string{"k=B+a@20"}}, {"R k b 3", []string{"k=B+b@5"}}})
}

// TestDerivedTables: filters tell no tombstones of what was never there where old values are known, and views need no store.
func TestDerivedTables(t *testing.T) {
	t.Parallel()
	short := func(_, v string) bool { return len(v) < 3 }
	loud := func(_, v string) string { return v + "!" }
	for name, tt := range map[string]struct {
		table func(b *streams.Builder) *streams.Table[string, string]
		want  map[int][]string
	}{
		"of a table without a store": {func(b *streams.Builder) *streams.Table[string, string] {
			return streams.TableFrom(b, "left", serde.String(), serde.String(), "").Filter(short)
		}, map[int][]string{0: {"k=-@1"}, 1: {"k=A@2"}, 2: {"k=-@3"}, 3: {"k=-@4"}, 4: {"k=B@5"}}},
		"of a table with a store": {func(b *streams.Builder) *streams.Table[string, string] {
			return streams.TableFrom(b, "left", serde.String(), serde.String(), "lefts").Filter(short)
		}, map[int][]string{1: {"k=A@2"}, 2: {"k=-@3"}, 4: {"k=B@5"}}},
		"with a store": {func(b *streams.Builder) *streams.Table[string, string] {
			t := streams.TableFrom(b, "left", serde.String(), serde.String(), "lefts")
			return streams.MapTableValues(t.FilterNot(func(k, v string) bool { return !short(k, v) }, streams.As("short")), loud, streams.As("loud"))
		}, map[int][]string{1: {"k=A!@2"}, 2: {"k=-@3"}, 4: {"k=B!@5"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
				streams.From(b, "right", serde.String(), serde.String()).Filter(func(_, _ string) bool { return false })
				streams.ToStream(tt.table(b)).To("out")
			})
			for i, in := range []string{"L k long 1", "L k A 2", "L k long 3", "L k - 4", "L k B 5"} {
				b.run([]step{{in, tt.want[i]}})
			}
			if name == "with a store" {
				if v, ok := streamstest.NewKeyValue(b.d, "loud", serde.String(), serde.String()).Get("k"); v != "B!" || !ok {
					t.Errorf("store has %q, %t", v, ok)
				}
			}
		})
	}
}

// TestReuseSourceTopic: a source table is restored from its topic and has no changelog; what reads it in a join neither.
func TestReuseSourceTopic(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		b.ReuseSourceTopics()
		l := streams.From(b, "left", serde.String(), serde.String())
		r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
		streams.JoinTable(l, r, plus).To("out")
	})
	b.run([]step{
		{"R k a 1", nil},
		{"L k A 2", []string{"k=A+a@2"}},
		{"restart", nil},
		{"L k B 3", []string{"k=B+a@3"}},
		{"R k - 4", nil},
		{"restart", nil},
		{"L k C 5", nil},
	})
	if text := b.d.Describe(); !strings.Contains(text, "right-STATE-STORE-0000000001") {
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
