package expr

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// Bool decides about the record of a row. An error is an [*EvalError].
func (p *Program) Bool(r *Row) (bool, error) {
	v, err := p.eval(r)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, p.wrongResult(v)
	}
	return bool(b), nil
}

// Double returns a number, of type double or int; ok is false when it is null. An error is an [*EvalError].
func (p *Program) Double(r *Row) (x float64, ok bool, err error) {
	v, err := p.eval(r)
	if err != nil {
		return 0, false, err
	}
	switch v := v.(type) {
	case types.Double:
		return float64(v), true, nil
	case types.Int:
		return float64(v), true, nil
	case types.Null:
		return 0, false, nil
	default:
		return 0, false, p.wrongResult(v)
	}
}

// Value returns what the expression is for the record of a row: nil, a string, int64, float64, bool, []byte, time.Time,
// time.Duration or, for type JSON, a json.RawMessage. It belongs to the caller. An error is an [*EvalError].
func (p *Program) Value(r *Row) (any, error) {
	if raw := p.rawJSON(r); raw != nil {
		return json.RawMessage(bytes.Clone(raw)), nil
	}
	v, err := p.eval(r)
	if err != nil {
		return nil, err
	}
	if p.typ == JSON {
		b, reason := appendJSON(nil, v)
		if reason != "" {
			return nil, p.evalError(reason)
		}
		return json.RawMessage(b), nil
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil //nolint:nilnil // null is a value
	case types.String:
		return string(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		return float64(v), nil
	case types.Bool:
		return bool(v), nil
	case types.Bytes:
		return bytes.Clone([]byte(v)), nil
	case types.Timestamp:
		return v.Time, nil
	case types.Duration:
		return v.Duration, nil
	default:
		return nil, p.wrongResult(v)
	}
}

// AppendJSON appends the form of the result in JSON; null is null. An error is an [*EvalError].
func (p *Program) AppendJSON(dst []byte, r *Row) ([]byte, error) {
	if raw := p.rawJSON(r); raw != nil {
		return append(dst, raw...), nil
	}
	if text, ok := p.text(r); ok {
		return decode.AppendString(dst, text), nil
	}
	v, err := p.eval(r)
	if err != nil {
		return nil, err
	}
	dst, reason := appendJSON(dst, v)
	if reason != "" {
		return nil, p.evalError(reason)
	}
	return dst, nil
}

// rawJSON is a column of type JSON as the record has it: its numbers are not read and written again.
func (p *Program) rawJSON(r *Row) []byte {
	if p.direct < 0 || p.direct >= len(r.raw) || p.typ != JSON || r.schema != p.schema || !r.used[p.direct] {
		return nil
	}
	return r.raw[p.direct]
}

// text is a column of type string as the record has it, if nothing has asked for its value yet: then none is made of it.
func (p *Program) text(r *Row) (text []byte, ok bool) {
	if p.typ != String || p.direct < 0 || p.direct >= len(r.raw) || r.schema != p.schema || !r.used[p.direct] || p.direct == r.schema.item {
		return nil, false
	}
	return r.raw[p.direct], r.values[p.direct] == nil
}

// eval evaluates the expression.
func (p *Program) eval(r *Row) (ref.Val, error) {
	if r.schema != p.schema {
		return nil, errOtherSchema
	}
	for _, slot := range p.slots {
		if !r.used[slot] {
			return nil, errNotRead
		}
	}
	if p.direct >= 0 {
		return r.value(p.direct), nil
	}
	v, details, err := p.prog.Eval((*activation)(r))
	if err != nil {
		return nil, p.failed(r, err)
	}
	if p.shared {
		if cost := details.ActualCost(); cost != nil {
			r.spent += *cost
		}
		if r.spent > MaxEachCost {
			return nil, p.evalError(ReasonCost)
		}
	}
	if !p.typ.holds(v) { // JSON behind a function that the checker takes at its word, such as orValue(0) of a double
		return nil, p.evalError(ReasonType)
	}
	return v, nil
}

// holds reports whether a value is of a type, or null.
func (t Type) holds(v ref.Val) bool {
	var ok bool
	switch t {
	case String:
		_, ok = v.(types.String)
	case Int:
		_, ok = v.(types.Int)
	case Double:
		_, ok = v.(types.Double)
	case Bool:
		_, ok = v.(types.Bool)
	case Bytes:
		_, ok = v.(types.Bytes)
	case Timestamp:
		_, ok = v.(types.Timestamp)
	case Duration:
		_, ok = v.(types.Duration)
	default:
		return true
	}
	return ok || v == types.NullValue
}

// failed says why there is no result. The library tells in words, which may hold what is in the record: the node at which it
// ended, and the words that it has of its own, say enough.
func (p *Program) failed(r *Row, err error) error {
	if c, ok := errors.AsType[interpreter.EvalCancelledError](err); ok && c.Cause == interpreter.CostLimitExceeded {
		return p.evalError(ReasonCost)
	}
	e, ok := errors.AsType[*types.Err](err)
	if !ok {
		return p.evalError(ReasonArgument)
	}
	out := p.evalError(ReasonArgument)
	if at, ok := p.at[e.NodeID()]; ok {
		out.Line, out.Column = at.line, at.column
	}
	if class, ok := p.classes[e.NodeID()]; ok {
		out.Reason = class
	}
	switch {
	case e.Is(errTooLarge):
		out.Reason = ReasonLarge
	case strings.HasPrefix(e.String(), noOverloadText):
		if out.Reason = ReasonType; r.hasNull(p) {
			out.Reason = ReasonNull
		}
	}
	return out
}

// noOverloadText begins what the library says of an operator or function that does not take what it is given.
var noOverloadText = types.NoSuchOverloadErr().(*types.Err).String()

func (p *Program) wrongResult(v ref.Val) error {
	if v == types.NullValue {
		return p.evalError(ReasonNull)
	}
	return p.evalError(ReasonType)
}

func (p *Program) evalError(reason string) *EvalError {
	return &EvalError{Reason: reason, File: p.source.File, Line: p.start.line, Column: p.start.column}
}

// fromSerde makes a value of what a format of serde decodes.
func fromSerde(v any, typ Type) (ref.Val, bool) {
	switch v := v.(type) {
	case []byte:
		return types.Bytes(v), true
	case string:
		if typ == Timestamp {
			t, err := time.Parse(time.RFC3339Nano, v)
			return types.Timestamp{Time: t.UTC()}, err == nil
		}
		return types.String(v), true
	case int64:
		return types.Int(v), true
	case float64:
		return types.Double(v), true
	case bool:
		return types.Bool(v), true
	case json.RawMessage:
		return parseJSON(v), validJSON(v)
	default:
		return nil, false
	}
}

// whole reports whether a number fits a smaller type of integers.
func whole(n types.Int, bits int) bool {
	limit := int64(1) << (bits - 1)
	return int64(n) >= -limit && int64(n) < limit
}

// fitsFloat reports whether a number is one as a float32.
func fitsFloat(x types.Double) bool {
	return math.Abs(float64(x)) <= math.MaxFloat32 || math.IsInf(float64(x), 0) || math.IsNaN(float64(x))
}
