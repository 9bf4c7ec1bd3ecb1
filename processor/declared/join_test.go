package declared

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streamstest"
)

func joined(kind JoinKind, with string, on *expr.Source) Relation {
	return Relation{
		Name: "out", Kind: Stream, From: "flights", Joins: []Join{{With: with, As: "p", Kind: kind, On: on}},
		Select: sel("origin", "origin", "name", "p.name"), Sink: sink("out"),
	}
}

func TestStreamWithTable(t *testing.T) {
	t.Parallel()
	r := start(t, streamstest.Config{}, stream("flights", "in"), table("people", "people"), joined(Inner, "people", ref("carrier")))
	r.pipe("in", "1", "EWR,a,1", 1)
	r.pipe("people", "a", `{"name":"Ann"}`, 2)
	r.pipe("in", "2", "JFK,a,1", 3)
	r.wrote("out", `a={"origin":"JFK","name":"Ann"}@3`)
}

func TestStreamWithTableLeftByKey(t *testing.T) {
	t.Parallel()
	out := joined(Left, "people", nil)
	out.Select = nil // all there is, the other side under its prefix
	again := Relation{Name: "again", Kind: Stream, From: "out", Where: ref("has(p.name)"), Select: sel("n", "p.name"), Sink: sink("again")}
	r := start(t, streamstest.Config{}, stream("flights", "in"), table("people", "people"), out, again)
	r.pipe("in", "a", "EWR,x,1", 1)
	r.pipe("people", "a", `{"name":"Ann"}`, 2)
	r.pipe("in", "a", "JFK,x,", 3)
	r.wrote("out", `a={"origin":"EWR","carrier":"x","delay":1}@1`, `a={"origin":"JFK","carrier":"x","p":{"key":"a","name":"Ann"}}@3`)
	r.wrote("again", `a={"n":"Ann"}@3`)
}

func TestStreamWithGlobalTable(t *testing.T) {
	t.Parallel()
	global := table("people", "people")
	global.Kind = GlobalTable
	r := start(t, streamstest.Config{}, stream("flights", "in"), global, joined(Inner, "people", ref("carrier")))
	r.pipe("people", "a", `{"name":"Ann"}`, 2)
	r.pipe("in", "1", "JFK,a,1", 3)
	r.pipe("in", "2", "JFK,b,1", 4)
	r.wrote("out", `1={"origin":"JFK","name":"Ann"}@3`)
	if err := r.d.Try(func() { r.pipe("in", "1", `JFK`, 5) }); err == nil {
		t.Error("an undecodable record was taken")
	}
}

func TestStreamWithVersionedTable(t *testing.T) {
	t.Parallel()
	versioned := table("people", "people")
	versioned.Source.History = time.Hour
	out := joined(Inner, "people", nil)
	out.Joins[0].Grace = time.Minute
	r := start(t, streamstest.Config{}, stream("flights", "in"), versioned, out)
	r.pipe("people", "a", `{"name":"old"}`, 0)
	r.pipe("people", "a", `{"name":"new"}`, 5000)
	r.pipe("in", "a", "JFK,x,1", 3000)
	r.pipe("in", "b", "JFK,x,1", 100_000) // the grace is over
	r.wrote("out", `a={"origin":"JFK","name":"old"}@3000`)
}

func streamJoin(kind JoinKind) []Relation {
	other := stream("others", "others")
	return []Relation{stream("flights", "in"), other, {
		Name: "out", Kind: Stream, From: "flights", Sink: sink("out"), Select: sel("l", "origin", "r", "o.origin"),
		Joins: []Join{{With: "others", As: "o", Kind: kind, On: ref("carrier"), OtherOn: ref("carrier"), Before: second, After: second, Grace: second}},
	}}
}

func TestStreamWithStream(t *testing.T) {
	t.Parallel()
	for kind, want := range map[JoinKind][]string{
		Inner: {`a={"l":"EWR","r":"JFK"}@1500`},
		Left:  {`a={"l":"EWR","r":"JFK"}@1500`, `b={"l":"LGA"}@9000`},
		Outer: {`a={"l":"EWR","r":"JFK"}@1500`, `b={"l":"LGA"}@9000`, `c={"r":"BOS"}@9100`},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := start(t, streamstest.Config{}, streamJoin(kind)...)
			r.pipe("in", "1", "EWR,a,", 1000)
			r.pipe("others", "2", "JFK,a,", 1500)
			r.pipe("in", "3", "LGA,b,", 9000)
			r.pipe("others", "4", "BOS,c,", 9100)
			r.pipe("in", "5", "X,z,", 90_000)
			r.wrote("out", want...)
			r.d.Restart()
		})
	}
}

func tables(kind JoinKind, on *expr.Source) []Relation {
	return []Relation{table("people", "people"), table("bosses", "bosses"), {
		Name: "out", Kind: Table, From: "people", Sink: sink("out"), Select: sel("name", "name", "boss", "b.name"),
		Joins: []Join{{With: "bosses", As: "b", Kind: kind, On: on}},
	}}
}

func TestTableWithTable(t *testing.T) {
	t.Parallel()
	for kind, want := range map[JoinKind][]string{
		Inner: {`a={"name":"Ann","boss":"Bob"}@2`, "a=null@3"},
		Left:  {`a={"name":"Ann"}@1`, `a={"name":"Ann","boss":"Bob"}@2`, "a=null@3"},
		Outer: {`a={"name":"Ann"}@1`, `a={"name":"Ann","boss":"Bob"}@2`, `a={"boss":"Bob"}@3`},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := start(t, streamstest.Config{}, tables(kind, nil)...)
			r.pipe("people", "a", `{"name":"Ann"}`, 1)
			r.pipe("bosses", "a", `{"name":"Bob"}`, 2)
			r.tombstone("people", "a", 3)
			r.wrote("out", want...)
			r.d.Restart()
		})
	}
}

func TestTableWithForeignKey(t *testing.T) {
	t.Parallel()
	r := start(t, streamstest.Config{}, tables(Inner, ref("boss"))...)
	r.pipe("people", "a", `{"name":"Ann","boss":"x"}`, 1)
	r.row("out", "a", "nothing")
	r.pipe("bosses", "x", `{"name":"Xi"}`, 2)
	r.row("out", "a", `{"name":"Ann","boss":"Xi"}`)
	r.pipe("people", "a", `{"name":"Ann"}`, 3)
	r.row("out", "a", "nothing")
	r.d.Restart()
}
