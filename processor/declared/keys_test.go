package declared

import (
	"slices"
	"testing"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// numbered is a table of people by number.
func numbered(name string) Relation {
	t := table(name, name)
	t.Source.Layout.KeyFormat = serde.FormatInt64
	return t
}

func (r *running) pipeNumber(topic string, key int64, value string, at int64) {
	r.t.Helper()
	streamstest.NewInput(r.d, topic, serde.Int64(), serde.String()).Pipe(key, value, at)
}

// keyOf is a relation that selects the key of what it joins, and filters by it where that is not null.
func keyOf(kind Kind, from string, j Join) Relation {
	j.As = "o"
	where := "o.key == null || string(o.key) != '9'"
	if j.Kind == Inner { // it is never null
		where = "o.key != '9'"
	}
	return Relation{
		Name: "out", Kind: kind, From: from, Joins: []Join{j}, Where: ref(where), Sink: sink("out"),
		Select: sel("name", "o.name", "key", "o.key"),
	}
}

// TestKeyOfWhatIsJoined: each kind of join knows the key of the other side, and null where there is none.
func TestKeyOfWhatIsJoined(t *testing.T) {
	t.Parallel()
	global := numbered("people")
	global.Kind = GlobalTable
	for name, with := range map[string]Relation{"table": numbered("people"), "global table": global} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, streamstest.Config{}, stream("flights", "in"), with, keyOf(Stream, "flights", Join{With: "people", Kind: Left, On: ref("coalesce(delay, 0)")}))
			r.pipeNumber("people", 7, `{"name":"Ann"}`, 1)
			r.pipeNumber("people", 9, `{"name":"Bob"}`, 1)
			for i, row := range []string{"E,UA,7", "E,UA,8", "E,UA,9"} {
				r.pipe("in", "k", row, int64(i+2))
			}
			have := streamstest.NewOutput(r.d, "out", serde.Bytes(), serde.String()).ReadAll()
			var values []string
			for _, rec := range have {
				values = append(values, rec.Value)
			}
			if want := []string{`{"name":"Ann","key":7}`, `{}`}; !slices.Equal(values, want) {
				t.Errorf("%q, want %q", values, want)
			}
		})
	}
}

func TestKeyOfAJoinedTableByKey(t *testing.T) {
	t.Parallel()
	for kind, want := range map[JoinKind][]string{
		Inner: {`a={"name":"Bob","key":"a"}@2`, "a=null@4"},
		Left:  {`b={}@1`, `a={"name":"Bob","key":"a"}@3`, `a={}@4`},
		Outer: {`b={}@1`, `a={"name":"Bob","key":"a"}@2`, `a={"name":"Bob","key":"a"}@3`, `a={}@4`},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := start(t, streamstest.Config{}, table("people", "people"), table("bosses", "bosses"), keyOf(Table, "people", Join{With: "bosses", Kind: kind}))
			if kind != Inner {
				r.pipe("people", "b", `{"name":"Ben"}`, 1)
				r.pipe("bosses", "a", `{"name":"Bob"}`, 2)
				r.pipe("people", "a", `{"name":"Ann"}`, 3)
			} else {
				r.pipe("people", "a", `{"name":"Ann"}`, 1)
				r.pipe("bosses", "a", `{"name":"Bob"}`, 2)
			}
			r.tombstone("bosses", "a", 4)
			r.wrote("out", want...)
		})
	}
}

func TestKeyOfAForeignKey(t *testing.T) {
	t.Parallel()
	r := start(t, streamstest.Config{}, table("people", "people"), table("bosses", "bosses"), keyOf(Table, "people", Join{With: "bosses", Kind: Left, On: ref("boss")}))
	r.pipe("people", "a", `{"name":"Ann","boss":"x"}`, 1)
	r.row("out", "a", "{}")
	r.pipe("bosses", "x", `{"name":"Xi"}`, 2)
	r.row("out", "a", `{"name":"Xi","key":"x"}`)
	r.d.Restart()
	r.pipe("bosses", "9", `{"name":"No"}`, 3)
	r.pipe("people", "a", `{"name":"Ann","boss":"9"}`, 4) // is filtered out
	r.row("out", "a", "nothing")
}

