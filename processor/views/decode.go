package views

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/statemesh/statemesh/processor"
)

// wholeText is the field that a string has.
const wholeText = "value"

// Why a record cannot be decoded: metric labels, so constants.
const (
	reasonUTF8      = "invalid utf-8"
	reasonJSON      = "invalid json"
	reasonObject    = "not a json object"
	reasonCSV       = "invalid csv"
	reasonColumns   = "wrong number of columns"
	reasonScalar    = "key field is not a scalar"
	reasonNumber    = "not a number"
	reasonRange     = "number out of range"
	reasonForwarded = "invalid repartition record"
)

func undecodable(reason, format string, args ...any) error {
	return &processor.DeserializationError{Reason: reason, Err: fmt.Errorf(format, args...)}
}

var errUTF8 = &processor.DeserializationError{Reason: reasonUTF8, Err: errors.New("the value is not valid UTF-8")}

// fieldKind says what a field holds.
type fieldKind uint8

const (
	missing   fieldKind = iota
	text                // without a type, of csv and string: may be read as a number
	quoted              // a JSON string
	number              // a JSON number, as written
	boolean             // a JSON true or false
	composite           // a JSON object or array
)

// field is the value of a field of the record in hand. Its bytes are valid until the next record.
type field struct {
	kind fieldKind
	data []byte
}

// decoder takes fields out of values. It belongs to one task. decode sets fields[i] for the i-th name it was made for;
// its errors are *processor.DeserializationError.
type decoder interface {
	decode(value []byte, fields []field) error
}

// newDecoder returns a decoder for the named fields.
func newDecoder(f Format, columns, names []string) decoder {
	switch f {
	case CSV:
		return newCSVDecoder(columns, names)
	case JSON:
		return newJSONDecoder(names)
	case String:
		return stringDecoder{}
	default:
		return bytesDecoder{}
	}
}

type stringDecoder struct{}

func (stringDecoder) decode(value []byte, fields []field) error {
	if !utf8.Valid(value) {
		return errUTF8
	}
	for i := range fields {
		fields[i] = field{kind: text, data: value}
	}
	return nil
}

type bytesDecoder struct{}

func (bytesDecoder) decode([]byte, []field) error { return nil }

// asKey returns the text of a field that is part of a key; ok is false when it is missing.
func (f field) asKey() (data []byte, ok bool, err error) {
	switch f.kind {
	case missing:
		return nil, false, nil
	case composite:
		return nil, false, undecodable(reasonScalar, "an object or array cannot be part of a key")
	default:
		return f.data, true, nil
	}
}

// asNumber returns the number that a field holds; ok is false when it is missing.
func (f field) asNumber() (x float64, ok bool, err error) {
	switch f.kind {
	case missing:
		return 0, false, nil
	case text, number:
		x, err = parseNumber(f.data)
		return x, err == nil, err
	default:
		return 0, false, undecodable(reasonNumber, "the field holds no number")
	}
}
