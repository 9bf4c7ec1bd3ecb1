package expr

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
)

var listed = Layout{Format: JSONObject, KeyFormat: "string", Columns: []Column{
	{Name: "line", Type: String}, {Name: "n", Type: Int}, {Name: "doc", Type: JSON, Optional: true}, {Name: "note", Type: String, Optional: true},
}}

// itemsOf evaluates `text` for each item, which is x.
func itemsOf(t *testing.T, list, text, record string) (have []string, e *Each, err error) {
	t.Helper()
	e, err = CompileEach(Source{File: "f", Line: 1, Column: 1, Text: list}, mustSchema(t, listed), "x")
	if err != nil {
		t.Fatal(err)
	}
	p := mustCompile(t, e.Schema(), text, Any)
	r := mustRow(t, e.Schema(), e.Program, p)
	for range 2 { // what is kept between records must not show
		have = nil
		if err := r.Set(value(record), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		err = e.Do(r, func() error {
			b, err := p.AppendJSON(nil, r)
			have = append(have, string(b))
			return err
		})
	}
	return have, e, err
}

func TestEach(t *testing.T) {
	t.Parallel()
	const record = `{"line":"to be  or","n":7,"doc":{"tags":["a",1,null,{"b":2}],"text":"no list","none":null,"ids":[1,2]}}`
	for _, tt := range []struct {
		list, text string
		typ        Type
		optional   bool
		want       []string
		reason     string
	}{
		{`regex.extractAll(line, "\\S+")`, "x", String, false, []string{`"to"`, `"be"`, `"or"`}, ""},
		{`line.split(" ")`, `x + "/" + key + string(n)`, String, false, []string{`"to/k7"`, `"be/k7"`, `"/k7"`, `"or/k7"`}, ""},
		{"[n, n + 1]", "x * 2", Int, false, []string{"14", "16"}, ""},
		{"[note, line]", "x", String, true, []string{"null", `"to be  or"`}, ""},
		{"[timestamp(0), timestamp(1)].map(t, t)", "x.getSeconds()", Timestamp, false, []string{"0", "1"}, ""},
		{"[[n], [n, n]]", "size(x)", JSON, true, []string{"1", "2"}, ""},
		{"[]", "x", JSON, true, nil, ""},
		{"doc.tags", "x", JSON, true, []string{`"a"`, "1", "null", `{"b":2}`}, ""},
		{"doc.ids.map(i, int(i))", "x + 1", Int, false, []string{"2", "3"}, ""},
		{"doc.none", "x", JSON, true, nil, ""},
		{"has(doc.more) ? doc.more : []", "x", JSON, true, nil, ""},
		{"doc.?more.orValue([])", "x", JSON, true, nil, ""},
		{"doc.text", "x", JSON, true, nil, ReasonType},
		{"doc", "x", JSON, true, nil, ReasonType},
		{"doc.more", "x", JSON, true, nil, ReasonMissing},
		{"[0, 1]", "1 / x", Int, false, []string{""}, ReasonArithmetic},
		{`[doc.?tags[0].orValue(7)]`, "x", Int, false, nil, ReasonType}, // the checker takes it for int
	} {
		t.Run(tt.list, func(t *testing.T) {
			t.Parallel()
			have, e, err := itemsOf(t, tt.list, tt.text, record)
			if reasonOf(err) != tt.reason {
				t.Errorf("%v, want %q", err, tt.reason)
			}
			if d := cmp.Diff(tt.want, have); d != "" {
				t.Errorf("(-want +have)\n%s", d)
			}
			if c := e.Item(); c.Name != "x" || c.Type != tt.typ || c.Optional != tt.optional {
				t.Errorf("item %+v, want %s, optional %t", c, tt.typ, tt.optional)
			}
		})
	}
	if have, _, err := itemsOf(t, "doc", "x", `{"line":"","n":1}`); err != nil || have != nil {
		t.Errorf("of a column that is not there: %v, %v", have, err)
	}
}

func TestEachIsBounded(t *testing.T) {
	t.Parallel()
	long := `{"line":"","n":1,"doc":[1` + strings.Repeat(",1", MaxItems) + "]}"
	if _, _, err := itemsOf(t, "doc", "1", long); reasonOf(err) != ReasonLarge {
		t.Errorf("%v, want %s", err, ReasonLarge)
	}
	if have, _, err := itemsOf(t, "doc", "1", strings.Replace(long, "[1,", "[", 1)); len(have) != MaxItems || err != nil {
		t.Errorf("%d items, %v", len(have), err)
	}
}

// TestEachSharesItsSteps: what is little for one item is not for all.
func TestEachSharesItsSteps(t *testing.T) {
	t.Parallel()
	record := func(items int) string {
		return `{"line":"` + strings.Repeat("a", 10_000) + `","n":1,"doc":[1` + strings.Repeat(",1", items-1) + "]}"
	}
	const text = "line.contains('bbbbbbbbbbbbbbbbbbbb')" // some thousand steps
	if have, _, err := itemsOf(t, "doc", text, record(1000)); len(have) != 1000 || err != nil {
		t.Errorf("%d items, %v", len(have), err)
	}
	have, _, err := itemsOf(t, "doc", text, record(50_000))
	if len(have) < 1000 || reasonOf(err) != ReasonCost {
		t.Errorf("%d items, %v, want %s", len(have), err, ReasonCost)
	}
	if have, _, err := itemsOf(t, "doc", "x", record(50_000)); len(have) != 50_000 || err != nil {
		t.Errorf("of what is only passed on: %d items, %v", len(have), err)
	}
}

func TestEachRefuses(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, listed)
	for _, tt := range [][3]string{
		{"line", "x", `f:3:5: the expression is string, want a list; write split(","), or regex.extractAll(..., "\\S+") for its words`},
		{"n", "x", "f:3:5: the expression is int, want a list"},
		{"note", "x", `f:3:5: the expression is string or null, want a list; write split(","), or regex.extractAll(..., "\\S+") for its words`},
		{"{line: n}", "x", "f:3:5: the expression is map(string, int), want a list; write map(k, k) for its keys"},
		{"[uint(n)]", "x", "f:3:5: the items of the list are uint, which no column can hold"},
		{"[x]", "x", "f:3:6: there is no x; the columns are line, n, doc, note"},
		{"[n]", "", `item: "" is no name for expressions: letters, digits and _, parts joined by dots`},
		{"[n]", "a.b", `item: "a.b": the name of an item has no dot`},
		{"[n]", "in", `item: "in" is a word of the language`},
		{"[n]", "line", `item: "line" is the name of something else already`},
		{"[n]", "key", `item: "key" is the name of something else already`},
	} {
		_, err := CompileEach(Source{File: "f", Line: 3, Column: 5, Text: tt[0]}, s, tt[1])
		if err == nil || err.Error() != tt[2] {
			t.Errorf("%s as %q: %v\nwant %s", tt[0], tt[1], err, tt[2])
		}
	}
}
