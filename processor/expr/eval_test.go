package expr

import (
	"errors"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
)

func TestErrorsHoldNoData(t *testing.T) {
	t.Parallel()
	const secret = "secret4711"
	s := mustSchema(t, Layout{Format: JSONObject, KeyFormat: "string", Columns: []Column{
		{Name: "s", Type: String, Optional: true},
		{Name: "j", Type: JSON, Optional: true},
		{Name: "n", Type: Int, Optional: true},
		{Name: "at", Type: Timestamp, Optional: true},
		{Name: "d", Type: Duration, Optional: true},
		{Name: "x", Type: Double, Optional: true},
	}})
	for _, text := range []string{
		"int(s)", "double(s)", "timestamp(s)", "duration(s)", "bool(s)", "j[s]", "j.x[s]", `s.format([1])`, "at.truncate(s)", "at.format(s + '%')",
		"j + 1", "s.substring(99)",
	} {
		p := mustCompile(t, s, text, Any)
		r := mustRow(t, s, p)
		rec := &processor.Record{Key: []byte(secret), Value: []byte(`{"s":"` + secret + `","j":{"x":"` + secret + `"},"at":1}`)}
		if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if v, err := p.Value(r); err == nil && text != `s.format([1])` || err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, %v", text, v, err)
		}
	}
	p := mustCompile(t, s, `string(n) + string(at) + string(d) + string(x) + s + string(j)`, Any)
	r := mustRow(t, s, p)
	for _, v := range []string{`{"n":"` + secret + `"}`, `{"at":"` + secret + `"}`, `{"d":"` + secret + `"}`, `{"x":"` + secret + `"}`, `{"s":4711}`, secret} {
		if err := r.Set(value(v), processor.RecordMetadata{}); err == nil || strings.Contains(err.Error(), "4711") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

func TestEvalErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, flights)
	p, err := Compile(Source{File: "mesh.yaml", Line: 4, Column: 9, Text: "carrier == 'UA' &&\n  delay > 1.0"}, s, Bool)
	if err != nil {
		t.Fatal(err)
	}
	r := mustRow(t, s, p)
	if err := r.Set(value("UA,EWR,"), processor.RecordMetadata{}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Bool(r)
	e, ok := errors.AsType[*EvalError](err)
	if !ok || e.Error() != "mesh.yaml:5:9: null value" || e.DropReason() != ReasonNull {
		t.Errorf("%v", err)
	}
}

func TestSharedErrorsNameThePlace(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{{Name: "n", Type: Int}, {Name: "s", Type: String}}})
	for _, text := range []string{"1 > 2 || timestamp(n).getSeconds() > 0", "1 > 2 || timestamp(s).getSeconds() > 0"} {
		p := mustCompile(t, s, text, Bool)
		r := mustRow(t, s, p)
		if err := r.Set(value(`{"n":1152921504606846976,"s":"0000-01-01T00:00:00Z"}`), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Bool(r); err == nil || err.Error() != "f:1:10: invalid conversion" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLoopVariablesHideColumns(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{
		{Name: "items", Type: JSON}, {Name: "user", Type: JSON}, {Name: "user.id", Type: Int}, {Name: "carrier", Type: String},
	}})
	for text, want := range map[string]string{
		"items.map(user, user.id)":                    "[1,2]",
		"items.map(carrier, carrier.id)":              "[1,2]",
		"items.map(carrier, has(carrier.id))":         "[true,true]",
		"items.map(x, user.id)":                       "[7,7]",
		"items.map(x, carrier)":                       `["UA","UA"]`,
		"cel.bind(carrier, user.id + 1, carrier * 2)": "16",
		"user.id": "7",
		"user":    `{"id":7,"name":"Eve"}`,
	} {
		p := mustCompile(t, s, text, Any)
		r := mustRow(t, s, p)
		if err := r.Set(value(`{"items":[{"id":1},{"id":2}],"user":{"id":7,"name":"Eve"},"carrier":"UA"}`), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if got, err := p.AppendJSON(nil, r); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}