func TestKeyOfAJoinedStream(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		on, other *expr.Source
		want      []string
	}{
		"by key":   {nil, nil, []string{`1={"l":"E","r":"J","of":"1"}@2`, `3={"r":"B","of":"3"}@5`, `2={"l":"L"}@4`}},
		"by other": {ref("carrier"), ref("carrier"), []string{`a={"l":"E","r":"J","of":"1"}@2`, `c={"r":"B","of":"3"}@5`, `b={"l":"L"}@4`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := Relation{
				Name: "out", Kind: Stream, From: "flights", Sink: sink("out"), Select: sel("l", "origin", "r", "o.origin", "of", "o.key"),
				Joins: []Join{{With: "others", As: "o", Kind: Outer, On: tt.on, OtherOn: tt.other, Before: second, After: second}},
			}
			r := start(t, streamstest.Config{}, stream("flights", "in"), stream("others", "others"), out)
			r.pipe("in", "1", "E,a,", 1)
			r.pipe("others", "1", "J,a,", 2)
			r.pipe("in", "2", "L,b,", 4)
			r.pipe("others", "3", "B,c,", 5)
			r.d.Restart()
			r.pipe("in", "9", "X,z,", 90_000)
			have := streamstest.NewOutput(r.d, "out", serde.String(), serde.String()).ReadStrings()
			slices.Sort(have)
			slices.Sort(tt.want)
			if !slices.Equal(have, tt.want) {
				t.Errorf("%q, want %q", have, tt.want)
			}
		})
	}
}

// TestKeysOfSeveralJoins: the key of one join is there in all that follow, is what the next one is by, and is a column of what nothing is
// selected of.
func TestKeysOfSeveralJoins(t *testing.T) {
	t.Parallel()
	all := Relation{Name: "all", Kind: Stream, From: "flights", Sink: sink("all"), Joins: []Join{
		{With: "people", As: "p", On: ref("carrier")}, {With: "bosses", As: "b", Kind: Left, On: ref("p.key + '!'")}, {With: "people", As: "q", Kind: Left, On: ref("b.boss")},
	}}
	some := all
	some.Name, some.Sink, some.Select = "some", sink("some"), sel("p", "p.key", "q", "q.key")
	seen := Relation{Name: "seen", Kind: Stream, From: "all", Where: ref("b.key == 'a!'"), Select: sel("q", "q.key"), Sink: sink("seen")}
	r := start(t, streamstest.Config{}, stream("flights", "in"), table("people", "people"), table("bosses", "bosses"), all, some, seen)
	r.pipe("people", "a", `{"name":"Ann"}`, 1)
	r.pipe("people", "c", `{"name":"Cy"}`, 1)
	r.pipe("bosses", "a!", `{"name":"Bob","boss":"c"}`, 2)
	r.pipe("in", "1", "E,a,", 3)
	r.wrote("all", `c={"origin":"E","carrier":"a","p":{"key":"a","name":"Ann"},"b":{"key":"a!","name":"Bob","boss":"c"},"q":{"key":"c","name":"Cy"}}@3`)
	r.wrote("some", `c={"p":"a","q":"c"}@3`)
	r.wrote("seen", `c={"q":"c"}@3`)
}

// TestKeyThatIsAColumn: a column called key hides the key, and what is joined with two tables of an own layout keeps it.
func TestKeyThatIsAColumn(t *testing.T) {
	t.Parallel()
	own := table("own", "own")
	own.Source.Layout.Columns = []expr.Column{{Name: "key", Type: expr.Int}}
	made := Relation{Name: "made", Kind: Table, From: "people", Select: sel("who", "name")}
	out := Relation{Name: "out", Kind: Table, From: "people", Sink: sink("out"), Joins: []Join{{With: "own", Kind: Left}, {With: "made", As: "m"}}}
	r := start(t, streamstest.Config{}, table("people", "people"), own, made, out)
	r.pipe("own", "a", `{"key":5}`, 1)
	r.pipe("people", "a", `{"name":"Ann"}`, 2)
	r.row("out", "a", `{"name":"Ann","own":{"key":5},"m":{"key":"a","who":"Ann"}}`)
}
