package serde

import (
	"errors"
	"fmt"
)

var (
	// ErrDecode reports bytes that are not what a serde expects. They stay so: asking again gives the same. See [DecodeError].
	ErrDecode = errors.New("serde: bytes are not what is expected")
	// ErrEncode reports a value that a serde has no bytes for. See [EncodeError].
	ErrEncode = errors.New("serde: value cannot be encoded")
	// ErrUnavailable reports that what a serde needs to know is not to be had now: nothing is said about the bytes or the value,
	// and asking again may help.
	ErrUnavailable = errors.New("serde: unavailable")
	// ErrUnknownFormat reports a name that is no [Format]'s. See [UnknownFormatError].
	ErrUnknownFormat = errors.New("serde: unknown format")

	errNil = errors.New("nil")
)

// DecodeError says what was expected and how many bytes there were instead. It never holds any of them: errors are logged,
// and records may hold what must not be.
type DecodeError struct {
	// Type that was expected, such as "int64".
	Type string
	// Length of the bytes; -1 when they were nil.
	Length int
	// Err is what is wrong with them; nil when the length is.
	Err error
}

func (e *DecodeError) Error() string {
	switch {
	case e.Length < 0:
		return fmt.Sprintf("serde: %s: no bytes but nil", e.Type)
	case e.Err == nil:
		return fmt.Sprintf("serde: %s: wrong length of %d bytes", e.Type, e.Length)
	default:
		return fmt.Sprintf("serde: %s: %d bytes: %v", e.Type, e.Length, e.Err)
	}
}

// Is matches ErrDecode.
func (e *DecodeError) Is(target error) bool { return target == ErrDecode }

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// EncodeError says what a value was to become. It never holds the value.
type EncodeError struct {
	// Type of the serde, such as "json".
	Type string
	Err  error
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("serde: %s: cannot encode: %v", e.Type, e.Err)
}

// Is matches ErrEncode.
func (e *EncodeError) Is(target error) bool { return target == ErrEncode }

// Unwrap returns Err.
func (e *EncodeError) Unwrap() error { return e.Err }

// UnknownFormatError names the format and those there are.
type UnknownFormatError struct {
	Name  string
	Known []string
}

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("serde: format %q is unknown; known: %v", e.Name, e.Known)
}

// Is matches ErrUnknownFormat.
func (e *UnknownFormatError) Is(target error) bool { return target == ErrUnknownFormat }

// errLength is a decoder's answer for bytes that are too few or too many.
var errLength = errors.New("wrong length")

// asDecodeError says what a decoder found, unless its error says as much already.
func asDecodeError(name string, length int, err error) error {
	switch {
	case errors.Is(err, errLength):
		return &DecodeError{Type: name, Length: length}
	case errors.Is(err, ErrDecode), errors.Is(err, ErrUnavailable):
		return err
	default:
		return &DecodeError{Type: name, Length: length, Err: err}
	}
}

func asEncodeError(name string, err error) error {
	if errors.Is(err, ErrEncode) || errors.Is(err, ErrUnavailable) {
		return err
	}
	return &EncodeError{Type: name, Err: err}
}
