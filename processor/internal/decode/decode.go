package decode

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/statemesh/statemesh/processor"
)

// The formats of values.
const (
	FormatJSON   = "json"
	FormatCSV    = "csv"
	FormatString = "string"
	FormatBytes  = "bytes"
)

// Whole is the field that a string has.
const Whole = "value"

// Why a record cannot be decoded: metric labels, so constants.
const (
	ReasonUTF8    = "invalid utf-8"
	ReasonJSON    = "invalid json"
	ReasonObject  = "not a json object"
	ReasonCSV     = "invalid csv"
	ReasonColumns = "wrong number of columns"
	ReasonScalar  = "key field is not a scalar"
	ReasonNumber  = "not a number"
	ReasonRange   = "number out of range"
	ReasonNoTime  = "no event time"
	ReasonBadTime = "invalid event time"
)

// Undecodable is the error of a record that cannot be decoded. Its text must not hold data of the record.
func Undecodable(reason, format string, args ...any) error {
	return &processor.DeserializationError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

var errUTF8 = &processor.DeserializationError{Reason: ReasonUTF8, Err: errors.New("the value is not valid UTF-8")}

// Kind says what a field holds.
type Kind uint8

// The kinds.
const (
	Missing   Kind = iota
	Plain          // text without a type, of csv and string: may be read as a number
	Quoted         // a JSON string
	Number         // a JSON number, as written
	Boolean        // a JSON true or false
	Composite      // a JSON object or array, as written
)

// Field is the value of a field of the record in hand. Its bytes are valid until the next record.
type Field struct {
	Kind Kind
	Data []byte
}

// Decoder takes fields out of values. It belongs to one task. Decode sets fields[i] for the i-th name it was made for;
// its errors are *processor.DeserializationError.
type Decoder interface {
	Decode(value []byte, fields []Field) error
}

// New returns a decoder of a format for the named fields.
func New(format string, columns, names []string) Decoder {
	switch format {
	case FormatCSV:
		return NewCSV(columns, names)
	case FormatJSON:
		return NewJSON(names)
	case FormatString:
		return text{}
	default:
		return opaque{}
	}
}

// text has one field, [Whole].
type text struct{}

func (text) Decode(value []byte, fields []Field) error {
	if !utf8.Valid(value) {
		return errUTF8
	}
	for i := range fields {
		fields[i] = Field{Kind: Plain, Data: value}
	}
	return nil
}

// opaque has no fields.
type opaque struct{}

func (opaque) Decode([]byte, []Field) error { return nil }

// AsKey returns the text of a field that is part of a key; ok is false when it is missing.
func (f Field) AsKey() (data []byte, ok bool, err error) {
	switch f.Kind {
	case Missing:
		return nil, false, nil
	case Composite:
		return nil, false, Undecodable(ReasonScalar, "an object or array cannot be part of a key")
	default:
		return f.Data, true, nil
	}
}

// AsNumber returns the number that a field holds; ok is false when it is missing.
func (f Field) AsNumber() (x float64, ok bool, err error) {
	switch f.Kind {
	case Missing:
		return 0, false, nil
	case Plain, Number:
		x, err = ParseNumber(f.Data)
		return x, err == nil, err
	default:
		return 0, false, Undecodable(ReasonNumber, "the field holds no number")
	}
}
