package decode

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
)

// mustBeDeserialization fails the test for an error that no handler could skip.
func mustBeDeserialization(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if _, ok := errors.AsType[*processor.DeserializationError](err); !ok {
		t.Fatalf("%T %v is no DeserializationError", err, err)
	}
}

func columnNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "c" + strconv.Itoa(i)
	}
	return names
}

// readCSV is the decoder's answer: every column, or an error.
func readCSV(value []byte, columns int) ([]string, error) {
	d := NewCSV(columnNames(columns), nil)
	var got []string
	err := d.each(value, func(_ int, data []byte) { got = append(got, string(data)) })
	return got, err
}

func TestCSV(t *testing.T) {
	for _, tt := range []struct {
		value string
		want  []string // nil: refused
	}{
		{"a,b,c", []string{"a", "b", "c"}},
		{",,", []string{"", "", ""}},
		{"a,b,c\n", []string{"a", "b", "c"}},
		{"a,b,c\r\n", []string{"a", "b", "c"}},
		{`"a","b ""x"" ,","c"`, []string{"a", `b "x" ,`, "c"}},
		{"\"a\nb\",\"\",c", []string{"a\nb", "", "c"}},
		{`a,"b"x,c`, nil},
		{`a,b"x,c`, nil},
		{`a,"b,c`, nil},
		{"a,b", nil},
		{"a,b,c,", nil},
		{"a,b,c\nd,e,f", nil},
		{"", nil},
	} {
		got, err := readCSV([]byte(tt.value), 3)
		mustBeDeserialization(t, err)
		if (err != nil) != (tt.want == nil) || err == nil && !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, %v; want %q", tt.value, got, err, tt.want)
		}
	}
	if got, err := readCSV(nil, 1); err != nil || !slices.Equal(got, []string{""}) {
		t.Errorf("an empty value: %q, %v; want one empty field", got, err)
	}
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b,c", `"a","b ""x"" ,",c`, "a,b,c\n", `a"b,c`, `"a"b`, "\"a\nb\",c", "", ",", "\xff,é", `"`} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, value []byte, columns uint8) {
		n := int(columns%8) + 1
		got, err := readCSV(value, n)
		mustBeDeserialization(t, err)
		object, jsonErr := NewCSV(columnNames(n), nil).AppendObject(nil, value)
		if (err == nil) != (jsonErr == nil) {
			t.Fatalf("fields %v, object %v", err, jsonErr)
		}
		if err == nil {
			checkObject(t, object, got)
		}
		// encoding/csv is the judge, where the package documentation says nothing else: carriage returns, and empty
		// lines, which it skips.
		body, _ := bytes.CutSuffix(value, []byte("\n"))
		if bytes.ContainsAny(value, "\r") || len(body) == 0 || body[0] == '\n' || !utf8.Valid(value) {
			return
		}
		r := csv.NewReader(bytes.NewReader(value))
		r.FieldsPerRecord = n
		want, wantErr := r.Read()
		if wantErr == nil {
			if _, more := r.Read(); more != io.EOF {
				wantErr = errors.New("more than one record")
			}
			if bytes.HasSuffix(body, []byte("\n")) && err != nil {
				return // further line breaks at the end are blank lines there
			}
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, encoding/csv %v", value, err, wantErr)
		}
		if err == nil && !slices.Equal(got, want) {
			t.Fatalf("%q: %q, encoding/csv %q", value, got, want)
		}
	})
}

