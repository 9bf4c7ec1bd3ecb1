package expr

import (
	"strings"
	"sync"
	"testing"

	"github.com/statemesh/statemesh/processor"
)

// bigLayout has what an expression could take too long about.
var bigLayout = Layout{Format: JSONObject, Columns: []Column{
	{Name: "s", Type: String}, {Name: "t", Type: String}, {Name: "items", Type: JSON}, {Name: "nested", Type: JSON},
}}

func bigRecord(text, other string, items int) *processor.Record {
	list := "[1" + strings.Repeat(",1", max(items-1, 0)) + "]"
	return value(`{"s":"` + text + `","t":"` + other + `","items":` + list + `,"nested":[[` + list + `]]}`)
}

// TestLimits: what an expression may take of a task ends with a reason.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, bigLayout)
	huge := strings.Repeat("a", 700_000)
	for _, tt := range []struct {
		text, reason string
		record       *processor.Record
	}{
		{"items.all(a, items.all(b, items.all(c, true)))", ReasonCost, bigRecord("", "", 300)},
		{"items.map(a, items.map(b, s + s))", ReasonCost, bigRecord(huge[:2000], "", 3000)},
		{"items.exists(a, s.contains(t))", ReasonCost, bigRecord(huge, "b", 3000)},
		{"items.exists(a, murmur2(s) == 1)", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, s.indexOf(t) == 1)", ReasonCost, bigRecord(huge, "b", 3000)},
		{"items.exists(a, size(s) == 1)", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, s.size() == 1)", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, double(s) == 1.0)", ReasonCost, bigRecord(strings.Repeat("1", 300_000), "", 3000)},
		{"items.exists(a, s in {'a': 1})", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, bytes(s) == b'')", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, joinKey(s, s) == '')", ReasonCost, bigRecord(huge[:200_000], "", 3000)},
		{"items.exists(a, '%s'.format([s]) == '')", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, s.format(items) == '')", ReasonCost, bigRecord(huge, "", 10_000)},
		{"items.exists(a, fromMillis(0).format(s) == '')", ReasonArgument, bigRecord(huge, "", 3000)},
		{"items.exists(a, s.split('') == [])", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.exists(a, s.matches('b$'))", ReasonCost, bigRecord(huge[:60_000], "", 3000)},
		{"items.exists(a, regex.extractAll(s, 'b$') == ['b'])", ReasonCost, bigRecord(huge[:60_000], "", 3000)},
		{"items.exists(a, regex.extract(s, 'b$').hasValue())", ReasonCost, bigRecord(huge[:60_000], "", 3000)},
		{"items.exists(a, s.lowerAscii() == '')", ReasonCost, bigRecord(huge, "", 3000)},
		{"items.map(a, items.map(b, items))", ReasonCost, bigRecord("", "", 3000)},
		{"cel.bind(x, items.map(a, items), x.map(y, y.map(z, x)))", ReasonCost, bigRecord("", "", 1000)},
		{"items.exists(a, items == items && a > 2.0)", ReasonCost, bigRecord("", "", 10_000)},
		{"items.exists(a, nested == nested && a > 2.0)", ReasonCost, bigRecord("", "", 10_000)},
		{"items.exists(a, nested in [nested] && a > 2.0)", ReasonCost, bigRecord("", "", 10_000)},
		{"items.exists(a, {'x': nested} == {'x': nested} && a > 2.0)", ReasonCost, bigRecord("", "", 10_000)},
		{"s + s", ReasonLarge, bigRecord(huge, "", 1)},
		{"bytes(s) + bytes(s)", ReasonLarge, bigRecord(huge, "", 1)},
		{"s.replace('', t)", ReasonLarge, bigRecord(huge, huge, 1)},
		{"s.replace('a', t, 10)", ReasonLarge, bigRecord(huge, huge, 1)},
		{"s.split('').join(t)", ReasonLarge, bigRecord(huge, "long", 1)},
		{"'%s%s%s%s%s%s%s%s%s%s%s%s'.format([s, s, s, s, s, s, s, s, s, s, s, s])", ReasonLarge, bigRecord(huge, "", 1)},
		{"joinKey(s, s)", ReasonLarge, bigRecord(huge, "", 1)},
		{"s.matches('^(a+)+$')", ReasonLarge, bigRecord(huge, "", 1)},
		{"regex.extractAll(s, 'a')", ReasonLarge, bigRecord(huge, "", 1)},
		{"regex.extract(s, 'a').orValue('')", ReasonLarge, bigRecord(huge, "", 1)},
		{"[items, items, items, items] == [items, items, items, items]", ReasonLarge, bigRecord("", "", 300_000)},
		{"[items, items, items, items] != [items, items, items, items]", ReasonLarge, bigRecord("", "", 300_000)},
		{"nested in [[items, items, items, items]]", ReasonLarge, bigRecord("", "", 300_000)},
		{"optional.of([items, items, items, items]) == optional.of([items, items, items, items])", ReasonLarge, bigRecord("", "", 300_000)},
		{"cel.bind(z, [1], " + bindDoubling(40) + "z == z" + strings.Repeat(")", 41), ReasonCost, bigRecord("", "", 1)},
		{"cel.bind(z, [1], " + bindDoubling(40) + "{'x': z} == {'x': z}" + strings.Repeat(")", 41), ReasonCost, bigRecord("", "", 1)},
		{"cel.bind(z, [1], " + bindDoubling(40) + "z in [z]" + strings.Repeat(")", 41), ReasonCost, bigRecord("", "", 1)},
		{"cel.bind(z, [1], " + bindDoubling(40) + "z" + strings.Repeat(")", 41), ReasonLarge, bigRecord("", "", 1)},
		{"items.map(a, items)", ReasonLarge, bigRecord("", "", 10_000)},
		{"{'a': s, 'b': s}", ReasonLarge, bigRecord(huge, "", 1)},
		// What is within them has a result.
		{"items.all(a, items.all(b, a == b))", "", bigRecord("", "", 100)},
		{"s.matches('^(a+)+$')", "", bigRecord(huge[:MaxMatchBytes], "", 1)},
		{"size(regex.extractAll(s, 'a')) == 65536", "", bigRecord(huge[:MaxMatchBytes], "", 1)},
		{"s.indexOf(t + 'b') < 0 && s.lastIndexOf('b' + t) < 0", "", bigRecord(huge, huge[:300_000], 1)},
		{"s.contains(t)", "", bigRecord(huge, huge[:100_000], 1)},
		{"s.replace('a', 'b') != s", "", bigRecord(huge, "", 1)},
		{"[items, items] == [items, items]", "", bigRecord("", "", 300_000)},
		{"cel.bind(x, items, 2.0 in x)", "", bigRecord("", "", 300_000)},
		{"cel.bind(x, items, x == x)", "", bigRecord("", "", 300_000)},
		{"cel.bind(x, [[[[[[[[[[items]]]]]]]]]], x == x)", "", bigRecord("", "", 100)},
		{"items == t", "", bigRecord("", "", 300_000)},
		{"1.0 in nested[0]", "", bigRecord("", "", 300_000)},
		{"size(s.split('a')) > 5", "", bigRecord(huge, "", 1)},
	} {
		t.Run(tt.text[max(len(tt.text)-60, 0):], func(t *testing.T) {
			p := mustCompile(t, s, tt.text, Any)
			r := mustRow(t, s, p)
			if err := r.Set(tt.record, processor.RecordMetadata{}); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Value(r); reasonOf(err) != tt.reason {
				t.Errorf("%v, want %q", err, tt.reason)
			}
		})
	}
}

