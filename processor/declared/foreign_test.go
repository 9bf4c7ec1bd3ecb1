package declared

import (
	"testing"

	"github.com/statemesh/statemesh/processor/streamstest"
)

// TestForeignKeyOfAStream: kind is a stream where nobody says it; what it is made of are tables all the same.
func TestForeignKeyOfAStream(t *testing.T) {
	t.Parallel()
	rows := tables(Inner, ref("boss"))
	rows[2].Kind = Stream
	r := start(t, streamstest.Config{}, rows...)
	r.pipe("people", "a", `{"name":"Ann","boss":"x"}`, 1)
	r.pipe("bosses", "a", `{"name":"no"}`, 2)
	r.pipe("bosses", "x", `{"name":"Xi"}`, 3)
	r.tombstone("people", "a", 4)
	r.wrote("out", `a={"name":"Ann","boss":"Xi"}@3`, "a=null@4")
}

// TestGroupsOfAForeignKey: rows that go away are taken out of the groups of what was joined.
func TestGroupsOfAForeignKey(t *testing.T) {
	t.Parallel()
	out := agg(Aggregate{By: ref("b.name")}, AggregateColumn{Name: "n", Function: Count})
	out.From, out.Joins = "people", []Join{{With: "bosses", As: "b", On: ref("boss")}}
	r := start(t, streamstest.Config{}, table("people", "people"), table("bosses", "bosses"), out)
	r.pipe("bosses", "x", `{"name":"Xi"}`, 1)
	r.pipe("people", "a", `{"name":"Ann","boss":"x"}`, 2)
	r.pipe("people", "b", `{"name":"Bo","boss":"x"}`, 3)
	r.row("out", "Xi", `{"n":2}`)
	r.tombstone("people", "a", 4)
	r.row("out", "Xi", `{"n":1}`)
	r.tombstone("bosses", "x", 5)
	r.row("out", "Xi", "nothing")
}

// TestForeignKeyAfterOthers: a foreign key may be a column of what was joined before it, with more joins behind it.
func TestForeignKeyAfterOthers(t *testing.T) {
	t.Parallel()
	out := Relation{
		Name: "out", Kind: Table, From: "people", Sink: sink("out"),
		Joins: []Join{{With: "more", As: "m", Kind: Outer}, {With: "bosses", As: "b", Kind: Left, On: ref("m.boss")}, {With: "more", As: "again", Kind: Left}},
	}
	some := out
	some.Name, some.Sink, some.Select = "some", nil, sel("name", "coalesce(name, '-')", "m", "m.key", "b", "b.key", "boss", "b.name", "again", "again.name")
	r := start(t, streamstest.Config{}, table("people", "people"), table("more", "more"), table("bosses", "bosses"), out, some)
	r.pipe("people", "a", `{"name":"Ann"}`, 1)
	r.row("some", "a", `{"name":"Ann"}`)
	r.pipe("bosses", "x", `{"name":"Xi"}`, 2)
	r.pipe("more", "a", `{"name":"more","boss":"x"}`, 3)
	r.row("out", "a", `{"name":"Ann","m":{"key":"a","name":"more","boss":"x"},"b":{"key":"x","name":"Xi"},"again":{"key":"a","name":"more","boss":"x"}}`)
	r.row("some", "a", `{"name":"Ann","m":"a","b":"x","boss":"Xi","again":"more"}`)
	r.d.Restart()
	r.pipe("bosses", "x", `{"name":"Yo"}`, 4)
	r.row("some", "a", `{"name":"Ann","m":"a","b":"x","boss":"Yo","again":"more"}`)
	r.tombstone("people", "a", 5)
	r.row("some", "a", `{"name":"-","m":"a","b":"x","boss":"Yo","again":"more"}`)
	r.tombstone("more", "a", 6)
	r.row("some", "a", "nothing")
	r.row("out", "a", "nothing")
}
