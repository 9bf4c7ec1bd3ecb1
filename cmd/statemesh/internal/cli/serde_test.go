package cli

import (
	"bytes"
	"testing"

	"github.com/statemesh/statemesh/serde"
)

// A key typed in a form gives the bytes that the producer's serializer wrote, and shows as it was typed.
func TestKeysThereAndBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form, text string
		want       []byte
	}{
		{"string", "ATL", []byte("ATL")},
		{"int64", "-1", bytes.Repeat([]byte{0xff}, 8)},
		{"int64", "258", []byte{0, 0, 0, 0, 0, 0, 1, 2}},
		{"double", "1.5", []byte{0x3f, 0xf8, 0, 0, 0, 0, 0, 0}},
		{"json", `{"a":1}`, []byte(`{"a":1}`)},
		{"ordered-int32", "-1", []byte{0x7f, 0xff, 0xff, 0xff}},
		{"time", "2013-01-01T10:15:00.000Z", []byte{0, 0, 0x01, 0x3b, 0xf5, 0x9b, 0x64, 0xa0}},
		{"bool", "true", []byte{1}},
	} {
		got, err := parseKey(c.text, c.form)
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s %q: %x, %v; want %x", c.form, c.text, got, err, c.want)
		}
		if back := show(got, c.form).text; back != c.text {
			t.Errorf("%s %q shows as %q", c.form, c.text, back)
		}
	}
	for form, text := range map[string]string{
		"int64": "1.5", "double": "x", "json": "{", "hex": "zz", "base64": "!", "roman": "IV",
	} {
		if _, err := parseKey(text, form); codeOf(err) != exitUsage {
			t.Errorf("%s %q: %v, want a mistake of the user", form, text, err)
		}
	}
	for _, form := range []string{"hex", "base64"} {
		if got, err := parseKey(map[string]string{"hex": "00ff", "base64": "AP8="}[form], form); err != nil || !bytes.Equal(got, []byte{0, 0xff}) {
			t.Errorf("%s: %x, %v", form, got, err)
		}
	}
}

// Values that are not what their store declares are shown all the same.
func TestShowWhatIsNotAsDeclared(t *testing.T) {
	t.Parallel()
	nan, err := serde.Float64().Encode(0)
	if err != nil {
		t.Fatal(err)
	}
	copy(nan, []byte{0x7f, 0xf8})
	for _, c := range []struct {
		data         []byte
		format       string
		text, asJSON string
	}{
		{[]byte("abc"), "int64", `"abc"`, `"abc"`},
		{[]byte{0xff}, "string", "base64:/w==", `"base64:/w=="`},
		{[]byte("{"), "json", `"{"`, `"{"`},
		{[]byte(`{ "a" : 1 }`), "json", `{"a":1}`, `{"a":1}`},
		{nan, "double", "NaN", `"NaN"`},
		{[]byte{}, "bytes", `""`, `""`},
	} {
		if s := show(c.data, c.format); s.text != c.text || string(s.json) != c.asJSON {
			t.Errorf("%q as %s: %s, %s; want %s, %s", c.data, c.format, s.text, s.json, c.text, c.asJSON)
		}
	}
}
