package accumulate

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// kind is the type of a value.
type kind uint8

// The numbers are written in states: they stay.
const (
	kindInt kind = iota + 1
	kindDouble
	kindString
	kindBool
	kindBytes
	kindTimestamp
	kindDuration
	kindJSON
)

// kindNames are in the order of the constants.
var kindNames = []string{"int", "double", "string", "bool", "bytes", "timestamp", "duration", "json"}

func (k kind) String() string { return kindNames[k-1] }

// kindOf returns 0 for a name that is no type.
func kindOf(name string) kind { return kind(slices.Index(kindNames, name) + 1) }

// ordered are the kinds of which one value can be less than another for a user.
func (k kind) ordered() bool {
	return k == kindInt || k == kindDouble || k == kindString || k == kindTimestamp || k == kindDuration
}

// numeric are the kinds that can be summed.
func (k kind) numeric() bool { return k == kindInt || k == kindDouble }

// value is a value that is not null. Its kind is known from where it is kept.
type value struct {
	n    int64 // of int and duration; 0 or 1 of bool; seconds since 1970 of timestamp
	frac int32 // nanoseconds of timestamp
	f    float64
	text string // of string, bytes and json
}

// null tells that there is no value.
func null(x any) bool {
	if raw, ok := x.(json.RawMessage); ok {
		return len(raw) == 0 || string(raw) == "null"
	}
	return x == nil
}

// check returns why x, which is not null, cannot be a value of this kind; empty when it can.
func (k kind) check(x any) (reason string) {
	var ok bool
	switch k {
	case kindInt:
		_, ok = x.(int64)
	case kindDouble:
		var f float64
		if f, ok = x.(float64); ok && !finite(f) {
			return ReasonRange
		}
	case kindString:
		var s string
		if s, ok = x.(string); ok && !utf8.ValidString(s) {
			return ReasonUTF8
		}
	case kindBool:
		_, ok = x.(bool)
	case kindBytes:
		_, ok = x.([]byte)
	case kindTimestamp:
		var t time.Time
		if t, ok = x.(time.Time); ok && !writable(t.UTC()) {
			return ReasonRange
		}
	case kindDuration:
		_, ok = x.(time.Duration)
	case kindJSON:
		_, ok = x.(json.RawMessage)
	}
	if !ok {
		return ReasonType
	}
	return ""
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// writable tells whether RFC 3339 has a form for an instant.
func writable(t time.Time) bool { return t.Year() >= 0 && t.Year() <= 9999 }

// valueOf makes a value of what was checked. Bytes are copied.
func valueOf(x any) value {
	switch x := x.(type) {
	case int64:
		return value{n: x}
	case float64:
		return value{f: x}
	case string:
		return value{text: x}
	case bool:
		if x {
			return value{n: 1}
		}
	case []byte:
		return value{text: string(x)}
	case time.Time:
		return value{n: x.Unix(), frac: int32(x.Nanosecond())}
	case time.Duration:
		return value{n: int64(x)}
	case json.RawMessage:
		return value{text: string(x)}
	}
	return value{}
}

// compare orders two values of one kind: numbers and instants by size, false before true, everything else by bytes.
func (k kind) compare(a, b value) int {
	switch k {
	case kindDouble:
		return cmp.Compare(a.f, b.f)
	case kindString, kindBytes, kindJSON:
		return strings.Compare(a.text, b.text)
	case kindTimestamp:
		return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.frac, b.frac))
	default:
		return cmp.Compare(a.n, b.n)
	}
}

// appendJSON appends the form of a value in results.
func (k kind) appendJSON(dst []byte, v value) []byte {
	switch k {
	case kindDouble:
		return decode.AppendNumber(dst, v.f)
	case kindString:
		return decode.AppendString(dst, []byte(v.text))
	case kindBool:
		return strconv.AppendBool(dst, v.n != 0)
	case kindBytes:
		return decode.AppendBase64(dst, v.text)
	case kindTimestamp:
		return decode.AppendTime(dst, time.Unix(v.n, int64(v.frac)))
	case kindDuration:
		return decode.AppendDuration(dst, time.Duration(v.n))
	case kindJSON:
		return append(dst, v.text...)
	default:
		return strconv.AppendInt(dst, v.n, 10)
	}
}
