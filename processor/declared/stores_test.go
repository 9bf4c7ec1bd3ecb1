package declared

import (
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TestStoreInMemoryAndPartitions: a derived table is kept in memory, and groups have the partitions that are asked for.
func TestStoreInMemoryAndPartitions(t *testing.T) {
	t.Parallel()
	source := Source{Layout: expr.Layout{Format: expr.CSV, KeyFormat: serde.FormatString, Columns: []expr.Column{
		{Name: "carrier", Type: expr.String}, {Name: "delay", Type: expr.Int},
	}}}
	by, where := expr.Source{Text: "carrier"}, expr.Source{Text: "delay > 1"}
	topology, err := Build(Topology{Relations: []Relation{
		{Name: "rows", Kind: Table, Topic: "rows", Source: source},
		{Name: "late", Kind: Table, From: "rows", Where: &where, Store: StoreOptions{InMemory: true}},
		{Name: "flights", Kind: Stream, Topic: "flights", Source: source},
		{
			Name: "counts", Kind: Table, From: "flights", Store: StoreOptions{InMemory: true},
			Aggregate: &Aggregate{By: &by, Partitions: 3, Columns: []AggregateColumn{{Name: "n", Function: Count}}},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := built.Plan(map[string]int32{"rows": 1, "flights": 1})
	if err != nil {
		t.Fatal(err)
	}
	if r := plan.Repartitions; len(r) != 1 || r[0].Partitions != 3 {
		t.Errorf("repartition topics %+v, want one of 3 partitions", r)
	}
	for _, sub := range built.Description().Subtopologies {
		for _, st := range sub.Stores {
			if want := st.Name != "rows"; st.InMemory != want {
				t.Errorf("store %s: in memory %v, want %v", st.Name, st.InMemory, want)
			}
		}
	}
	d := streamstest.NewT(t, topology, streamstest.Config{})
	for _, topic := range []string{"rows", "flights"} {
		in := streamstest.NewInput(d, topic, serde.String(), serde.String())
		in.Pipe("1", "UA,3", 1)
		in.Pipe("2", "UA,1", 2)
	}
	late := streamstest.NewKeyValue(d, "late", serde.String(), serde.String())
	if n := len(late.Rows()); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.String())
	if v, _ := counts.Get("UA"); v != `{"n":2}` {
		t.Error(v)
	}
	d.Restart()
	if v, _ := counts.Get("UA"); v != `{"n":2}` {
		t.Error("after a restart", v)
	}
}

// TestJoinsOneAfterTheOther: the second join is on a column of the first.
func TestJoinsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	source := Source{Layout: expr.Layout{Format: expr.JSONObject, KeyFormat: serde.FormatString, Columns: []expr.Column{
		{Name: "name", Type: expr.String}, {Name: "next", Type: expr.String, Optional: true},
	}}}
	of := func(text string) *expr.Source { return &expr.Source{Text: text} }
	for name, second := range map[string]JoinKind{"inner": Inner, "left": Left} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology, err := Build(Topology{Relations: []Relation{
				{Name: "s", Kind: Stream, Topic: "s", Source: source},
				{Name: "p", Kind: Table, Topic: "p", Source: source},
				{Name: "q", Kind: Table, Topic: "q", Source: source},
				{
					Name: "out", Kind: Stream, From: "s", Sink: &Sink{Topic: "out"},
					Joins:  []Join{{With: "p", On: of("next")}, {With: "q", Kind: second, On: of("p.next")}},
					Select: []Column{{Name: "a", Value: *of("name")}, {Name: "b", Value: *of("p.name")}, {Name: "c", Value: *of("q.name")}},
				},
			}})
			if err != nil {
				t.Fatal(err)
			}
			d := streamstest.NewT(t, topology, streamstest.Config{})
			pipe := func(topic, key, value string) {
				streamstest.NewInput(d, topic, serde.String(), serde.String()).Pipe(key, value, 1)
			}
			pipe("p", "1", `{"name":"P1","next":"x"}`)
			pipe("p", "2", `{"name":"P2","next":"y"}`)
			pipe("q", "x", `{"name":"Q"}`)
			pipe("s", "k", `{"name":"S","next":"1"}`)
			pipe("s", "k", `{"name":"T","next":"2"}`) // has no partner in the second join
			want := []string{`x={"a":"S","b":"P1","c":"Q"}@1`}
			if second == Left {
				want = append(want, `y={"a":"T","b":"P2"}@1`)
			}
			if have := streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings(); !slices.Equal(have, want) {
				t.Errorf("%q, want %q", have, want)
			}
		})
	}
}

// TestResultsAreKeptLikeStates: what windows answer with is kept in windows of the same size, and as long, as what it is made of.
func TestResultsAreKeptLikeStates(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Window{
		"tumbling": {Tumbling: time.Minute, Grace: time.Second}, "hopping": {Hopping: time.Minute, Advance: time.Second},
		"sliding": {Sliding: time.Minute, Grace: time.Second}, "session": {Session: time.Minute, Grace: time.Second},
	} {
		for _, onClose := range []bool{false, true} {
			for _, retention := range []time.Duration{0, time.Hour} {
				out := agg(Aggregate{By: ref("carrier"), Window: w, OnClose: onClose}, everyFunction()...)
				out.Store.Retention = retention
				topology, err := Build(Topology{Relations: []Relation{stream("flights", "in"), out}})
				if err != nil {
					t.Fatal(err)
				}
				built, err := topology.Build("a")
				if err != nil {
					t.Fatal(err)
				}
				specs := make(map[store.Name]store.Spec)
				for _, sub := range built.Description().Subtopologies {
					for _, spec := range built.StoreSpecs(sub.ID) {
						specs[spec.Name] = spec
					}
				}
				states, results := specs["out-state"], specs["out"]
				if states.Retention == 0 || results.Kind != states.Kind || results.WindowSize != states.WindowSize || results.Retention != states.Retention {
					t.Errorf("%s, on close %t: results %+v, states %+v", name, onClose, results, states)
				}
			}
		}
	}
}