func checkObject(t *testing.T, object []byte, columns []string) {
	t.Helper()
	got := make(map[string]string)
	if err := json.Unmarshal(object, &got); err != nil {
		t.Fatalf("%s: %v", object, err)
	}
	want := make(map[string]string)
	for i, c := range columns {
		if c != "" {
			want["c"+strconv.Itoa(i)] = c
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", object, diff)
	}
}

func TestJSONObjectOfCSV(t *testing.T) {
	d := NewCSV([]string{"a", `q"`, "c", "d"}, nil)
	got, err := d.AppendObject([]byte("x"), []byte("1,\"say \"\"hi\"\"\n\x01\t\",,<é>"))
	want := `x{"a":"1","q\"":"say \"hi\"\n\u0001\t","d":"<é>"}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

var jsonSeeds = []string{
	`{"a":1,"b":{"c":"x","d":[1,{"c":2}]},"a":2}`, `{"b":{"c":1},"b":{}}`, `{"b":{"c":1},"b":3}`, `{"a":"\u00e9\ud83d\ude00\ud83d\n\"\\\/"}`,
	`{"\u0061":true,"b":{"c":null}}`, ` [ 1 , -0.5e+3 , "x" , null ] `, `"x"`, `01`, `-`, `1.`, `1e`, `{"a":}`, `{"a":1,}`, `[1,]`, `{a:1}`,
	`{"a":1} x`, "{\"a\":\"\x01\"}", `{"a":"\x"}`, `{"a":"\u12g4"}`, `tru`, `nulll`, ``, `{"a":"\ud800\u0041"}`, `{"a":"\udc00"}`,
	"{\"a\":\"\xff\"}", `{"a":"\`, `{"a":"\u12`, `{"a":[{"a":1}],"b":{"b":{"c":7}}}`,
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	paths := []string{"a", "b.c", "b", "b.d.c"}
	f.Fuzz(func(t *testing.T, value []byte) {
		valid := json.Valid(value) && utf8.Valid(value)
		err := NewJSON(nil).Decode(value, nil)
		mustBeDeserialization(t, err)
		if (err == nil) != valid {
			t.Fatalf("%q: %v, encoding/json %t", value, err, valid)
		}
		fields := make([]Field, len(paths))
		d := NewJSON(paths)
		err = d.Decode(value, fields)
		mustBeDeserialization(t, err)
		var whole map[string]any
		if !valid || json.Unmarshal(value, &whole) != nil || whole == nil {
			if err == nil {
				t.Fatalf("%q: taken", value)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		dec := json.NewDecoder(bytes.NewReader(value))
		dec.UseNumber()
		if err := dec.Decode(&whole); err != nil {
			t.Fatal(err)
		}
		for i, path := range paths {
			if got, want := describe(fields[i]), describeAny(lookup(whole, path)); got != want {
				t.Fatalf("%q: %s is %s, encoding/json has %s", value, path, got, want)
			}
		}
		if e := AppendString(nil, []byte(describe(fields[0]))); !json.Valid(e) {
			t.Fatalf("%q is no JSON string", e)
		}
		before := slices.Clone(fields)
		if err := d.Decode(value, fields); err != nil || describe(before[0]) != describe(fields[0]) {
			t.Fatalf("%q: the second time is another one: %v", value, err)
		}
	})
}

// lookup follows a path; absent and null are nil.
func lookup(v any, path string) any {
	for step := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[step]
	}
	return v
}

func describe(f Field) string {
	switch f.Kind {
	case Missing:
		return "missing"
	case Composite:
		return "composite"
	case Quoted:
		return "string " + string(f.Data)
	case Number:
		return "number " + string(f.Data)
	case Boolean:
		return "bool " + string(f.Data)
	default:
		return "text " + string(f.Data)
	}
}

func describeAny(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing"
	case string:
		return "string " + v
	case json.Number:
		return "number " + v.String()
	case bool:
		return "bool " + strconv.FormatBool(v)
	default:
		return "composite"
	}
}

func TestJSONDepth(t *testing.T) {
	for depth, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false, 200_000: false} {
		value := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		err := NewJSON(nil).Decode(value, nil)
		mustBeDeserialization(t, err)
		if (err == nil) != ok || json.Valid(value) != ok {
			t.Errorf("depth %d: %v, encoding/json %t", depth, err, json.Valid(value))
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"0", "-0", "1", "-12", "999999999999999", "9007199254740993", "1.5", "1e3", "1e309", "-1e309", "1e-400",
		".5", "5.", "+7", "NaN", "Inf", "0x1p4", "1_0", "", "-", "e", "--1", " 1", "123456789012345678901234567890.5",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseNumber([]byte(s))
		mustBeDeserialization(t, err)
		want, wantErr := strconv.ParseFloat(s, 64)
		decimal := strings.Trim(s, "0123456789+-.eE") == ""
		if ok := wantErr == nil && decimal; ok != (err == nil) {
			t.Fatalf("%q: %v, strconv %v", s, err, wantErr)
		}
		if err != nil {
			return
		}
		if math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%q: %v, strconv %v", s, got, want)
		}
		form := AppendNumber(nil, got)
		again, err := ParseNumber(form)
		if err != nil || math.Float64bits(again) != math.Float64bits(got) {
			t.Fatalf("%q: written %s, read %v, %v", s, form, again, err)
		}
		if std, err := json.Marshal(got); err != nil || string(std) != string(form) {
			t.Fatalf("%q: written %s, encoding/json %s, %v", s, form, std, err)
		}
	})
}
