package expr

import (
	"errors"
	"fmt"
	"strings"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
)

// Why an expression has no result for a record: metric labels, so constants.
const (
	// ReasonNull: an operator or function was given null, or the result is null where a value is needed.
	ReasonNull = "null value"
	// ReasonType: what JSON holds has not the type that an operator or function takes.
	ReasonType = "wrong type"
	// ReasonMissing: a key that a map, or an index that a list, does not have.
	ReasonMissing = "missing element"
	// ReasonArithmetic: division by zero, or beyond the range of the type.
	ReasonArithmetic = "arithmetic"
	// ReasonConversion: text that is no number, instant and so on.
	ReasonConversion = "invalid conversion"
	// ReasonArgument: a function does not take this value, such as a negative index.
	ReasonArgument = "invalid argument"
	// ReasonRange: a number that the output's format cannot hold.
	ReasonRange = decode.ReasonRange
	// ReasonLarge: an expression would make a value of more than [MaxValueBytes].
	ReasonLarge = "value too large"
	// ReasonCost: the expression took more than [MaxCost] steps.
	ReasonCost = "cost limit"
)

// Why a record cannot be read, besides what package views knows: reasons of *processor.DeserializationError.
const (
	reasonMissingField = "missing field"
	reasonNullValue    = "null value"
	reasonNullKey      = "null key"
	reasonBadKey       = "invalid key"
	reasonColumnType   = "wrong type"
	reasonTimestamp    = "invalid timestamp"
	reasonDuration     = "invalid duration"
	reasonBase64       = "invalid base64"
)

// Error is one thing that is wrong with an expression, at its place in the file.
type Error struct {
	// File as in [Source].
	File string
	// Line and Column of the culprit, counted from 1, in characters.
	Line, Column int
	// Reason says what is wrong.
	Reason string
	// Found and Want are types, when those are what is wrong; else empty.
	Found, Want string
	// Hint says what to write instead; may be empty.
	Hint string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
	if e.Hint != "" {
		b.WriteString("; ")
		b.WriteString(e.Hint)
	}
	return b.String()
}

// Errors takes an error of [Compile] apart, and several of them that were joined, in the order in which they were found.
func Errors(err error) []*Error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // what is wrapped is found below
		return []*Error{e}
	}
	var all []*Error
	switch x := err.(type) { //nolint:errorlint // it takes the tree apart
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			all = append(all, Errors(e)...)
		}
	case interface{ Unwrap() error }:
		all = Errors(x.Unwrap())
	}
	return all
}

// SchemaError is one thing that is wrong with a [Layout].
type SchemaError struct {
	// Path of what is wrong, such as "columns[2].name".
	Path   string
	Reason string
}

func (e *SchemaError) Error() string { return e.Path + ": " + e.Reason }

// EvalError reports that an expression has no result for a record. It holds nothing of the record: errors are logged, and
// records may hold what must not be.
type EvalError struct {
	// Reason is one of the constants, a metric label.
	Reason string
	// File, Line and Column of the operator, function or column at which evaluation ended.
	File         string
	Line, Column int
}

func (e *EvalError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// DropReason labels a record that the processing exception handler passes over.
func (e *EvalError) DropReason() string { return e.Reason }

var _ processor.Labelled = (*EvalError)(nil)

// What is wrong with the use of this package, not with a record or an expression.
var (
	errOtherSchema = errors.New("expr: program and row belong to different schemas")
	errNotRead     = errors.New("expr: the row was made without this program")
)
