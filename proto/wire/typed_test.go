package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

func formatOf(t *testing.T, name string) serde.Format {
	t.Helper()
	f, err := serde.Builtin().Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Every format that is built in, but bytes, has a typed form that comes back as the same bytes. Empty, false and zero are
// values.
func TestTypedBothWays(t *testing.T) {
	t.Parallel()
	samples := map[string][]any{
		serde.FormatString: {"", "a", "ü\x00"}, serde.FormatBool: {true, false}, serde.FormatInt16: {int64(0), int64(-32768)},
		serde.FormatInt32: {int64(0), int64(1<<31 - 1)}, serde.FormatInt64: {int64(0), int64(-1)},
		serde.FormatFloat: {0.0, 0.5}, serde.FormatDouble: {0.0, 0.1, -1e300},
		serde.FormatUUID: {"6ba7b810-9dad-11d1-80b4-00c04fd430c8"}, serde.FormatTime: {"2013-01-01T06:00:00.000Z"},
		serde.FormatJSON:         {json.RawMessage(`{"a":[1,null]}`), json.RawMessage(`""`), json.RawMessage(`null`)},
		serde.FormatOrderedInt32: {int64(-5)}, serde.FormatOrderedInt64: {int64(-5)}, serde.FormatOrderedDouble: {-0.25},
	}
	for _, name := range serde.Builtin().Names() {
		if name == serde.FormatBytes {
			continue
		}
		if len(samples[name]) == 0 {
			t.Errorf("%s: no sample", name)
		}
		f := formatOf(t, name)
		for _, v := range samples[name] {
			want, err := f.Encode(v)
			if err != nil {
				t.Fatal(name, v, err)
			}
			m, err := FromTyped(f, want)
			if err != nil {
				t.Fatal(name, v, err)
			}
			got, err := ToTyped("typed_key", f, reread(t, m, &statemeshv1.TypedValue{}))
			if err != nil || got == nil || !bytes.Equal(got, want) {
				t.Errorf("%s: % x became %v and % x, %v", name, want, m, got, err)
			}
		}
	}
}

// What does not fit the format, says nothing, or has no typed form is refused, and no error quotes what it is about.
func TestTypedRefused(t *testing.T) {
	t.Parallel()
	unknown := &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_StringValue{StringValue: "canary"}}
	unknown.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	str := &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_StringValue{StringValue: "canary"}}
	for name, c := range map[string]struct {
		format string
		m      *statemeshv1.TypedValue
	}{
		"nothing set":   {"string", &statemeshv1.TypedValue{}},
		"unknown":       {"string", unknown},
		"text":          {"int64", str},
		"no whole":      {"int64", &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_DoubleValue{DoubleValue: 0.5}}},
		"above int32":   {"int32", &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_Int64Value{Int64Value: 1 << 31}}},
		"no uuid":       {"uuid", str},
		"no json":       {"json", &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_JsonValue{JsonValue: "{canary"}}},
		"bool for text": {"string", &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_BoolValue{BoolValue: true}}},
	} {
		b, err := ToTyped("typed_key", formatOf(t, c.format), c.m)
		if !errors.Is(err, store.ErrInvalidRequest) || bytes.Contains([]byte(err.Error()), []byte("canary")) {
			t.Errorf("%s: % x, %v", name, b, err)
		}
	}
	for format, b := range map[string][]byte{
		"string": []byte("canary\xff"), "int64": []byte("canary"), "bool": {7}, "json": []byte("{canary"), "bytes": []byte("canary"),
	} {
		m, err := FromTyped(formatOf(t, format), b)
		if err == nil || bytes.Contains([]byte(err.Error()), []byte("canary")) {
			t.Errorf("%s: %v, %v", format, m, err)
		}
	}
	if _, err := ToFormat(77); !errors.Is(err, store.ErrInvalidRequest) {
		t.Error(err)
	}
}
