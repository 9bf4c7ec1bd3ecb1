package expr

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

func validJSON(b []byte) bool { return json.Valid(b) && utf8.Valid(b) }

// parseJSON makes a value of valid JSON. Numbers are doubles, as everywhere in CEL.
func parseJSON(b []byte) ref.Val {
	p := jsonParser{b, 0}
	return p.value()
}

// jsonParser reads JSON that is known to be valid.
type jsonParser struct {
	text []byte
	at   int
}

// next skips white space and returns the byte that follows, which stays.
func (p *jsonParser) next() byte {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return c
		}
	}
	return 0
}

func (p *jsonParser) value() ref.Val {
	switch c := p.next(); c {
	case '{':
		return p.object()
	case '[':
		return p.array()
	case '"':
		return types.String(p.string())
	case 't':
		p.at += len("true")
		return types.True
	case 'f':
		p.at += len("false")
		return types.False
	case 'n', 0:
		p.at += len("null")
		return types.NullValue
	default:
		return p.number()
	}
}

func (p *jsonParser) object() ref.Val {
	m := make(map[string]any)
	for p.at++; ; p.at++ {
		if p.next() == '}' {
			break
		}
		name := p.string()
		p.next() // the colon
		p.at++
		m[name] = p.value()
		if p.next() != ',' {
			break
		}
	}
	p.at++
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, m)
}

func (p *jsonParser) array() ref.Val {
	var list []ref.Val
	for p.at++; ; p.at++ {
		if p.next() == ']' {
			break
		}
		list = append(list, p.value())
		if p.next() != ',' {
			break
		}
	}
	p.at++
	return types.NewRefValList(types.DefaultTypeAdapter, list)
}

// string reads a string; most have no escapes.
func (p *jsonParser) string() string {
	start := p.at
	escaped := false
	for p.at++; p.text[p.at] != '"'; p.at++ {
		if p.text[p.at] == '\\' {
			escaped = true
			p.at++
		}
	}
	p.at++
	quoted := p.text[start:p.at]
	if !escaped {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return "" // it is valid
	}
	return s
}

// number reads a number. One beyond the range of float64 is infinite.
func (p *jsonParser) number() ref.Val {
	start := p.at
	for p.at < len(p.text) && bytes.IndexByte([]byte("+-.eE0123456789"), p.text[p.at]) >= 0 {
		p.at++
	}
	x, _ := strconv.ParseFloat(string(p.text[start:p.at]), 64) // at the limits it is what is wanted
	return types.Double(x)
}

// appendJSON appends the form of a value in JSON: bytes as base64, instants as RFC 3339, durations as text, members sorted by
// name. reason is not empty for what has no form, and for lists and maps that are longer than [MaxValueBytes].
func appendJSON(b []byte, v ref.Val) (out []byte, reason string) {
	w := jsonWriter{limit: len(b) + MaxValueBytes}
	return w.value(b, v)
}

// jsonWriter stops at a limit: a list may stand in another any number of times.
type jsonWriter struct{ limit int }

func (w jsonWriter) value(b []byte, v ref.Val) (out []byte, reason string) {
	switch v := v.(type) {
	case types.Null:
		return append(b, "null"...), ""
	case types.Bool:
		return strconv.AppendBool(b, bool(v)), ""
	case types.Int:
		return strconv.AppendInt(b, int64(v), 10), ""
	case types.Uint:
		return strconv.AppendUint(b, uint64(v), 10), ""
	case types.Double:
		if x := float64(v); !math.IsNaN(x) && !math.IsInf(x, 0) {
			return decode.AppendNumber(b, x), ""
		}
		return nil, ReasonRange
	case types.String:
		return decode.AppendString(b, []byte(v)), ""
	case types.Bytes:
		return decode.AppendBase64(b, []byte(v)), ""
	case types.Timestamp:
		return decode.AppendTime(b, v.Time), ""
	case types.Duration:
		return decode.AppendDuration(b, v.Duration), ""
	case traits.Lister:
		return w.list(b, v)
	case traits.Mapper:
		return w.object(b, v)
	default:
		return nil, ReasonType
	}
}

func (w jsonWriter) list(b []byte, list traits.Lister) (out []byte, reason string) {
	b = append(b, '[')
	for it, first := list.Iterator(), true; it.HasNext() == types.True; first = false {
		if !first {
			b = append(b, ',')
		}
		if b, reason = w.value(b, it.Next()); reason != "" {
			return nil, reason
		}
		if len(b) > w.limit {
			return nil, ReasonLarge
		}
	}
	return append(b, ']'), ""
}

func (w jsonWriter) object(b []byte, m traits.Mapper) (out []byte, reason string) {
	type member struct {
		name []byte
		key  ref.Val
	}
	var members []member
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		var name []byte
		switch k := key.(type) {
		case types.String:
			name = []byte(k)
		case types.Int, types.Uint, types.Bool:
			name, _ = w.value(nil, k)
		default:
			return nil, ReasonType
		}
		members = append(members, member{name, key})
	}
	slices.SortFunc(members, func(x, y member) int { return bytes.Compare(x.name, y.name) })
	b = append(b, '{')
	for i, x := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(decode.AppendString(b, x.name), ':')
		if b, reason = w.value(b, m.Get(x.key)); reason != "" {
			return nil, reason
		}
		if len(b) > w.limit {
			return nil, ReasonLarge
		}
	}
	return append(b, '}'), ""
}
