package declared

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

func agg(a Aggregate, columns ...AggregateColumn) Relation {
	if columns == nil {
		columns = []AggregateColumn{{Name: "n", Function: Count}, {Name: "total", Function: Sum, Value: ref("delay")}}
	}
	a.Columns = columns
	return Relation{Name: "out", Kind: Table, From: "flights", Aggregate: &a, Sink: sink("out")}
}

func everyFunction() []AggregateColumn {
	v := ref("delay")
	return []AggregateColumn{
		{Name: "mean", Function: Avg, Value: v},
		{Name: "first", Function: First, Value: v},
		{Name: "latest", Function: Latest, Value: v},
		{Name: "top", Function: TopK, Value: ref("origin"), By: v, K: 2},
		{Name: "kinds", Function: Distinct, Value: ref("origin")},
		{Name: "half", Function: Quantile, Value: v, Q: 0},
		{Name: "n", Function: Count, Value: v},
	}
}

func TestStateOfItsOwn(t *testing.T) {
	t.Parallel()
	r := start(t, streamstest.Config{}, stream("flights", "in"), agg(Aggregate{By: ref("carrier")}, everyFunction()[:6]...))
	r.pipe("in", "1", "EWR,UA,1", 20)
	r.pipe("in", "2", "JFK,UA,3", 10) // out of order
	r.row("out", "UA", `{"mean":2,"first":3,"latest":1,"top":[{"value":"JFK","by":3},{"value":"EWR","by":1}],"kinds":2,"half":1.00990099009901}`)
	r.d.Restart()
	r.pipe("in", "3", "EWR,UA,5", 30)
	r.row("out", "UA", `{"mean":3,"first":3,"latest":5,"top":[{"value":"EWR","by":5},{"value":"JFK","by":3}],"kinds":2,"half":1.00990099009901}`)
}

func TestWindows(t *testing.T) {
	t.Parallel()
	tumbling := Window{Tumbling: second, Grace: second}
	for name, columns := range map[string][]AggregateColumn{
		"result": nil, "state": {{Name: "n", Function: Count}, {Name: "total", Function: Sum, Value: ref("delay")}, {Name: "last", Function: Latest, Value: ref("delay")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := agg(Aggregate{By: ref("carrier"), Window: tumbling}, columns...)
			seen := Relation{Name: "seen", Kind: Stream, From: "out", Select: sel("k", "key", "n", "n", "at", "window.start", "till", "window.end"), Sink: sink("seen")}
			r := start(t, streamstest.Config{}, stream("flights", "in"), out, seen)
			r.pipe("in", "1", "EWR,a,1", 100)
			r.pipe("in", "1", "EWR,a,2", 1500)
			r.pipe("in", "1", "EWR,a,4", 200) // out of order, in time
			r.pipe("in", "1", "EWR,a,4", 9000)
			r.pipe("in", "1", "EWR,a,4", 300) // late
			last := func(n int) string {
				if columns == nil {
					return "}"
				}
				return `,"last":` + strconv.Itoa(n) + "}"
			}
			rows := streamstest.NewWindow(r.d, "out", serde.String(), serde.String())
			if v, _ := rows.Fetch("a", 9000); v != `{"n":1,"total":4`+last(4) {
				t.Error(v)
			}
			r.wrote("seen", `a={"k":"a","n":1,"at":"1970-01-01T00:00:00Z","till":"1970-01-01T00:00:01Z"}@100`,
				`a={"k":"a","n":1,"at":"1970-01-01T00:00:01Z","till":"1970-01-01T00:00:02Z"}@1500`,
				`a={"k":"a","n":2,"at":"1970-01-01T00:00:00Z","till":"1970-01-01T00:00:01Z"}@200`,
				`a={"k":"a","n":1,"at":"1970-01-01T00:00:09Z","till":"1970-01-01T00:00:10Z"}@9000`)
			if n := r.d.Dropped(); n["late"] != 1 {
				t.Error(n)
			}
			r.d.Restart()
		})
	}
}

func TestOtherWindowsAndClosing(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Window{
		"tumbling": {Tumbling: second}, "hopping": {Hopping: 2 * second, Advance: second}, "sliding": {Sliding: second}, "session": {Session: second},
	} {
		for _, columns := range [][]AggregateColumn{nil, everyFunction()} {
			for _, how := range []string{"update", "close", "suppress"} {
				t.Run(name+how, func(t *testing.T) {
					t.Parallel()
					out := agg(Aggregate{By: ref("carrier"), Window: w, OnClose: how == "close"}, columns...)
					if how == "suppress" {
						out.Suppress = &Suppress{UntilClose: true}
					}
					r := start(t, streamstest.Config{}, stream("flights", "in"), out)
					r.pipe("in", "1", "EWR,a,1", 5000)
					r.pipe("in", "1", "EWR,a,2", 5100)
					r.d.AdvanceWallClock(2 * second)
					r.pipe("in", "1", "EWR,b,2", 60_000)
					n := streamstest.NewOutput(r.d, "out", serde.Bytes(), serde.String()).Len()
					least := map[string]int{"tumbling": 1, "hopping": 2, "sliding": 2, "session": 1}[name]
					if how == "update" && n <= least || how != "update" && n != least && n != least+1 {
						t.Errorf("%d records, want about %d", n, least)
					}
					r.d.Restart()
				})
			}
		}
	}
}

