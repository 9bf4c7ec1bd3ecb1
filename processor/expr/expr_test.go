package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

func mustSchema(tb testing.TB, l Layout) *Schema {
	tb.Helper()
	s, err := NewSchema(l)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func mustCompile(tb testing.TB, s *Schema, text string, want Type) *Program {
	tb.Helper()
	p, err := Compile(Source{File: "f", Line: 1, Column: 1, Text: text}, s, want)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustRow(tb testing.TB, s *Schema, programs ...*Program) *Row {
	tb.Helper()
	r, err := s.NewRow(programs...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func value(s string) *processor.Record { return &processor.Record{Key: []byte("k"), Value: []byte(s)} }

var flights = Layout{
	Format: CSV, Header: []string{"carrier", "origin", "dep_delay"}, KeyFormat: "string",
	Columns: []Column{{Name: "carrier", Type: String}, {Name: "origin", Type: String}, {Name: "delay", Type: Double, Optional: true, Field: "dep_delay"}},
}

func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		layout Layout
		want   string
	}{
		"format":            {Layout{Format: "xml", Columns: []Column{{Name: "a", Type: Int}}}, `format: "xml": want one of csv, json, string`},
		"no columns":        {Layout{Format: CSV}, "columns: expressions need at least one"},
		"text":              {Layout{Format: Text, Columns: []Column{{Name: "a", Type: Int}, {Name: "b", Type: Int}}}, "columns: a text is one column, not 2"},
		"name":              {Layout{Format: JSONObject, Columns: []Column{{Name: "dep-delay", Type: Int}}}, `columns[0].name: "dep-delay" is no name for expressions: letters, digits and _, parts joined by dots; take another name and set field to what the record calls it`},
		"word":              {Layout{Format: JSONObject, Columns: []Column{{Name: "in", Type: Int}}}, `columns[0].name: "in" is a word of the language; take another name and set field to what the record calls it`},
		"record":            {Layout{Format: JSONObject, Columns: []Column{{Name: "record.x", Type: Int}}}, `columns[0].name: "record" is a word of the language; take another name and set field to what the record calls it`},
		"twice":             {Layout{Format: JSONObject, Columns: []Column{{Name: "a", Type: Int}, {Name: "a", Type: Int}}}, `columns[1].name: "a" is given twice`},
		"type":              {Layout{Format: JSONObject, Columns: []Column{{Name: "a", Type: Any}}}, "columns[0].type: want one of string, int, double, bool, bytes, timestamp, duration, json"},
		"path":              {Layout{Format: JSONObject, Columns: []Column{{Name: "a", Type: Int, Field: "x..y"}}}, `columns[0].field: "x..y": a path has a name before and after each dot`},
		"header of json":    {Layout{Format: JSONObject, Header: []string{"a"}, Columns: []Column{{Name: "a", Type: Int}}}, "header: only CSV has one"},
		"not in the header": {Layout{Format: CSV, Header: []string{"a"}, Columns: []Column{{Name: "b", Type: Int}}}, `columns[0]: "b" is not in the header`},
		"header twice":      {Layout{Format: CSV, Header: []string{"a", "a"}, Columns: []Column{{Name: "a", Type: Int}}}, `header: "a" is given twice`},
		"key": {Layout{Format: CSV, KeyFormat: "avro", Columns: []Column{{Name: "a", Type: Int}}}, `key_format: "avro": expressions read ` +
			strings.Join(serde.Builtin().Names(), ", ")},
		"all at once": {Layout{Format: CSV, Columns: []Column{{Name: "in", Type: Int}, {Name: "b"}}}, `columns[0].name: "in" is a word of the language; take another name and set field to what the record calls it` +
			"\ncolumns[1].type: want one of string, int, double, bool, bytes, timestamp, duration, json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewSchema(tt.layout)
			if err == nil || err.Error() != tt.want {
				t.Errorf("%v\nwant %s", err, tt.want)
			}
			if _, ok := errors.AsType[*SchemaError](err); err != nil && !ok {
				t.Errorf("%T is no SchemaError", err)
			}
		})
	}
}

// TestEveryWordIsRefusedOrUsable: a name that a schema takes can be used in an expression.
func TestEveryWordIsRefusedOrUsable(t *testing.T) {
	t.Parallel()
	for _, name := range append([]string{
		"key", "timestamp", "duration", "topic", "offset", "headers", "has", "size", "matches", "date", "format", "coalesce", "all", "exists",
		"bool", "bytes", "dyn", "int", "list", "map", "string", "type", "google", "cel", "math", "optional", "strings",
		"x", "_", "a1", "CamelCase", "user.id", "timestamp.ms", "cel2", "mathematics",
	}, reserved...) {
		s, err := NewSchema(Layout{Format: JSONObject, Columns: []Column{{Name: name, Type: Int, Field: "f"}}})
		if refused := slices.Contains(reserved, name); refused != (err != nil) {
			t.Errorf("%s: %v, a word of the language: %t", name, err, refused)
		}
		if err != nil {
			continue
		}
		p, err := Compile(Source{Text: name + " + 1"}, s, Int)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := mustRow(t, s, p)
		if err := r.Set(value(`{"f":41}`), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Value(r); err != nil || got != int64(42) {
			t.Errorf("%s + 1: %v, %v", name, got, err)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{
		{Name: "s", Type: String},
		{Name: "n", Type: Int},
		{Name: "x", Type: Double},
		{Name: "b", Type: Bool},
		{Name: "ob", Type: Bool, Optional: true},
		{Name: "ox", Type: Double, Optional: true},
		{Name: "j", Type: JSON, Optional: true},
		{Name: "at", Type: Timestamp},
	}})
	for _, tt := range []struct {
		text string
		want Type
		err  string
	}{
		{"", Bool, "f:1:1: no expression"},
		{" \n ", Bool, "f:1:1: no expression"},
		{"n", Bool, "f:1:1: the expression is int, want bool"},
		{"  n + 1", String, "f:1:3: the expression is int, want string; write string(...)"},
		{"s", Int, "f:1:1: the expression is string, want int; write int(...)"},
		{"n", Double, "f:1:1: the expression is int, want double; write double(...)"},
		{"ob", Bool, "f:1:1: the expression is bool or null, want bool; say what null means, as in coalesce(..., false)"},
		{"b ? ob : b", Bool, "f:1:1: the expression is bool or null, want bool; say what null means, as in coalesce(..., false)"},
		{"j", Bool, "f:1:1: the expression is json, want bool; what JSON holds is known at run time only: write bool(...)"},
		{"j.x", String, "f:1:1: the expression is json, want string; what JSON holds is known at run time only: write string(...)"},
		{"[n]", Int, "f:1:1: the expression is list(int), want int"},
		{"j.?x", Any, "f:1:1: the expression is optional_type(json), which no column can hold; an optional value has one after .orValue(...)"},
		{"uint(n)", Int, "f:1:1: the expression is uint, want int; write int(...)"},
		{"null", Any, "f:1:1: the expression is null, which no column can hold"},
		{"type(n)", Any, "f:1:1: the expression is type(int), which no column can hold"},
		{"n * 2.0", Double, "f:1:3: * does not take (int, double); numbers of one type are wanted: write 2.0 for 2, or double(...) or int(...)"},
		{"ox + s", Double, "f:1:4: + does not take (double or null, string); a column that may be null has a value after coalesce(column, ...)"},
		{"s.startsWith(n)", Bool, "f:1:3: startsWith does not take string.(int)"},
		{"b &&", Bool, "f:1:5: the expression ends too early"},
		{"(b", Bool, "f:1:3: the expression ends too early"},
		{"s.matches('a' n)", Bool, "f:1:15: unexpected n"},
		{"b b", Bool, "f:1:3: unexpected b"},
		{"b && #", Bool, "f:1:6: unexpected #\nf:1:7: the expression ends too early"},
		{"nope > 1 || s.nope() || nope2(n)", Bool, "f:1:1: there is no nope; the columns are s, n, x, b, ob, ox, j, at\n" +
			"f:1:15: there is no function nope; docs/expressions.md lists all\nf:1:25: there is no function nope2; docs/expressions.md lists all"},
		{"headres.size() > 0", Bool, "f:1:1: there is no headres; did you mean headers?"},
		{"now() > at", Bool, "f:1:1: there is no function now; docs/expressions.md lists all"},
		{"google.protobuf.Int64Value{value: 1} == n", Bool, "f:1:27: messages cannot be made here"},
		{`s.matches("(")`, Bool, "f:1:11: invalid matches argument"},
		{`duration("1 hour") > duration("1h")`, Bool, "f:1:10: invalid duration argument"},
		{`at.format("%Q") == s`, Bool, "f:1:11: no format of an instant; %Y %m %d %H %M %S and others, see docs/expressions.md"},
		{`at.getHours(s) == n`, Bool, `f:1:13: a time zone must be written out as an offset; such as "+02:00": what names of zones mean differs from machine to machine`},
		{`int("x") > n`, Bool, "f:1:1: a constant in the expression cannot be converted"},
	} {
		_, err := Compile(Source{File: "f", Line: 1, Column: 1, Text: tt.text}, s, tt.want)
		if err == nil || err.Error() != tt.err {
			t.Errorf("%q: %v\nwant %s", tt.text, err, tt.err)
			continue
		}
		for _, e := range Errors(fmt.Errorf("wrapped: %w", errors.Join(err, err))) {
			if e.Line != 1 || e.Column < 1 {
				t.Errorf("%q: %v", tt.text, e)
			}
		}
		if got, want := len(Errors(err)), strings.Count(tt.err, "\n")+1; got != want {
			t.Errorf("%q: %d errors, want %d", tt.text, got, want)
		}
	}
	_, err := Compile(Source{Text: "n + x"}, s, Int)
	if e := Errors(err); len(e) != 1 || e[0].Found != "(int, double)" {
		t.Errorf("%+v", e)
	}
	_, err = Compile(Source{Text: "n"}, s, Bool)
	if e := Errors(err); len(e) != 1 || e[0].Found != "int" || e[0].Want != "bool" {
		t.Errorf("%+v", e)
	}
}

func TestTypes(t *testing.T) {
	t.Parallel()
	for _, name := range TypeNames() {
		typ, err := ParseType(name)
		if err != nil || typ.String() != name {
			t.Errorf("%s: %v, %v", name, typ, err)
		}
	}
	if _, err := ParseType("any"); err == nil {
		t.Error("any is the type of a column")
	}
	if Type(0).String() != "unknown" || Type(99).String() != "unknown" {
		t.Error("a type that is none has a name")
	}
}

// TestColumns: how each type is read, in each format.
// TestKeys: what a key is, by its format; what stores and producers write is what expressions read.
// TestNullKey: null is no bytes, which is no key; an empty text is a key.
// TestResultsAreCopies: what belongs to the caller does not change with the next record.
// TestErrorsHoldNoData: errors are logged, and records may hold what must not be.
// TestSharedErrorsNameThePlace: the library has one error for all instants that are none.
// TestLoopVariablesHideColumns: a name that a loop gives is the loop's, whatever the columns are called.
