package wire

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/serde"
)

// errNoTypedForm reports what a format decodes to that no message has.
var errNoTypedForm = errors.New("it has no typed form")

// FromTyped makes the message of bytes in a format. The error never quotes them.
func FromTyped(f serde.Format, b []byte) (*statemeshv1.TypedValue, error) {
	v, err := f.Decode(b)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return nil, errNoTypedForm
		}
		return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_StringValue{StringValue: v}}, nil
	case int64:
		return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_Int64Value{Int64Value: v}}, nil
	case float64:
		return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_DoubleValue{DoubleValue: v}}, nil
	case bool:
		return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_BoolValue{BoolValue: v}}, nil
	case json.RawMessage:
		if !utf8.Valid(v) {
			return nil, errNoTypedForm
		}
		return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_JsonValue{JsonValue: string(v)}}, nil
	default:
		return nil, errNoTypedForm
	}
}

// ToTyped reads a message that a caller sent in field, as the bytes of a format. What does not fit the format is an
// *[github.com/statemesh/statemesh/store.InvalidRequestError].
func ToTyped(field string, f serde.Format, m *statemeshv1.TypedValue) ([]byte, error) {
	if err := known(field, m); err != nil {
		return nil, err
	}
	var v any
	switch kind := m.GetKind().(type) {
	case *statemeshv1.TypedValue_StringValue:
		v = kind.StringValue
	case *statemeshv1.TypedValue_Int64Value:
		v = kind.Int64Value
	case *statemeshv1.TypedValue_DoubleValue:
		v = kind.DoubleValue
	case *statemeshv1.TypedValue_BoolValue:
		v = kind.BoolValue
	case *statemeshv1.TypedValue_JsonValue:
		v = json.RawMessage(kind.JsonValue)
	default:
		return nil, invalid(field, "no value is set")
	}
	b, err := f.Encode(v)
	if err != nil {
		return nil, invalid(field, "the store declares "+f.Name+": "+err.Error())
	}
	return b, nil
}

// CheckLookup refuses a lookup with fields that this version does not know.
func CheckLookup(m *statemeshv1.Lookup) error { return known("lookups", m) }

// ToFormat reports whether typed keys and values are asked for.
func ToFormat(f statemeshv1.Format) (typed bool, err error) {
	switch f {
	case statemeshv1.Format_FORMAT_UNSPECIFIED, statemeshv1.Format_FORMAT_BYTES:
		return false, nil
	case statemeshv1.Format_FORMAT_TYPED:
		return true, nil
	default:
		return false, invalid("format", "no such form")
	}
}
