package declared

import (
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// baskets are JSON with lists, keyed by text.
var baskets = Source{Layout: expr.Layout{Format: expr.JSONObject, KeyFormat: serde.FormatString, Columns: []expr.Column{
	{Name: "who", Type: expr.String}, {Name: "items", Type: expr.JSON, Optional: true},
}}}

func lines() Relation {
	return Relation{Name: "lines", Kind: Stream, Topic: "in", Source: Source{Layout: expr.Layout{
		Format: expr.Text, KeyFormat: serde.FormatString, KeyOptional: true, Columns: []expr.Column{{Name: "line", Type: expr.String}},
	}}}
}

func each(name, list string) *Column { return &Column{Name: name, Value: src(list)} }

const words = `regex.extractAll(line, "\\S+")`

func TestEachIsARecord(t *testing.T) {
	t.Parallel()
	all := Relation{Name: "all", Kind: Stream, From: "lines", Each: each("word", words), Sink: sink("all")}
	long := Relation{
		Name: "long", Kind: Stream, From: "lines", Each: each("word", words), Where: ref("size(word) > 2"), Key: ref("word"),
		Select: sel("n", "size(word)", "of", "line"), Sink: sink("long"),
	}
	again := Relation{Name: "again", Kind: Stream, From: "all", Each: each("letter", `word.split("")`), Where: ref(`letter == "o"`), Sink: sink("again")}
	r := start(t, streamstest.Config{}, lines(), all, long, again)
	r.pipe("in", "k", "to  be or", 1)
	r.pipe("in", "k", "not two", 2)
	r.pipe("in", "k", "", 3) // has no words
	r.tombstone("in", "k", 4)
	r.wrote("all", `k={"line":"to  be or","word":"to"}@1`, `k={"line":"to  be or","word":"be"}@1`, `k={"line":"to  be or","word":"or"}@1`,
		`k={"line":"not two","word":"not"}@2`, `k={"line":"not two","word":"two"}@2`)
	r.wrote("long", `not={"n":3,"of":"not two"}@2`, `two={"n":3,"of":"not two"}@2`)
	r.wrote("again", `k={"line":"to  be or","word":"to","letter":"o"}@1`, `k={"line":"to  be or","word":"or","letter":"o"}@1`,
		`k={"line":"not two","word":"not","letter":"o"}@2`, `k={"line":"not two","word":"two","letter":"o"}@2`)
	if n := r.d.Dropped(); n["null value"] != 2 { // by all and long: a deletion has no items
		t.Error(n)
	}
}

func TestEachIsAggregated(t *testing.T) {
	t.Parallel()
	counts := Relation{Name: "counts", Kind: Table, From: "lines", Each: each("word", words), Aggregate: &Aggregate{
		By: ref("word"), Columns: []AggregateColumn{{Name: "n", Function: Count}},
	}}
	last := Relation{Name: "last", Kind: Table, From: "lines", Each: each("word", words), Key: ref("word")}
	r := start(t, streamstest.Config{}, lines(), counts, last)
	r.pipe("in", "k", "to be or not to be", 1)
	r.d.Restart()
	r.pipe("in", "k", "to do", 2)
	r.row("counts", "to", `{"n":3}`)
	r.row("counts", "not", `{"n":1}`)
	r.row("last", "to", `{"line":"to do","word":"to"}`)
	r.row("last", "be", `{"line":"to be or not to be","word":"be"}`)
}

// TestEachOfJSON: what is in a list of JSON is known when it comes. A record is taken whole or not at all.
func TestEachOfJSON(t *testing.T) {
	t.Parallel()
	out := Relation{
		Name: "out", Kind: Stream, From: "baskets", Each: each("item", "items"), Key: ref("string(item.id)"), Select: sel("who", "who", "id", "item.id"), Sink: sink("out"),
	}
	beside := Relation{Name: "beside", Kind: Stream, From: "baskets", Sink: sink("beside")}
	r := start(t, streamstest.Config{ProcessingHandler: processor.Continue}, Relation{Name: "baskets", Kind: Stream, Topic: "in", Source: baskets}, out, beside)
	for _, v := range []string{
		`{"who":"a","items":[{"id":1},{"id":"x"}]}`, `{"who":"b"}`, `{"who":"c","items":null}`, `{"who":"d","items":[]}`, `{"who":"e","items":7}`,
		`{"who":"f","items":{"id":1}}`, `{"who":"g","items":[{"id":1},{}]}`, `{"who":"h","items":[{"id":2}]}`,
	} {
		r.pipe("in", "k", v, 1)
	}
	r.wrote("out", `1={"who":"a","id":1}@1`, `x={"who":"a","id":"x"}@1`, `2={"who":"h","id":2}@1`)
	if n := r.d.Dropped(); n["wrong type"] != 2 || n["missing element"] != 1 {
		t.Error(n)
	}
	if n := streamstest.NewOutput(r.d, "beside", serde.String(), serde.String()).Len(); n != 8 {
		t.Errorf("%d records beside, want all", n)
	}
}

// TestEachIsBounded: a long record with many items does not become more than there is memory for.
func TestEachIsBounded(t *testing.T) {
	t.Parallel()
	out := Relation{Name: "out", Kind: Stream, From: "lines", Each: each("letter", `line.split("")`), Sink: sink("out")}
	r := start(t, streamstest.Config{ProcessingHandler: processor.Continue}, lines(), out)
	r.pipe("in", "k", strings.Repeat("x", 10_000), 1)
	r.pipe("in", "k", "ab", 2)
	r.wrote("out", `k={"line":"ab","letter":"a"}@2`, `k={"line":"ab","letter":"b"}@2`)
	if n := r.d.Dropped(); n["value too large"] != 1 {
		t.Error(n)
	}
}

// TestEachOfWhatIsMade: of a joined record, of the rows of windows, and of the changes of a table.
func TestEachOfWhatIsMade(t *testing.T) {
	t.Parallel()
	joined := Relation{
		Name: "joined", Kind: Stream, From: "lines", Joins: []Join{{With: "people", As: "p", Kind: Left}}, Each: each("word", words), Sink: sink("joined"),
	}
	hourly := agg(Aggregate{Window: Window{Tumbling: second}}, AggregateColumn{Name: "n", Function: Count})
	hourly.Name, hourly.From, hourly.Sink = "hourly", "lines", nil
	twice := Relation{Name: "twice", Kind: Stream, From: "hourly", Each: each("x", "[n, n * 10]"), Sink: sink("twice")}
	letters := Relation{Name: "letters", Kind: Stream, From: "people", Each: each("letter", `name.split("")`), Sink: sink("letters")}
	r := start(t, streamstest.Config{}, lines(), table("people", "people"), joined, hourly, twice, letters)
	r.pipe("people", "k", `{"name":"Al","boss":"b"}`, 1)
	r.pipe("in", "k", "a b", 2)
	r.pipe("in", "z", "c", 3)
	r.tombstone("people", "k", 4)
	r.wrote("joined", `k={"line":"a b","p":{"key":"k","name":"Al","boss":"b"},"word":"a"}@2`,
		`k={"line":"a b","p":{"key":"k","name":"Al","boss":"b"},"word":"b"}@2`, `z={"line":"c","word":"c"}@3`)
	r.wrote("twice", `k={"window":{"start":0,"end":1000},"n":1,"x":1}@2`, `k={"window":{"start":0,"end":1000},"n":1,"x":10}@2`,
		`z={"window":{"start":0,"end":1000},"n":1,"x":1}@3`, `z={"window":{"start":0,"end":1000},"n":1,"x":10}@3`)
	r.wrote("letters", `k={"name":"Al","boss":"b","letter":"A"}@1`, `k={"name":"Al","boss":"b","letter":"l"}@1`)
}

func TestEachIsTyped(t *testing.T) {
	t.Parallel()
	of := func(list string) Relation {
		return Relation{Name: "out", Kind: Stream, From: "flights", Each: each("x", list)}
	}
	contents, err := Describe(Topology{Relations: []Relation{of("[size(origin), 2]"), stream("flights", "in")}})
	if err != nil {
		t.Fatal(err)
	}
	want := expr.Column{Name: "x", Type: expr.Int}
	if c := contents[0].Columns; len(c) != 4 || c[3] != want {
		t.Errorf("columns %+v, want the last to be %+v", c, want)
	}
	refused := func(want string, r Relation) {
		t.Helper()
		all := append(around(), r)
		if err := Validate(Topology{Relations: all}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused(`t.yaml:1:1: the expression is string, want a list`, of("origin"))
	ofTable := of("[name]")
	ofTable.From, ofTable.Kind = "people", Table
	refused("people is a table, whose rows cannot become several", ofTable)
	named := of("[origin]")
	named.Each.Name, named.Each.Place = "carrier", Place{"t.yaml", 9, 4}
	refused(`t.yaml:9:4: topology.out.each.carrier: "carrier" is the name of something else already`, named)
	twice := of("[origin]")
	twice.Joins = []Join{{With: "people", As: "x"}}
	refused(`"x" is the name of something else already`, twice)
	read := stream("read", "read")
	read.Each = each("x", "[origin]")
	refused("a relation that is read from a topic has no each; write a relation of its own: {from: read, each: {...}}", read)
}
