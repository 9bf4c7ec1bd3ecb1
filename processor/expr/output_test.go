package expr

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
)

func TestOutputs(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, flights)
	for _, tt := range []struct{ text, format, want, reason string }{
		{`origin + "/" + carrier`, "string", "EWR/UA", ""},
		{"joinKey(origin, carrier)", "string", views.EncodeKey("EWR", "UA"), ""},
		{"int(coalesce(delay, 0.0))", "int64", string(binary.BigEndian.AppendUint64(nil, 12)), ""},
		{"40000", "int16", "", "number out of range"},
		{"-40000", "int32", "\xff\xff\x63\xc0", ""},
		{"4000000000", "int32", "", "number out of range"},
		{"1e300", "float", "", "number out of range"},
		{`"no"`, "uuid", "", "number out of range"},
		{`b"\x00\xff"`, "bytes", "\x00\xff", ""},
		{"has(delay) ? delay : delay", "double", string(binary.BigEndian.AppendUint64(nil, math.Float64bits(12.5))), ""},
		{`{"z": delay, "a": origin}`, "json", `{"a":"EWR","z":12.5}`, ""},
		{"delay / 0.0", "json", "", "number out of range"},
		{"{1.5: 2}", "json", "", "wrong type"},
	} {
		o, err := CompileOutput(Source{File: "f", Line: 1, Column: 1, Text: tt.text}, s, tt.format)
		if err != nil {
			if tt.text == "{1.5: 2}" {
				continue // CEL refuses the key itself
			}
			t.Errorf("%s as %s: %v", tt.text, tt.format, err)
			continue
		}
		r := mustRow(t, s, o.Program)
		if err := r.Set(value("UA,EWR,12.5"), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		got, err := o.Append([]byte(">"), r)
		if reasonOf(err) != tt.reason || err == nil && string(got) != ">"+tt.want {
			t.Errorf("%s as %s: %q, %v, want %q %s", tt.text, tt.format, got, err, tt.want, tt.reason)
		}
	}
	if _, err := CompileOutput(Source{File: "f", Line: 3, Column: 4, Text: "origin"}, s, "avro"); err == nil || !strings.HasPrefix(err.Error(), "f:3:4: ") {
		t.Errorf("avro: %v", err)
	}
	if _, err := CompileOutput(Source{File: "f", Line: 3, Column: 4, Text: "origin"}, s, "int64"); err == nil || err.Error() != "f:3:4: the expression is string, want int; write int(...)" {
		t.Errorf("a text as int64: %v", err)
	}
}

func TestNullKey(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{{Name: "k", Type: String, Optional: true}}})
	o, err := CompileOutput(Source{Text: "k"}, s, "string")
	if err != nil {
		t.Fatal(err)
	}
	r := mustRow(t, s, o.Program)
	for text, want := range map[string][]byte{`{}`: nil, `{"k":null}`: nil, `{"k":""}`: {}, `{"k":"x"}`: []byte("x")} {
		if err := r.Set(value(text), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		got, err := o.Append(nil, r)
		if err != nil || (got == nil) != (want == nil) || string(got) != string(want) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, flights)
	var fields []Field
	var programs []*Program
	for _, f := range [][2]string{{"to", "carrier"}, {"late", "delay > 60.0"}, {"delay", "delay"}, {"key", "key"}, {"a \"b\"", "[1, 2]"}, {"at", "timestamp"}} {
		p := mustCompile(t, s, f[1], Any)
		fields, programs = append(fields, Field{f[0], p}), append(programs, p)
	}
	o, err := NewObject(fields)
	if err != nil {
		t.Fatal(err)
	}
	r := mustRow(t, s, programs...)
	rec := value("UA,EWR,61")
	for range 3 {
		if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		got, err := o.Append([]byte(">"), r)
		want := `>{"to":"UA","late":true,"delay":61,"key":"k","a \"b\"":[1,2],"at":"1970-01-01T00:00:00Z"}`
		if err != nil || string(got) != want {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	rec.Value = []byte("UA,EWR,")
	if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
		t.Fatal(err)
	}
	if got, err := o.Append(nil, r); reasonOf(err) != ReasonNull {
		t.Errorf("%s, %v", got, err)
	}
	small, err := NewObject([]Field{{"delay", fields[2].Program}, {"to", fields[0].Program}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := small.Append(nil, r); err != nil || string(got) != `{"to":"UA"}` {
		t.Errorf("%s, %v: null is left out", got, err)
	}
	want := []Column{{Name: "delay", Type: Double, Optional: true}, {Name: "to", Type: String, Optional: true}}
	if diff := cmp.Diff(want, small.Columns()); diff != "" {
		t.Error(diff)
	}
	mustSchema(t, Layout{Format: JSONObject, Columns: small.Columns()})
	for _, names := range [][]Field{{{"", programs[0]}}, {{"a", programs[0]}, {"a", programs[1]}}} {
		if _, err := NewObject(names); err == nil {
			t.Errorf("%v is taken", names)
		}
	}
}

func TestResultsAreCopies(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, Layout{Format: JSONObject, Columns: []Column{{Name: "b", Type: Bytes}, {Name: "j", Type: JSON}, {Name: "s", Type: String}}})
	b, j, k, str := mustCompile(t, s, "b", Any), mustCompile(t, s, "j", Any), mustCompile(t, s, "key", Any), mustCompile(t, s, "s", Any)
	r := mustRow(t, s, b, j, k, str)
	rec := value(`{"b":"AAEC","j":{"x":1},"s":"old"}`)
	if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
		t.Fatal(err)
	}
	var kept []any
	for _, p := range []*Program{b, j, k, str} {
		v, err := p.Value(r)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, v)
	}
	clear(rec.Value)
	clear(rec.Key)
	want := []any{[]byte{0, 1, 2}, json.RawMessage(`{"x":1}`), []byte("k"), "old"}
	if diff := cmp.Diff(want, kept); diff != "" {
		t.Error(diff)
	}
}

func TestDouble(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, flights)
	for text, want := range map[string]float64{"delay": 2.5, "size(carrier)": 2, "delay * 2.0": 5} {
		p := mustCompile(t, s, text, Any)
		r := mustRow(t, s, p)
		if err := r.Set(value("UA,EWR,2.5"), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if x, ok, err := p.Double(r); !ok || err != nil || x != want {
			t.Errorf("%s: %v, %v, %v", text, x, ok, err)
		}
	}
	p, other := mustCompile(t, s, "delay", Any), mustCompile(t, s, "carrier", Any)
	r := mustRow(t, s, p, other)
	if err := r.Set(value("UA,EWR,"), processor.RecordMetadata{}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := p.Double(r); ok || err != nil {
		t.Errorf("null: %v, %v", ok, err)
	}
	if _, _, err := other.Double(r); reasonOf(err) != ReasonType {
		t.Errorf("a text: %v", err)
	}
	if _, err := other.Bool(r); reasonOf(err) != ReasonType {
		t.Errorf("a text: %v", err)
	}
}
