package expr

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// scalar finds the value of the key "filter" in a document.
func scalar(t *testing.T, document string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(document), &doc); err != nil {
		t.Fatalf("%v in\n%s", err, document)
	}
	return find(&doc)
}

func find(n *yaml.Node) *yaml.Node {
	for i, c := range n.Content {
		if c.Kind == yaml.ScalarNode && c.Value == "filter" && n.Kind == yaml.MappingNode && i%2 == 0 {
			return n.Content[i+1]
		}
		if found := find(c); found != nil {
			return found
		}
	}
	return nil
}

// TestPlaces: the culprit, marked with ‹ in the document, is where the error is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: CSV, Columns: []Column{{Name: "a", Type: Int}, {Name: "b", Type: String}}})
	for name, document := range map[string]string{
		"plain":                   "filter: a > 1 && ‹nope == 1\n",
		"plain, nested":           "x:\n  - y: 1\n    filter: a > 1 && ‹nope == 1\n",
		"plain, in a flow":        "x: {y: 1, filter: a > 1 && ‹nope == 1, z: 2}\n",
		"plain, several lines":    "x:\n  filter: a > 1 &&\n    a < 5\n\n    && ‹nope == 1\n  y: 1\n",
		"plain, after a comment":  "# é: not ours\nfilter: a > 1 && ‹nope == 1 # why\n",
		"single quotes":           "filter: 'b == ''x'' && ‹nope == 1'\n",
		"single, several lines":   "filter: 'b == ''x''\n\n  && ‹nope == 1'\n",
		"double quotes":           `filter: "b == \"x\" && b != \"\u00e9\" && ‹nope == 1"` + "\n",
		"double, with escapes":    `filter: "b == '\x41\u0042\U00000043'\n&&\t‹nope == 1"` + "\n",
		"double, several lines":   "filter: \"b == 'x' \\\n   && a > 1\n   && ‹nope == 1\"\n",
		"double, the culprit too": `filter: "a > 1 && ‹\x6eope == 1"` + "\n",
		"literal block":           "x:\n  filter: |\n    a > 1\n      && ‹nope == 1\n  y: 1\n",
		"literal, blank lines":    "filter: |-\n\n  a > 1\n\n  && ‹nope == 1\n\n\n",
		"literal, indentation":    "filter: |2\n    a > 1 &&\n   ‹nope == 1\n",
		"literal, with a comment": "filter: | # a > 9\n  a > 1 && ‹nope == 1\n",
		"folded block":            "filter: >-\n  a > 1\n  && b == 'x'\n\n  && ‹nope == 1\n",
		"folded, deeper lines":    "filter: >\n  a > 1\n    && b == 'x'\n    && ‹nope == 1\n",
		"characters beyond ASCII": "filter: b != 'é😀' && ‹nope == 1\n",
		"tag and anchor":          "filter: !!str &f a > 1 && ‹nope == 1\n",
		"carriage returns":        "x: 1\r\nfilter: |\r\n  a > 1\r\n  && ‹nope == 1\r\n",
		"byte order mark":         "\ufefffilter: a > 1 && ‹nope == 1\n",
		"a function":              "filter: a > 1 && ‹nope(b)\n",
		"a member function":       "filter: a > 1 && b.‹nope()\n",
		"an operator":             "filter: |\n  a > 1 &&\n  b ‹> 1\n",
		"the whole":               "filter: ' ‹b'\n",
		"a syntax error":          "filter: |\n  a > 1 &&\n  && ‹) b\n"[:len("filter: |\n  a > 1 &&\n  ")] + "‹&& a > 1\n",
		"a regular expression":    "filter: b.matches(‹'[')\n",
		"a column of a function":  "filter: b.matches(‹b)\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after, _ := strings.Cut(document, "‹")
			line := 1 + strings.Count(before, "\n")
			column := 1 + len([]rune(strings.TrimPrefix(before[strings.LastIndex(before, "\n")+1:], "\ufeff")))
			whole := before + after
			n := scalar(t, whole)
			_, err := Compile(Source{File: "f.yaml", Line: n.Line, Column: n.Column, Text: n.Value, Document: []byte(whole)}, s, Bool)
			errs := Errors(err)
			if len(errs) == 0 {
				t.Fatalf("%q is taken", n.Value)
			}
			if e := errs[0]; e.Line != line || e.Column != column || e.File != "f.yaml" {
				t.Errorf("%v, want %d:%d", e, line, column)
			}
		})
	}
}

