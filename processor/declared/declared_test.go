package declared

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

func TestStreamIsFilteredAndComputed(t *testing.T) {
	t.Parallel()
	late := Relation{
		Name: "late", Kind: Stream, From: "flights", Where: ref("coalesce(delay, 0) > 10"), Key: ref("carrier"),
		Select: sel("from", "origin", "hours", "double(delay) / 60.0"), Sink: sink("late"),
	}
	again := Relation{Name: "again", Kind: Stream, From: "late", Where: ref(`key == "UA"`), Sink: sink("again")}
	plain := Relation{Name: "plain", Kind: Stream, From: "flights", Sink: sink("plain")}
	r := start(t, streamstest.Config{}, again, late, plain, stream("flights", "in")) // in any order
	r.pipe("in", "1", "EWR,UA,30", 1)
	r.pipe("in", "2", "EWR,AA,", 2)
	r.pipe("in", "3", "JFK,AA,60", 3)
	r.tombstone("in", "4", 4)
	r.wrote("late", `UA={"from":"EWR","hours":0.5}@1`, `AA={"from":"JFK","hours":1}@3`)
	r.wrote("again", `UA={"from":"EWR","hours":0.5}@1`)
	r.wrote("plain", `1={"origin":"EWR","carrier":"UA","delay":30}@1`, `2={"origin":"EWR","carrier":"AA"}@2`,
		`3={"origin":"JFK","carrier":"AA","delay":60}@3`, "4=null@4")
	if n := r.d.Dropped(); len(n) != 0 { // the filter leaves the tombstone out
		t.Error(n)
	}
	r.d.Restart()
}

