package expr

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/statemesh/statemesh/processor"
)

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has a form
	}
	return string(b)
}

func quoteInt(n int64) string { return strconv.FormatInt(n, 10) }

// FuzzExpression: no text and no record makes a panic, and what an expression returns has the type that it was said to have.
func FuzzExpression(f *testing.F) {
	record := `{"s":"UA","n":3,"x":1.5,"b":true,"y":"AAEC","at":"2013-01-01T10:00:00Z","d":"1h","j":{"a":[1,{"b":null}],"c":"é"}}`
	for _, text := range []string{
		`s == "UA" && x > 1.0`, `has(os) ? os : s`, `coalesce(ox, x, 0.0) * 2.0`, `j.?a[0].orValue(7)`, `j.a.map(e, e)`, `at.truncate("day")`, `at.format("%Y")`,
		`s.split("").join("-")`, `headers[?"h"].hasValue()`, `cel.bind(v, n * n, v - 1)`, `"%s %d".format([s, n])`, `key`, `joinKey(s, s, s)`, `[n, 1][0] / 0`,
		`{s: j}`, `timestamp(n) + d`, `s.matches("U.*")`, `murmur2(y)`, `1 ? : `, "\x00", `j.a.exists(e, e == e)`, `s.indexOf(s, n)`, `string(y)`, `-n`, `x % 2`,
		`math.greatest([n, 4])`, `dyn(s) + dyn(n)`, `optional.of(j).?a[?0].orValue(0)`, `s.replace("", s)`, `type(j) == map`, `b"\xff" + y`, `fromMillis(n)`,
		`has(j.a) && j.a[1].b == null`, `date(at) + s.substring(n)`, `uint(n)`, `at.getHours("+01:00")`, `at.getHours("Europe/Rome")`, `j["c"] in j`,
	} {
		f.Add(text, record)
	}
	f.Add("j", `{"j":`)
	f.Add("j.a", "s,1,2,true,,,,")
	f.Add("s", `{"s":"x","n":1e999}`)
	columns := []Column{
		{Name: "s", Type: String},
		{Name: "n", Type: Int},
		{Name: "x", Type: Double},
		{Name: "b", Type: Bool},
		{Name: "y", Type: Bytes},
		{Name: "at", Type: Timestamp},
		{Name: "d", Type: Duration},
		{Name: "j", Type: JSON},
	}
	for _, c := range columns[:8] {
		c.Name, c.Optional = "o"+c.Name, true
		columns = append(columns, c)
	}
	var schemas []*Schema
	for _, format := range []Format{JSONObject, CSV} {
		schemas = append(schemas, mustSchema(f, Layout{Format: format, Columns: columns, KeyFormat: "string", KeyOptional: true}))
	}
	f.Fuzz(func(t *testing.T, text, record string) {
		if len(text) > 4000 || len(record) > 4000 {
			return
		}
		for _, s := range schemas {
			p, err := Compile(Source{File: "f", Line: 2, Column: 3, Text: text}, s, Any)
			if err != nil {
				for _, e := range Errors(err) {
					if e.Line < 2 || e.Column < 1 || e.Reason == "" {
						t.Fatalf("%q: %+v", text, e)
					}
				}
				if len(Errors(err)) == 0 {
					t.Fatalf("%q: %v says nothing of a place", text, err)
				}
				return
			}
			evaluate(t, s, p, text, record)
		}
	})
}

func evaluate(t *testing.T, s *Schema, p *Program, text, record string) {
	t.Helper()
	r := mustRow(t, s, p)
	rec := &processor.Record{Key: []byte(record), Value: []byte(record), Timestamp: int64(len(text)), Headers: []processor.Header{{Key: record}}}
	for range 2 {
		err := r.Set(rec, processor.RecordMetadata{Topic: record})
		if err != nil {
			mustBeReason(t, err)
			return
		}
		v, err := p.Value(r)
		out, jsonErr := p.AppendJSON(nil, r)
		if err != nil {
			mustBeReason(t, err)
			return
		}
		if jsonErr != nil {
			if mustBeReason(t, jsonErr); reasonOf(jsonErr) != ReasonRange {
				t.Fatalf("%q: %v, but %v in JSON", text, v, jsonErr)
			}
			continue
		}
		if !json.Valid(out) || utf8.ValidString(record) && !utf8.Valid(out) {
			t.Fatalf("%q is no JSON", out)
		}
		if typ, ok := goType(v); !ok || v != nil && typ != p.Type() && p.Type() != JSON {
			t.Fatalf("%q: %T, want %s", text, v, p.Type())
		}
	}
}

func mustBeReason(t *testing.T, err error) {
	t.Helper()
	if reasonOf(err) == err.Error() {
		t.Fatalf("%T %v has no reason", err, err)
	}
}

// goType is the type of which Value returns such a value.
func goType(v any) (Type, bool) {
	switch v.(type) {
	case nil:
		return 0, true
	case string:
		return String, true
	case int64:
		return Int, true
	case float64:
		return Double, true
	case bool:
		return Bool, true
	case []byte:
		return Bytes, true
	case time.Time:
		return Timestamp, true
	case time.Duration:
		return Duration, true
	case json.RawMessage:
		return JSON, true
	default:
		return 0, false
	}
}
