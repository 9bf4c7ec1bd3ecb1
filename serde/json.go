package serde

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// JSON is a T as encoding/json writes and reads it. For keys: the bytes are those that other programs write only as long as
// these write members in the same order and escape the same way.
func JSON[T any]() Serde[T] {
	return Serde[T]{&codec[T]{
		name: FormatJSON, format: FormatJSON,
		appendTo: func(dst []byte, v T) ([]byte, error) {
			buf := bytes.NewBuffer(dst)
			if err := json.NewEncoder(buf).Encode(v); err != nil {
				return nil, withoutData(err)
			}
			return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
		},
		decode: func(b []byte) (v T, err error) {
			if err := json.Unmarshal(b, &v); err != nil {
				return v, withoutData(err)
			}
			return v, nil
		},
	}}
}

// withoutData says what encoding/json found, without quoting the values it quotes. Errors of a type's own methods are not
// shown at all: nobody knows what is in them.
func withoutData(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("no JSON at byte %d", e.Offset)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("what ends at byte %d does not fit into a %s", e.Offset, e.Type)
	}
	if e, ok := errors.AsType[*json.UnsupportedTypeError](err); ok {
		return fmt.Errorf("JSON has nothing for a %s", e.Type)
	}
	if _, ok := errors.AsType[*json.UnsupportedValueError](err); ok {
		return errors.New("JSON has nothing for the value")
	}
	if e, ok := errors.AsType[*json.MarshalerError](err); ok {
		return fmt.Errorf("the methods of %s do not marshal it", e.Type)
	}
	return errors.New("the methods of the type refuse it")
}