func TestTimestampIsAnExpression(t *testing.T) {
	t.Parallel()
	s := Source{Timestamp: ref("at"), Layout: expr.Layout{Format: expr.JSONObject, KeyFormat: serde.FormatString, Columns: []expr.Column{
		{Name: "at", Type: expr.Timestamp, Optional: true},
	}}}
	r := start(t, streamstest.Config{}, Relation{Name: "s", Kind: Stream, Topic: "in", Source: s}, Relation{Name: "o", Kind: Stream, From: "s", Sink: sink("out")})
	r.pipe("in", "a", `{"at":5000}`, 1)
	r.wrote("out", `a={"at":"1970-01-01T00:00:05Z"}@5000`)
	if err := r.d.Try(func() { r.pipe("in", "a", `{}`, 1) }); err == nil {
		t.Error("a record without a time was taken")
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	s := Source{Layout: expr.Layout{Format: expr.Text, KeyFormat: serde.FormatString, Columns: []expr.Column{{Name: "line", Type: expr.String}}}}
	r := start(t, streamstest.Config{}, Relation{Name: "s", Kind: Stream, Topic: "in", Source: s}, Relation{Name: "o", Kind: Stream, From: "s", Sink: sink("out")})
	r.pipe("in", "a", "x y", 1)
	r.wrote("out", `a={"line":"x y"}@1`)
}

func TestTableOfATable(t *testing.T) {
	t.Parallel()
	bosses := Relation{
		Name: "bosses", Kind: Table, From: "people", Where: ref("!has(boss)"), Select: sel("who", "name"), Sink: sink("bosses"),
		Store: StoreOptions{InMemory: true, NoCache: true},
	}
	changes := Relation{Name: "changes", Kind: Stream, From: "people", Sink: sink("changes")}
	r := start(t, streamstest.Config{}, table("people", "in"), bosses, changes)
	r.pipe("in", "a", `{"name":"Ann"}`, 1)
	r.row("people", "a", `{"name":"Ann"}`)
	r.row("bosses", "a", `{"who":"Ann"}`)
	r.pipe("in", "a", `{"name":"Ann","boss":"b"}`, 2)
	r.row("bosses", "a", "nothing")
	r.tombstone("in", "a", 3)
	r.row("people", "a", "nothing")
	r.wrote("bosses", `a={"who":"Ann"}@1`, "a=null@2", "a=null@3")
	r.wrote("changes", `a={"name":"Ann"}@1`, `a={"name":"Ann","boss":"b"}@2`, "a=null@3")
	r.d.Restart()
}

func TestTableOfAStream(t *testing.T) {
	t.Parallel()
	last := Relation{Name: "last", Kind: Table, From: "flights", Key: ref("carrier"), Select: sel("delay", "delay"), Sink: sink("last")}
	r := start(t, streamstest.Config{}, stream("flights", "in"), last)
	r.pipe("in", "1", "EWR,UA,30", 1)
	r.pipe("in", "2", "EWR,UA,31", 2)
	r.row("last", "UA", `{"delay":31}`)
	r.wrote("last", `UA={"delay":30}@1`, `UA={"delay":31}@2`)
}

func TestSuppressUntil(t *testing.T) {
	t.Parallel()
	slow := Relation{Name: "slow", Kind: Table, From: "all", Suppress: &Suppress{Until: second}, Sink: sink("slow")}
	r := start(t, streamstest.Config{}, table("all", "in"), slow)
	r.pipe("in", "a", `{"name":"1"}`, 0)
	r.pipe("in", "a", `{"name":"2"}`, 500)
	r.pipe("in", "b", `{"name":"3"}`, 2000)
	r.wrote("slow", `a={"name":"2"}@500`)
	r.row("slow", "a", `{"name":"2"}`)
}

func TestErrorsOfRecordsHaveReasons(t *testing.T) {
	t.Parallel()
	bad := Relation{Name: "bad", Kind: Stream, From: "flights", Select: sel("x", "100 / delay"), Sink: sink("out")}
	fails := func(value string) {
		r := start(t, streamstest.Config{}, stream("flights", "in"), bad)
		if err := r.d.Try(func() { r.pipe("in", "1", value, 1) }); err == nil {
			t.Errorf("%q was taken", value)
		}
	}
	fails("EWR,UA,0")       // arithmetic
	fails("EWR,UA,")        // null
	fails("EWR,UA,soon")    // undecodable
	fails(`EWR,"UA,1`)      // no CSV
	fails("EWR,UA,1,2,3,4") // too many columns
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	counts := Relation{Name: "counts", Kind: Table, From: "flights", Aggregate: &Aggregate{
		By: ref("carrier"), Window: Window{Session: time.Minute}, Columns: []AggregateColumn{{Name: "n", Function: Count}},
	}, Sink: sink("out")}
	contents, err := Describe(Topology{Relations: []Relation{counts, stream("flights", "in")}})
	if err != nil {
		t.Fatal(err)
	}
	c := contents[0]
	if c.Name != "counts" || !c.Windowed || !c.Session || c.KeyFormat != "string" || c.KeyType != expr.String || c.Store != "counts" ||
		c.Changelog != "counts-changelog" || c.Topic != "out" || len(c.Columns) != 1 || c.Columns[0].Type != expr.Int {
		t.Errorf("%+v", c)
	}
	if c.Layout != nil || c.WindowSize != 0 || c.Versioned {
		t.Errorf("%+v: sessions have no size, and results are objects", c)
	}
}

// TestDescribeValues: what is only filtered has the values of its topic; windows of one size say it.
func TestDescribeValues(t *testing.T) {
	t.Parallel()
	sized := func(name string, w Window) Relation {
		return Relation{Name: name, Kind: Table, From: "flights", Aggregate: &Aggregate{
			By: ref("carrier"), Window: w, Columns: []AggregateColumn{{Name: "n", Function: Count}},
		}}
	}
	history := stream("history", "past")
	history.Kind, history.Source.History = Table, time.Hour
	contents, err := Describe(Topology{Relations: []Relation{
		stream("flights", "in"),
		{Name: "late", Kind: Stream, From: "flights", Where: ref("coalesce(delay, 0) > 10")},
		{Name: "written", Kind: Stream, From: "late", Sink: sink("out")},
		sized("tumbling", Window{Tumbling: time.Hour}), sized("hopping", Window{Hopping: time.Hour, Advance: time.Minute}),
		sized("sliding", Window{Sliding: time.Second}), history,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, own := range []bool{false, false, true, true, true, true, false} {
		if c := contents[i]; own != (c.Layout == nil) || !own && c.Layout.Format != expr.CSV {
			t.Errorf("%s has the layout %+v", c.Name, c.Layout)
		}
	}
	for i, want := range map[int]time.Duration{2: 0, 3: time.Hour, 4: time.Hour, 5: time.Second} {
		if c := contents[i]; c.WindowSize != want {
			t.Errorf("%s: windows of %s, want %s", c.Name, c.WindowSize, want)
		}
	}
	if !contents[6].Versioned || contents[0].Versioned {
		t.Error("the table with a history is another")
	}
}
