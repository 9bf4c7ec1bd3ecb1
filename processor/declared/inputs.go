package declared

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/internal/accumulate"
)

// inputs are the expressions of an aggregate's columns. What goes to the task of a group is their results and the time of the record,
// not the record: that is smaller, and evaluating can fail only where a handler may decide about it.
type inputs struct {
	columns []input
}

// input is what one function is given; nil programs give nothing.
type input struct{ value, by *expr.Program }

func (in *inputs) programs() (all []*expr.Program) {
	for _, c := range in.columns {
		for _, p := range []*expr.Program{c.value, c.by} {
			if p != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// append evaluates all inputs on a row and writes them behind the time of the record.
func (in *inputs) append(dst []byte, at int64, row *expr.Row) ([]byte, error) {
	dst = binary.AppendVarint(dst, at)
	for _, c := range in.columns {
		for _, p := range [...]*expr.Program{c.value, c.by} {
			if p == nil {
				continue
			}
			v, err := p.Value(row)
			if err != nil {
				return nil, err
			}
			dst = appendValue(dst, v)
		}
	}
	return dst, nil
}

// Tags of values.
const (
	tagNull = iota
	tagInt
	tagDouble
	tagString
	tagFalse
	tagTrue
	tagBytes
	tagTimestamp
	tagDuration
	tagJSON
)

func appendValue(dst []byte, v any) []byte {
	text := func(tag byte, b string) []byte {
		return append(binary.AppendUvarint(append(dst, tag), uint64(len(b))), b...)
	}
	switch v := v.(type) {
	case int64:
		return binary.AppendVarint(append(dst, tagInt), v)
	case float64:
		return binary.BigEndian.AppendUint64(append(dst, tagDouble), math.Float64bits(v))
	case string:
		return text(tagString, v)
	case bool:
		if v {
			return append(dst, tagTrue)
		}
		return append(dst, tagFalse)
	case []byte:
		return text(tagBytes, string(v))
	case time.Time:
		return binary.AppendUvarint(binary.AppendVarint(append(dst, tagTimestamp), v.Unix()), uint64(v.Nanosecond()))
	case time.Duration:
		return binary.AppendVarint(append(dst, tagDuration), int64(v))
	case json.RawMessage:
		return text(tagJSON, string(v))
	default:
		return append(dst, tagNull)
	}
}

var errInputs = errors.New("declared: the inputs of an aggregate are not whole")

// decode reads what append wrote: one input per column, behind into.
func (in *inputs) decode(b []byte, into []accumulate.Input) (all []accumulate.Input, at time.Time, err error) {
	ms, n := binary.Varint(b)
	if n <= 0 {
		return nil, at, errInputs
	}
	b = b[n:]
	for _, c := range in.columns {
		var x accumulate.Input
		if c.value != nil {
			if x.Value, b, err = cutValue(b); err != nil {
				return nil, at, err
			}
		}
		if c.by != nil {
			if x.By, b, err = cutValue(b); err != nil {
				return nil, at, err
			}
		}
		into = append(into, x)
	}
	if len(b) > 0 {
		return nil, at, errInputs
	}
	return into, time.UnixMilli(ms), nil
}

func cutValue(b []byte) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errInputs
	}
	tag, b := b[0], b[1:]
	switch tag {
	case tagNull:
		return nil, b, nil
	case tagFalse, tagTrue:
		return tag == tagTrue, b, nil
	case tagInt, tagDuration:
		n, size := binary.Varint(b)
		if size <= 0 {
			return nil, nil, errInputs
		}
		if tag == tagDuration {
			return time.Duration(n), b[size:], nil
		}
		return n, b[size:], nil
	case tagDouble:
		if len(b) < 8 {
			return nil, nil, errInputs
		}
		return math.Float64frombits(binary.BigEndian.Uint64(b)), b[8:], nil
	case tagTimestamp:
		s, size := binary.Varint(b)
		if size <= 0 {
			return nil, nil, errInputs
		}
		ns, more := binary.Uvarint(b[size:])
		if more <= 0 {
			return nil, nil, errInputs
		}
		return time.Unix(s, int64(ns)).UTC(), b[size+more:], nil
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, errInputs
	}
	text, b := b[size:size+int(n)], b[size+int(n):]
	switch tag {
	case tagString:
		return string(text), b, nil
	case tagBytes:
		return text, b, nil
	case tagJSON:
		return json.RawMessage(text), b, nil
	default:
		return nil, nil, errInputs
	}
}
