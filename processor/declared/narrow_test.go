package declared

import (
	"testing"

	"github.com/statemesh/statemesh/processor/streamstest"
)

// TestOnlyWhatIsLookedAt: columns of either side that nobody asks for are not read.
func TestOnlyWhatIsLookedAt(t *testing.T) {
	t.Parallel()
	out := joined(Inner, "people", nil)
	again := Relation{
		Name: "tables", Kind: Table, From: "people", Joins: []Join{{With: "bosses", As: "b"}}, Select: sel("n", "name", "b", "b.name"), Sink: sink("tables"),
	}
	r := start(t, streamstest.Config{}, stream("flights", "in"), table("people", "people"), table("bosses", "bosses"), out, again)
	r.pipe("people", "a", `{"name":"Ann","boss":7}`, 1)
	r.pipe("bosses", "a", `{"name":"Bob","boss":[]}`, 1)
	r.pipe("in", "a", "JFK,x,soon", 2)
	r.wrote("out", `a={"origin":"JFK","name":"Ann"}@2`)
	r.wrote("tables", `a={"n":"Ann","b":"Bob"}@1`)
}

// TestWhatIsKeptIsWhole: what is in a store or a topic before a join has all columns, for a later version of the declaration.
func TestWhatIsKeptIsWhole(t *testing.T) {
	t.Parallel()
	keyed := Relation{Name: "keyed", Kind: Stream, From: "flights", Key: ref("carrier")}
	others := stream("others", "others")
	versioned := table("versioned", "versioned")
	versioned.Source.History = second
	for name, tt := range map[string]struct {
		from string
		join Join
		want int
	}{
		"stream":            {"flights", Join{With: "others", After: second}, 3},
		"table by another":  {"flights", Join{With: "people", On: ref("carrier")}, 3},
		"table with grace":  {"flights", Join{With: "versioned", Grace: second}, 3},
		"keys have changed": {"keyed", Join{With: "people"}, 3},
		"table":             {"flights", Join{With: "people"}, 1},
	} {
		tt.join.As = "o"
		out := Relation{Name: "out", Kind: Stream, From: tt.from, Joins: []Join{tt.join}, Select: sel("origin", "origin")}
		m := understand(Topology{Relations: []Relation{stream("flights", "in"), keyed, others, table("people", "people"), versioned, out}})
		if len(m.errs) > 0 {
			t.Fatal(m.errs)
		}
		if n := len(m.byName["out"].first.left.fields); n != tt.want {
			t.Errorf("%s: %d columns before the join, want %d", name, n, tt.want)
		}
	}
}

// TestCellsOfResults: a group that stores what it answers with is decoded only where something is added to it, and says when it cannot be.
func TestCellsOfResults(t *testing.T) {
	t.Parallel()
	m := understand(Topology{Relations: []Relation{stream("flights", "in"), agg(Aggregate{By: ref("carrier")})}})
	g := m.byName["out"].groups
	s := g.states()
	c, err := s.Decode([]byte(`{"n":2,"total":5}`))
	if err != nil || string(g.result(c)) != `{"n":2,"total":5}` || c.state != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	input := appendValue([]byte{0}, int64(4))
	if b, err := s.Append(nil, g.add(nil, input, c)); err != nil || string(b) != `{"n":3,"total":9}` || string(g.result(c)) != string(b) {
		t.Errorf("%s, %v", b, err)
	}
	if c, err = s.Decode([]byte("7")); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Append(nil, g.add(nil, input, c)); err == nil {
		t.Errorf("of what is no result: %s", b)
	}
	if b, err := s.Append(nil, g.merge(nil, c, g.initial())); err == nil {
		t.Errorf("of what is no result, merged: %s", b)
	}
}
