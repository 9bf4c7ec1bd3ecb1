package serde

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// The names of the formats that are built in: what a store may declare of its keys and values.
const (
	FormatBytes         = "bytes"
	FormatString        = "string"
	FormatBool          = "bool"
	FormatInt16         = "int16"
	FormatInt32         = "int32"
	FormatInt64         = "int64"
	FormatFloat         = "float"
	FormatDouble        = "double"
	FormatUUID          = "uuid"
	FormatTime          = "time"
	FormatJSON          = "json"
	FormatOrderedInt32  = "ordered-int32"
	FormatOrderedInt64  = "ordered-int64"
	FormatOrderedDouble = "ordered-double"

	// What package registry reads, as JSON: bytes that begin with the id of a schema.
	FormatAvro       = "avro"
	FormatJSONSchema = "json-schema"
)

// KnownFormats lists the names that a store may declare: the built-in ones, and those that need a schema registry.
func KnownFormats() []string { return append(Builtin().Names(), FormatAvro, FormatJSONSchema) }

// Format is a serde without its type, found by name: for programs that learn only at run time what a store holds. All
// functions are safe for concurrent use.
type Format struct {
	Name string
	// Decode returns one of []byte, string, int64, float64, bool and json.RawMessage, whatever the type in Go code: a UUID is
	// a string, an instant one as RFC 3339 has it (Unix milliseconds beyond the year 9999). Only []byte and json.RawMessage share memory with b.
	Decode func(b []byte) (any, error)
	// Encode takes what Decode returns, and every other form in which the same value comes: any of Go's types of integers
	// and floats, json.Number, uuid.UUID, time.Time, Unix milliseconds for an instant. A number is taken only when the format
	// holds it exactly, but for the rounding of a decimal to a float. An error is [ErrEncode].
	Encode func(v any) ([]byte, error)
	// Parse reads what a person types and returns what Encode takes. An error is [ErrEncode].
	Parse func(text string) (any, error)
}

// Formats is a set of formats by name. It never changes; the zero value is empty.
type Formats struct {
	list []Format
}

// Builtin returns the formats of this package.
func Builtin() Formats {
	return Formats{list: []Format{
		format(Bytes(), toBytes, func(v []byte) any { return v }, asString),
		format(String(), toString, func(v string) any { return v }, asString),
		format(Bool(), toBool, func(v bool) any { return v }, asBool),
		format(Int16(), toInt[int16], func(v int16) any { return int64(v) }, asNumber),
		format(Int32(), toInt[int32], func(v int32) any { return int64(v) }, asNumber),
		format(Int64(), toInt[int64], func(v int64) any { return v }, asNumber),
		format(Float32(), toFloat32, func(v float32) any { return float64(v) }, asNumber),
		format(Float64(), toFloat64, func(v float64) any { return v }, asNumber),
		format(UUID(), toUUID, func(v uuid.UUID) any { return v.String() }, asString),
		format(Time(), toTime, func(v time.Time) any { return timeText(v) }, asString),
		format(rawJSON(), toJSON, func(v json.RawMessage) any { return v }, asJSON),
		format(OrderedInt32(), toInt[int32], func(v int32) any { return int64(v) }, asNumber),
		format(OrderedInt64(), toInt[int64], func(v int64) any { return v }, asNumber),
		format(OrderedFloat64(), toFloat64, func(v float64) any { return v }, asNumber),
	}}
}

// Lookup returns the format of that name, or an [*UnknownFormatError]. The empty name is "bytes".
func (f Formats) Lookup(name string) (Format, error) {
	if name == "" {
		name = FormatBytes
	}
	for _, x := range f.list {
		if x.Name == name {
			return x, nil
		}
	}
	return Format{}, &UnknownFormatError{Name: name, Known: f.Names()}
}

// Names lists the formats.
func (f Formats) Names() []string {
	names := make([]string, len(f.list))
	for i, x := range f.list {
		names[i] = x.Name
	}
	return names
}

// With returns the formats and more; one of a name that is there takes its place.
func (f Formats) With(more ...Format) Formats {
	list := slices.Clone(f.list)
	for _, m := range more {
		if i := slices.IndexFunc(list, func(x Format) bool { return x.Name == m.Name }); i >= 0 {
			list[i] = m
		} else {
			list = append(list, m)
		}
	}
	return Formats{list: list}
}

// Text is a decoded value for people.
func Text(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case json.RawMessage:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// format makes one of a serde: from takes what may stand for a T, to what Decode returns.
func format[T any](s Serde[T], from func(any) (T, error), to func(T) any, parse func(string) (any, error)) Format {
	name := s.Name()
	return Format{
		Name: name,
		Decode: func(b []byte) (any, error) {
			v, err := s.Decode(b)
			if err != nil {
				return nil, err
			}
			return to(v), nil
		},
		Encode: func(v any) ([]byte, error) {
			t, err := from(v)
			if err != nil {
				return nil, &EncodeError{Type: name, Err: err}
			}
			return s.Encode(t)
		},
		Parse: func(text string) (any, error) {
			v, err := parse(text)
			if err == nil {
				_, err = from(v)
			}
			if err != nil {
				return nil, &EncodeError{Type: name, Err: err}
			}
			return v, nil
		},
	}
}

// rawJSON is any JSON as it is.
func rawJSON() Serde[json.RawMessage] {
	check := func(b []byte) (json.RawMessage, error) {
		if !json.Valid(b) {
			var v any
			return nil, withoutData(json.Unmarshal(b, &v))
		}
		return b, nil
	}
	return New(FormatJSON, func(dst []byte, v json.RawMessage) ([]byte, error) {
		if _, err := check(v); err != nil {
			return nil, err
		}
		return append(dst, v...), nil
	}, check).As(FormatJSON)
}

// timeText is RFC 3339 with the milliseconds that an instant is stored in. It has no years beyond four digits: those
// instants are Unix milliseconds, which are read again too.
func timeText(v time.Time) string {
	if y := v.Year(); y < 0 || y > 9999 {
		return strconv.FormatInt(v.UnixMilli(), 10)
	}
	return v.Format("2006-01-02T15:04:05.000Z07:00")
}

// maxExact is the number up to which every whole number is a float64.
const maxExact = 1 << 53

// isWhole reports whether a float64 is exactly one int64.
func isWhole(x float64) bool { return x == math.Trunc(x) && math.Abs(x) <= maxExact }
