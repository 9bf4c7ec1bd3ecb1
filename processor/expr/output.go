package expr

import (
	"fmt"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/google/uuid"

	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/serde"
)

// Output is an expression whose results are written as bytes: the key of a record, or a value of one type. It is safe for
// concurrent use.
type Output struct {
	*Program

	format string
	write  func(dst []byte, v ref.Val) (out []byte, reason string, err error)
}

// CompileOutput is [Compile] for a result in a format of package serde, as stores and topics declare it. The format decides which type the
// expression must have.
func CompileOutput(src Source, s *Schema, format string) (*Output, error) {
	want, ok := FormatType(format)
	write := writers(format)
	if !ok || write == nil {
		return nil, &Error{
			File: src.File, Line: src.Line, Column: src.Column,
			Reason: fmt.Sprintf("expressions write no %q", format), Hint: "formats of a schema registry need code",
		}
	}
	p, err := Compile(src, s, want)
	if err != nil {
		return nil, err
	}
	return &Output{Program: p, format: format, write: write}, nil
}

// Format is the name of the format.
func (o *Output) Format() string { return o.format }

// Append appends the bytes of the result; nil means null. An error is an [*EvalError].
func (o *Output) Append(dst []byte, r *Row) ([]byte, error) {
	if raw := o.rawJSON(r); raw != nil {
		return append(dst, raw...), nil
	}
	if dst == nil {
		dst = []byte{}
	}
	if text, ok := o.text(r); ok && o.format == serde.FormatString {
		return append(dst, text...), nil
	}
	v, err := o.eval(r)
	if err != nil {
		return nil, err
	}
	if v == types.NullValue {
		return nil, nil //nolint:nilnil // nil bytes are what null is
	}
	out, reason, err := o.write(dst, v)
	switch {
	case err != nil:
		return nil, o.evalError(ReasonArgument)
	case reason != "":
		return nil, o.evalError(reason)
	}
	return out, nil
}

// writer appends a value of the type T, which the checks made sure of.
func writer[T any, V ref.Val](s serde.Serde[T], of func(V) (T, bool)) func([]byte, ref.Val) ([]byte, string, error) {
	return func(dst []byte, v ref.Val) ([]byte, string, error) {
		x, ok := v.(V)
		if !ok {
			return nil, ReasonType, nil
		}
		t, ok := of(x)
		if !ok {
			return nil, ReasonRange, nil
		}
		out, err := s.Append(dst, t)
		return out, "", err
	}
}

// writers returns what writes a format; nil for one that is not known.
func writers(format string) func([]byte, ref.Val) ([]byte, string, error) {
	toInt := func(n types.Int) (int64, bool) { return int64(n), true }
	toInt32 := func(n types.Int) (int32, bool) { return int32(n), whole(n, 32) }
	toDouble := func(x types.Double) (float64, bool) { return float64(x), true }
	switch format {
	case "", serde.FormatBytes:
		return writer(serde.Bytes(), func(b types.Bytes) ([]byte, bool) { return b, true })
	case serde.FormatString:
		return writer(serde.String(), func(s types.String) (string, bool) { return string(s), true })
	case serde.FormatBool:
		return writer(serde.Bool(), func(b types.Bool) (bool, bool) { return bool(b), true })
	case serde.FormatInt16:
		return writer(serde.Int16(), func(n types.Int) (int16, bool) { return int16(n), whole(n, 16) })
	case serde.FormatInt32:
		return writer(serde.Int32(), toInt32)
	case serde.FormatInt64:
		return writer(serde.Int64(), toInt)
	case serde.FormatOrderedInt32:
		return writer(serde.OrderedInt32(), toInt32)
	case serde.FormatOrderedInt64:
		return writer(serde.OrderedInt64(), toInt)
	case serde.FormatFloat:
		return writer(serde.Float32(), func(x types.Double) (float32, bool) { return float32(x), fitsFloat(x) })
	case serde.FormatDouble:
		return writer(serde.Float64(), toDouble)
	case serde.FormatOrderedDouble:
		return writer(serde.OrderedFloat64(), toDouble)
	case serde.FormatTime:
		return func(dst []byte, v ref.Val) ([]byte, string, error) {
			t, ok := v.(types.Timestamp)
			if !ok {
				return nil, ReasonType, nil
			}
			out, err := serde.Time().Append(dst, t.Time)
			return out, "", err
		}
	case serde.FormatUUID:
		return writer(serde.UUID(), func(s types.String) (uuid.UUID, bool) {
			u, err := uuid.Parse(string(s))
			return u, err == nil && len(s) == len(u.String())
		})
	case serde.FormatJSON:
		return func(dst []byte, v ref.Val) ([]byte, string, error) {
			out, reason := appendJSON(dst, v)
			return out, reason, nil
		}
	default:
		return nil
	}
}

// Field is a computed column of an [Object].
type Field struct {
	Name    string
	Program *Program
}

// Object is computed columns as a JSON object. It is safe for concurrent use.
type Object struct {
	fields []Field
	names  [][]byte // `"name":`, with the comma before all but the first
}

// NewObject returns an object of these columns, in this order. Names that are not given, or given twice, are a [*SchemaError].
func NewObject(fields []Field) (*Object, error) {
	o := &Object{fields: slices.Clone(fields)}
	for i, f := range fields {
		path := fmt.Sprintf("columns[%d].name", i)
		if f.Name == "" {
			return nil, &SchemaError{Path: path, Reason: "a column needs a name"}
		}
		if slices.ContainsFunc(fields[:i], func(g Field) bool { return g.Name == f.Name }) {
			return nil, &SchemaError{Path: path, Reason: fmt.Sprintf("%q is given twice", f.Name)}
		}
		o.names = append(o.names, append(decode.AppendString(nil, []byte(f.Name)), ':'))
	}
	return o, nil
}

// Append appends the object of the record of a row: every column that is not null, in the order of the declaration. An error is
// an [*EvalError].
func (o *Object) Append(dst []byte, r *Row) ([]byte, error) {
	dst = append(dst, '{')
	open := len(dst)
	for i, f := range o.fields {
		before := len(dst)
		if before > open {
			dst = append(dst, ',')
		}
		dst = append(dst, o.names[i]...)
		value := len(dst)
		out, err := f.Program.AppendJSON(dst, r)
		if err != nil {
			return nil, err
		}
		if dst = out; string(dst[value:]) == "null" {
			dst = dst[:before]
		}
	}
	return append(dst, '}'), nil
}

// Columns describes what [Object.Append] writes, for expressions over it: a [Layout] of format json. All are optional.
func (o *Object) Columns() []Column {
	columns := make([]Column, len(o.fields))
	for i, f := range o.fields {
		columns[i] = Column{Name: f.Name, Type: f.Program.Type(), Optional: true}
	}
	return columns
}
