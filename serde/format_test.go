package serde_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/serde"
)

// What a person types becomes the producers' bytes, and shows as it was typed.
func TestFormatsThereAndBack(t *testing.T) {
	t.Parallel()
	const id = "123e4567-e89b-12d3-a456-426614174000"
	for _, tc := range []struct {
		format, text, want string
		value              any
	}{
		{"bytes", "a", "61", []byte("a")},
		{"", "a", "61", []byte("a")},
		{"string", "hé", "68c3a9", "hé"},
		{"string", "", "", ""},
		{"bool", "true", "01", true},
		{"int16", "-2", "fffe", int64(-2)},
		{"int32", "258", "00000102", int64(258)},
		{"int64", "-1", "ffffffffffffffff", int64(-1)},
		{"int64", "9223372036854775807", "7fffffffffffffff", int64(math.MaxInt64)},
		{"float", "1.5", "3fc00000", 1.5},
		{"double", "-Inf", "fff0000000000000", math.Inf(-1)},
		{"double", "0.1", "3fb999999999999a", 0.1},
		{"uuid", id, text(id), id},
		{"time", "2013-01-01T10:15:00.000Z", "0000013bf59b64a0", "2013-01-01T10:15:00.000Z"},
		{"json", `{"a": 1}`, text(`{"a": 1}`), json.RawMessage(`{"a": 1}`)},
		{"ordered-int32", "-1", "7fffffff", int64(-1)},
		{"ordered-int64", "-1", "7fffffffffffffff", int64(-1)},
		{"ordered-double", "-1.5", "4007ffffffffffff", -1.5},
	} {
		f, err := serde.Builtin().Lookup(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		v, err := f.Parse(tc.text)
		if err != nil {
			t.Errorf("%s %q: %v", tc.format, tc.text, err)
			continue
		}
		b, err := f.Encode(v)
		if err != nil || hex.EncodeToString(b) != tc.want {
			t.Errorf("%s %q: %x, %v, want %s", tc.format, tc.text, b, err, tc.want)
		}
		back, err := f.Decode(b)
		if err != nil || !reflect.DeepEqual(back, tc.value) || serde.Text(back) != tc.text {
			t.Errorf("%s %q came back as %#v (%s), %v", tc.format, tc.text, back, serde.Text(back), err)
		}
		if again, err := f.Encode(back); err != nil || !slices.Equal(again, b) {
			t.Errorf("%s %q encoded again: %x, %v", tc.format, tc.text, again, err)
		}
	}
}

// A format takes the same value in every form in which it comes.
func TestFormatsTake(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1357035300000)
	id := uuid.MustParse("123e4567-e89b-12d3-a456-426614174000")
	type named int16
	for _, tc := range []struct {
		format string
		values []any
	}{
		{"int64", []any{7, int8(7), uint64(7), float32(7), 7.0, json.Number("7"), named(7)}},
		{"int32", []any{7, int64(7), json.Number("7")}},
		{"double", []any{7, uint8(7), float32(7), 7.0, json.Number("7.0")}},
		{"float", []any{0.5, float32(0.5), json.Number("5e-1")}},
		{"time", []any{at, at.In(time.FixedZone("", 7200)), "2013-01-01T10:15:00Z", int64(1357035300000), json.Number("1357035300000"), "1357035300000"}},
		{"uuid", []any{id, id.String(), "123E4567-E89B-12D3-A456-426614174000"}},
		{"json", []any{json.RawMessage(`{"a":1}`), []byte(`{"a":1}`), map[string]any{"a": 1}, struct {
			A int `json:"a"`
		}{1}}},
		{"bytes", []any{[]byte("{}"), "{}", json.RawMessage("{}")}},
	} {
		f, err := serde.Builtin().Lookup(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		want, err := f.Encode(tc.values[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range tc.values[1:] {
			if b, err := f.Encode(v); err != nil || !slices.Equal(b, want) {
				t.Errorf("%s of %T: %x, %v, want %x", tc.format, v, b, err, want)
			}
		}
	}
}

// What is not exactly a value of the format is refused, whatever it is.
func TestFormatsRefuse(t *testing.T) {
	t.Parallel()
	for format, values := range map[string][]any{
		"string":        {1, []byte("a"), nil, true},
		"bytes":         {1, nil},
		"bool":          {"true", 1, nil},
		"int16":         {1 << 15, -1 << 16, "1"},
		"int32":         {int64(1) << 31, json.Number("2147483648"), nil},
		"int64":         {1.5, math.Inf(1), math.NaN(), 1e18, uint64(1) << 63, json.Number("1.0"), json.Number("9223372036854775808"), "1", nil, []int{1}},
		"double":        {"1", int64(1)<<53 + 1, json.Number("1e999"), json.Number("x"), nil},
		"float":         {1e39, "1"},
		"uuid":          {"123e4567e89b12d3a456426614174000", 1, "zzze4567-e89b-12d3-a456-426614174000"},
		"time":          {"yesterday", 1.5, nil},
		"json":          {json.RawMessage("{"), math.NaN(), func() {}},
		"ordered-int32": {int64(1) << 40},
	} {
		f, err := serde.Builtin().Lookup(format)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if b, err := f.Encode(v); !errors.Is(err, serde.ErrEncode) {
				t.Errorf("%s took %T %v as %x, %v", format, v, v, b, err)
			}
		}
	}
	for format, text := range map[string]string{
		"int64": "1.5", "int32": "3000000000", "double": "x", "json": "{", "bool": "yes", "uuid": "1", "time": "now",
	} {
		f, _ := serde.Builtin().Lookup(format)
		if v, err := f.Parse(text); !errors.Is(err, serde.ErrEncode) {
			t.Errorf("%s read %q as %v, %v", format, text, v, err)
		}
	}
	for _, name := range serde.Builtin().Names() {
		f, _ := serde.Builtin().Lookup(name)
		if _, err := f.Decode([]byte("\xffhunter2")); err != nil && !errors.Is(err, serde.ErrDecode) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFormatsLookup(t *testing.T) {
	t.Parallel()
	f := serde.Builtin()
	_, err := f.Lookup("roman")
	if e, ok := errors.AsType[*serde.UnknownFormatError](err); !ok || e.Name != "roman" || !slices.Contains(e.Known, "ordered-double") {
		t.Error(err)
	}
	more := f.With(serde.Format{Name: "roman"}, serde.Format{Name: "json"})
	if _, err := more.Lookup("roman"); err != nil {
		t.Error(err)
	}
	if j, err := more.Lookup("json"); err != nil || j.Decode != nil {
		t.Error("the given one does not take the place", err)
	}
	if j, err := f.Lookup("json"); err != nil || j.Decode == nil || len(f.Names())+1 != len(more.Names()) {
		t.Error("the set has changed", err)
	}
	if _, err := (serde.Formats{}).Lookup("bytes"); !errors.Is(err, serde.ErrUnknownFormat) {
		t.Error(err)
	}
}
