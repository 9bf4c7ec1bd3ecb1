package expr

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

func TestColumns(t *testing.T) {
	t.Parallel()
	at := time.Date(2013, 1, 1, 10, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		typ       Type
		json, csv string // empty: not in this format
		want      any
		reason    string
	}{
		{String, `"é"`, `é`, "é", ""},
		{String, `1`, ``, nil, "wrong type"},
		{String, `"\u0041"`, ``, "A", ""},
		{Int, `12`, `12`, int64(12), ""},
		{Int, `-9223372036854775808`, `-9223372036854775808`, int64(math.MinInt64), ""},
		{Int, `9223372036854775808`, `9223372036854775808`, nil, "number out of range"},
		{Int, `1.0`, `1.0`, nil, "not a number"},
		{Int, `"12"`, ``, nil, "wrong type"},
		{Int, ``, `x`, nil, "not a number"},
		{Double, `2`, `2`, 2.0, ""},
		{Double, `1e400`, `1e400`, nil, "number out of range"},
		{Double, ``, `NaN`, nil, "not a number"},
		{Double, `true`, `true`, nil, ""},
		{Bool, `true`, `true`, true, ""},
		{Bool, `false`, `false`, false, ""},
		{Bool, `"true"`, `TRUE`, nil, "wrong type"},
		{Bytes, `"AAEC"`, `AAEC`, []byte{0, 1, 2}, ""},
		{Bytes, `"x"`, `x`, nil, "invalid base64"},
		{Timestamp, `"2013-01-01T12:00:00+02:00"`, `2013-01-01T10:00:00Z`, at, ""},
		{Timestamp, `1357034400000`, `1357034400000`, at, ""},
		{Timestamp, `-1`, `-1`, time.UnixMilli(-1).UTC(), ""},
		{Timestamp, `1.5`, `yesterday`, nil, "invalid timestamp"},
		{Timestamp, `253402300800000`, `253402300800000`, nil, "invalid timestamp"},
		{Timestamp, `"9999-12-31T23:59:59-14:00"`, ``, nil, "invalid timestamp"},
		{Duration, `"1h30m"`, `1h30m`, 90 * time.Minute, ""},
		{Duration, `1500`, `1500`, 1500 * time.Millisecond, ""},
		{Duration, `9223372036854775807`, `9223372036854775807`, nil, "invalid duration"},
		{Duration, `1.5`, `soon`, nil, "invalid duration"},
		{JSON, `{"b":12345678901234567890,"a":[]}`, ``, json.RawMessage(`{"b":12345678901234567890,"a":[]}`), ""},
		{JSON, `"a\nb"`, ``, json.RawMessage(`"a\nb"`), ""},
		{JSON, ``, `[1]`, json.RawMessage(`[1]`), ""},
		{JSON, ``, `[1`, nil, "invalid json"},
	} {
		read := func(l Layout, text string) {
			l.Columns = []Column{{Name: "v", Type: tt.typ}}
			s := mustSchema(t, l)
			p := mustCompile(t, s, "v", Any)
			r := mustRow(t, s, p)
			err := r.Set(value(text), processor.RecordMetadata{})
			if tt.want == nil {
				if reason := reasonOf(err); reason == "" || tt.reason != "" && reason != tt.reason {
					t.Errorf("%s %s: %v, want %s", tt.typ, text, err, tt.reason)
				}
				return
			}
			if err != nil {
				t.Errorf("%s %s: %v", tt.typ, text, err)
				return
			}
			if got, err := p.Value(r); err != nil || cmp.Diff(tt.want, got) != "" {
				t.Errorf("%s %s: %v, %v, want %v", tt.typ, text, got, err, tt.want)
			}
		}
		if tt.json != "" {
			read(Layout{Format: JSONObject}, `{"v":`+tt.json+`}`)
		}
		if tt.csv != "" {
			read(Layout{Format: CSV}, tt.csv)
			read(Layout{Format: Text}, tt.csv)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	s := mustSchema(t, flights)
	optional, required, neither := mustCompile(t, s, "has(delay)", Bool), mustCompile(t, s, `origin == "EWR"`, Bool), mustCompile(t, s, "offset == 0", Bool)
	for _, tt := range []struct {
		value  []byte
		p      *Program
		reason string
	}{
		{[]byte("UA,EWR,"), optional, ""},
		{[]byte("UA,,"), optional, ""}, // nobody looks at it
		{[]byte("UA,,"), required, "missing field"},
		{[]byte("UA,EWR"), neither, "wrong number of columns"},
		{nil, optional, ""},
		{nil, required, "null value"},
		{nil, neither, ""},
	} {
		r := mustRow(t, s, tt.p)
		err := r.Set(&processor.Record{Value: tt.value}, processor.RecordMetadata{})
		if reasonOf(err) != tt.reason {
			t.Errorf("%q, %s: %v, want %q", tt.value, tt.p.source.Text, err, tt.reason)
		}
		if err != nil {
			continue
		}
		if _, err := tt.p.Bool(r); err != nil {
			t.Errorf("%q, %s: %v", tt.value, tt.p.source.Text, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	at := time.Date(2013, 1, 1, 10, 0, 0, 0, time.UTC)
	for format, tt := range map[string]struct{ in, want any }{
		"bytes": {[]byte{1, 0xff}, []byte{1, 0xff}}, "string": {"é", "é"}, "bool": {true, true}, "int16": {int64(-3), int64(-3)},
		"int32": {int64(7), int64(7)}, "int64": {int64(math.MinInt64), int64(math.MinInt64)}, "ordered-int32": {int64(-7), int64(-7)},
		"ordered-int64": {int64(5), int64(5)}, "float": {1.5, 1.5}, "double": {-2.25, -2.25}, "ordered-double": {0.5, 0.5},
		"uuid": {"123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"}, "time": {at, at},
		"json": {json.RawMessage(`{"b":1,"a":2}`), json.RawMessage(`{"a":2,"b":1}`)},
	} {
		f, err := serde.Builtin().Lookup(format)
		if err != nil {
			t.Fatal(err)
		}
		key, err := f.Encode(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		s := mustSchema(t, Layout{Format: Text, KeyFormat: format, Columns: []Column{{Name: "v", Type: String}}})
		p := mustCompile(t, s, "key", Any)
		o, err := CompileOutput(Source{Text: "key"}, s, format)
		if err != nil {
			t.Fatal(format, err)
		}
		r := mustRow(t, s, p, o.Program)
		if err := r.Set(&processor.Record{Key: key, Value: []byte("x")}, processor.RecordMetadata{}); err != nil {
			t.Fatal(format, err)
		}
		if got, err := p.Value(r); err != nil || cmp.Diff(tt.want, got) != "" {
			t.Errorf("%s: %v, %v, want %v", format, got, err, tt.want)
		}
		if again, err := o.Append(nil, r); err != nil || format != "json" && string(again) != string(key) {
			t.Errorf("%s: written %x, %v, was %x", format, again, err, key)
		}
		if err := r.Set(&processor.Record{Value: []byte("x")}, processor.RecordMetadata{}); reasonOf(err) != "null key" {
			t.Errorf("%s, no key: %v", format, err)
		}
		if format != "bytes" && format != "string" {
			if err := r.Set(&processor.Record{Key: []byte{2}, Value: []byte("x")}, processor.RecordMetadata{}); reasonOf(err) != "invalid key" && format != "json" {
				t.Errorf("%s, a wrong key: %v", format, err)
			}
		}
	}
	s := mustSchema(t, Layout{Format: Text, KeyFormat: "string", Columns: []Column{{Name: "v", Type: String}}})
	r := mustRow(t, s, mustCompile(t, s, "key", Any))
	if err := r.Set(&processor.Record{Key: []byte("\xff"), Value: []byte("x")}, processor.RecordMetadata{}); reasonOf(err) != "invalid utf-8" {
		t.Errorf("a key that is no text: %v", err)
	}
}

func TestForeignRows(t *testing.T) {
	t.Parallel()
	one, two := mustSchema(t, flights), mustSchema(t, flights)
	p := mustCompile(t, one, "carrier", String)
	if _, err := two.NewRow(p); err == nil {
		t.Error("a row of another schema takes the program")
	}
	for _, r := range []*Row{mustRow(t, two), mustRow(t, one)} {
		if err := r.Set(value("UA,EWR,1"), processor.RecordMetadata{}); err != nil {
			t.Fatal(err)
		}
		if v, err := p.Value(r); err == nil {
			t.Errorf("%v from a row that was not made for it", v)
		}
	}
}