func TestSessionsMerge(t *testing.T) {
	t.Parallel()
	for name, columns := range map[string][]AggregateColumn{"result": nil, "state": {
		{Name: "n", Function: Count}, {Name: "total", Function: Sum, Value: ref("delay")}, {Name: "mean", Function: Avg, Value: ref("delay")},
	}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, streamstest.Config{}, stream("flights", "in"), agg(Aggregate{By: ref("carrier"), Window: Window{Session: second, Grace: time.Minute}}, columns...))
			r.pipe("in", "1", "EWR,a,1", 1000)
			r.pipe("in", "1", "EWR,a,5", 2500)
			r.pipe("in", "1", "EWR,a,3", 1700) // joins both
			want := `{"n":3,"total":9}`
			if columns != nil {
				want = `{"n":3,"total":9,"mean":3}`
			}
			rows := streamstest.NewSession(r.d, "out", serde.String(), serde.String())
			if v, _ := rows.Fetch("a", 1000, 2500); v != want || len(rows.Rows()) != 1 {
				t.Error(rows.Rows())
			}
			r.d.Restart()
		})
	}
}

// TestTableOfWindows: the rows of windows are in a table of their own with the window in the key.
func TestTableOfWindows(t *testing.T) {
	t.Parallel()
	hourly := agg(Aggregate{By: ref("carrier"), Window: Window{Tumbling: second}}, AggregateColumn{Name: "n", Function: Count})
	hours := Relation{Name: "hours", Kind: Stream, From: "out", Where: ref("n > 1")}
	busy := Relation{Name: "busy", Kind: Table, From: "hours", Key: ref("joinKey(key, string(window.start))"), Select: sel("n", "n")}
	r := start(t, streamstest.Config{}, stream("flights", "in"), hourly, hours, busy)
	for _, at := range []int64{100, 200, 300, 1100} {
		r.pipe("in", "1", "EWR,a,1", at)
	}
	r.row("busy", "a/1970-01-01T00:00:00Z", `{"n":3}`)
	r.row("busy", "a/1970-01-01T00:00:01Z", "nothing")
}

func TestGroupsOfATable(t *testing.T) {
	t.Parallel()
	out := agg(Aggregate{By: ref(`coalesce(boss, "none")`)}, AggregateColumn{Name: "n", Function: Count},
		AggregateColumn{Name: "letters", Function: Sum, Value: ref("size(name)")}, AggregateColumn{Name: "mean", Function: Avg, Value: ref("size(name)")})
	out.From, out.Where = "people", ref(`name != "nobody"`)
	r := start(t, streamstest.Config{}, table("people", "in"), out)
	r.pipe("in", "a", `{"name":"Ann","boss":"x"}`, 1)
	r.pipe("in", "b", `{"name":"Bobby","boss":"x"}`, 2)
	r.row("out", "x", `{"n":2,"letters":8,"mean":4}`)
	r.pipe("in", "b", `{"name":"Bobby","boss":"y"}`, 3) // moves
	r.row("out", "x", `{"n":1,"letters":3,"mean":3}`)
	r.row("out", "y", `{"n":1,"letters":5,"mean":5}`)
	r.pipe("in", "b", `{"name":"nobody","boss":"y"}`, 4) // is filtered out: the group is empty
	r.row("out", "y", "nothing")
	r.tombstone("in", "a", 5)
	r.row("out", "x", "nothing")
	r.d.Restart()
}

func TestOverflowIsAnErrorOfTheRecord(t *testing.T) {
	t.Parallel()
	c := streamstest.Config{ProcessingHandler: processor.Continue}
	r := start(t, c, stream("flights", "in"), agg(Aggregate{By: ref("carrier")}))
	r.pipe("in", "1", "EWR,a,"+strconv.Itoa(math.MaxInt64), 1)
	r.pipe("in", "1", "EWR,a,1", 2)
	r.row("out", "a", `{"n":1,"total":9223372036854775807}`)
	if n := r.d.Dropped(); n["arithmetic"] != 1 {
		t.Error(n)
	}
}