// bindDoubling begins an expression in which z is a list of lists, n deep, that is its two items twice at each level.
func bindDoubling(n int) string {
	return strings.Repeat("cel.bind(z, [z, z], ", n)
}

func TestLimitsOfText(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, bigLayout)
	for name, text := range map[string]string{
		"length":   "s == '" + strings.Repeat("a", MaxTextLength) + "'",
		"nodes":    strings.Repeat("s + ", MaxNodes) + "s == t",
		"depth":    strings.Repeat("(", 5000) + "s" + strings.Repeat(")", 5000) + " == t",
		"ternary":  strings.Repeat("s == t ? true : ", 500) + "false",
		"list":     strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + " == []",
		"regex":    `s.matches('((a{100}){100}){10}')`,
		"extract":  `regex.extractAll(s, '(?:(?:a{100}){100}){10}') == []`,
		"no regex": `regex.extractAll(s, '(') == []`,
		"members":  "items" + strings.Repeat(".a", 3000) + " == 1",
		"macros":   strings.Repeat("items.exists(x, ", 200) + "true" + strings.Repeat(")", 200),
		"optional": "items" + strings.Repeat(".?a", 3000) + ".hasValue()",
	} {
		if _, err := Compile(Source{File: "f", Text: text}, s, Bool); len(Errors(err)) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMeterOnlyLoops: an expression without loops pays for no meter, and one with them has it.
func TestMeterOnlyLoops(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, bigLayout)
	for text, want := range map[string]bool{
		"s + t == 'x' && has(items)": false, "items.exists(x, x == 1)": true, "cel.bind(x, s, x + x) == t": true, "s in ['a', 'b']": false,
	} {
		p := mustCompile(t, s, text, Bool)
		r := mustRow(t, s, p)
		if err := r.Set(bigRecord("a", "b", 2), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		_, details, err := p.prog.Eval((*activation)(r))
		if metered := details.ActualCost() != nil; err != nil || metered != want {
			t.Errorf("%s: metered %t, %v", text, metered, err)
		}
	}
}

// FuzzSearches: the linear searches answer as the library's do.
func FuzzSearches(f *testing.F) {
	f.Add("abcabc", "bc", int64(2))
	f.Add("é😀é", "é", int64(1))
	f.Add("", "", int64(0))
	f.Add("aaa", "", int64(9))
	f.Add("abc", "abcd", int64(0))
	f.Add("abc", "c", int64(-1))
	s := mustSchema(f, Layout{Format: JSONObject, Columns: []Column{{Name: "s", Type: String}, {Name: "t", Type: String}, {Name: "n", Type: Int}}})
	type pair struct{ ours, theirs *Program }
	var pairs []pair
	for _, text := range []string{"s.indexOf(t)", "s.indexOf(t, n)", "s.lastIndexOf(t)", "s.lastIndexOf(t, n)"} {
		ours := mustCompile(f, s, text, Int)
		checked, issues := s.env.Compile(text)
		if issues.Err() != nil {
			f.Fatal(issues.Err())
		}
		prog, err := s.env.Program(checked)
		if err != nil {
			f.Fatal(err)
		}
		theirs := *ours
		theirs.prog = prog
		pairs = append(pairs, pair{ours, &theirs})
	}
	f.Fuzz(func(t *testing.T, text, sub string, n int64) {
		if len(text) > 1000 || len(sub) > 1000 || n > 1<<31 {
			return
		}
		text, sub = strings.ToValidUTF8(text, "?"), strings.ToValidUTF8(sub, "?")
		r := mustRow(t, s, pairs[1].ours)
		rec := value(`{"s":` + quote(text) + `,"t":` + quote(sub) + `,"n":` + quoteInt(n) + `}`)
		if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			got, err := p.ours.Value(r)
			want, wantErr := p.theirs.Value(r)
			if got != want || reasonOf(err) != reasonOf(wantErr) {
				t.Errorf("%s of %q, %q, %d: %v, %v, the library's %v, %v", p.ours.source.Text, text, sub, n, got, err, want, wantErr)
			}
		}
	})
}

// TestProgramsAreShared: a program, its errors included, is for all tasks at once.
func TestProgramsAreShared(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{{Name: "n", Type: Int}, {Name: "j", Type: JSON}}})
	var programs []*Program
	for _, text := range []string{
		"timestamp(n)", "j + 1", "j.?x.orValue(1)", "optional.of(j).or(optional.of(j)).value()", "n / 0", "j in j", "n", "j", "j.map(x, x)", "string(n) + 'x'",
	} {
		programs = append(programs, mustCompile(t, s, text, Any))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			r, err := s.NewRow(programs...)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 50 {
				rec := value([]string{`{"n":1152921504606846976,"j":1}`, `{"n":1,"j":{"x":2}}`}[i%2])
				if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
					t.Error(err)
				}
				for _, p := range programs {
					if _, err := p.Value(r); err != nil && reasonOf(err) == err.Error() {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