func TestPlacesWithoutADocument(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: CSV, Columns: []Column{{Name: "a", Type: Int}}})
	for _, tt := range []struct {
		src  Source
		want string
	}{
		{Source{File: "--set filter", Text: "a > 1 && nope"}, "--set filter:1:10: there is no nope; the columns are a"},
		{Source{File: "f", Line: 3, Column: 5, Text: "a > 1 &&\nnope"}, "f:4:1: there is no nope; the columns are a"},
		// Not the value of that scalar: its beginning is all that is known.
		{Source{File: "f", Line: 2, Column: 9, Text: "nope", Document: []byte("x: 1\nfilter: other\n")}, "f:2:9: there is no nope; the columns are a"},
		{Source{File: "f", Line: 7, Column: 9, Text: "nope", Document: []byte("x: 1\n")}, "f:7:9: there is no nope; the columns are a"},
	} {
		if _, err := Compile(tt.src, s, Bool); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// FuzzPlaces writes any text as a scalar in every style that YAML has for it: each of its characters is where places says.
func FuzzPlaces(f *testing.F) {
	for _, s := range []string{
		"a > 1", "a\n  && b\n\n\n&& c", " x ", "it's \"quoted\" \\ here", "é\u00a0😀\u2028y", "x\t\ty\n", "a: b # c", "- x", "'", "\"", "\n\nx", "x\r\ny",
		strings.Repeat("word ", 40), strings.Repeat("w", 300), "\x01\x7f", "!x", "&x", "|x", ">x", "%", "\ufeff",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, style := range []yaml.Style{0, yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle, yaml.LiteralStyle, yaml.FoldedStyle} {
			doc := yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
				{Kind: yaml.ScalarNode, Value: "other"},
				{Kind: yaml.ScalarNode, Value: "é"},
				{Kind: yaml.ScalarNode, Value: "filter"},
				{Kind: yaml.ScalarNode, Value: text, Style: style, Tag: "!!str"},
			}}
			out, err := yaml.Marshal(&doc)
			if err != nil {
				continue
			}
			var back yaml.Node
			if err := yaml.Unmarshal(out, &back); err != nil {
				continue // what it writes it does not always read
			}
			n := find(&back)
			if n == nil || n.Value != text {
				continue
			}
			checkPlaces(t, string(out), n)
		}
	})
}

func checkPlaces(t *testing.T, document string, n *yaml.Node) {
	t.Helper()
	src := Source{Line: n.Line, Column: n.Column, Text: n.Value, Document: []byte(document)}
	got, ok := scalarPlaces(src)
	if !ok {
		t.Fatalf("no places for %q in\n%s", n.Value, document)
	}
	at := make(map[place]rune) // what is written where
	where := place{1, 1}
	runes := []rune(strings.TrimPrefix(document, "\ufeff"))
	for i, r := range runes {
		at[where] = r
		if r == '\r' && i+1 < len(runes) && runes[i+1] == '\n' {
			continue
		}
		if where.column++; isBreak(r) {
			where = place{where.line + 1, 1}
		}
	}
	last := place{}
	for i, r := range []rune(n.Value) {
		if p := got[i]; p.line < last.line || p.line == last.line && p.column < last.column {
			t.Fatalf("%q: character %d is at %v, before %v, in\n%s", n.Value, i, p, last, document)
		}
		last = got[i]
		if written := at[got[i]]; !isSpace(r) && written != r && written != '\\' {
			t.Fatalf("%q: %q is at %v, where there is %q, in\n%s", n.Value, r, got[i], written, document)
		}
	}
}
