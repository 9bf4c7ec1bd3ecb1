package serde

import (
	"encoding/hex"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Bytes passes bytes through, nil as nil (upstream's ByteArraySerializer). What is decoded shares memory with the bytes.
func Bytes() Serde[[]byte] {
	return Serde[[]byte]{&codec[[]byte]{
		name: FormatBytes, format: FormatBytes, null: true,
		appendTo: func(dst, v []byte) ([]byte, error) {
			if v == nil {
				return nil, nil
			}
			return append(dst, v...), nil
		},
		decode: func(b []byte) ([]byte, error) { return b, nil },
	}}
}

// String is text (upstream's StringSerializer, UTF-8). Bytes that are no UTF-8 are kept as they are.
func String() Serde[string] {
	return Serde[string]{&codec[string]{
		name: FormatString, format: FormatString,
		appendTo: func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
		decode:   func(b []byte) (string, error) { return string(b), nil },
	}}
}

// Bool is one byte, 0 or 1 (upstream's BooleanSerializer).
func Bool() Serde[bool] {
	return Serde[bool]{&codec[bool]{
		name: FormatBool, format: FormatBool,
		appendTo: func(dst []byte, v bool) ([]byte, error) {
			if v {
				return append(dst, 1), nil
			}
			return append(dst, 0), nil
		},
		decode: func(b []byte) (bool, error) {
			switch {
			case len(b) != 1:
				return false, errLength
			case b[0] > 1:
				return false, errors.New("neither 0 nor 1")
			}
			return b[0] == 1, nil
		},
	}}
}

// uuidLen is the length of a UUID's text.
const uuidLen = 36

// UUID is the text of a UUID, 36 bytes in lower case (upstream's UUIDSerializer). Upper case is read too.
func UUID() Serde[uuid.UUID] {
	return Serde[uuid.UUID]{&codec[uuid.UUID]{
		name: FormatUUID, format: FormatUUID, fixed: uuidLen,
		appendTo: func(dst []byte, v uuid.UUID) ([]byte, error) {
			dst = hex.AppendEncode(dst, v[:4])
			for _, group := range [][]byte{v[4:6], v[6:8], v[8:10], v[10:]} {
				dst = hex.AppendEncode(append(dst, '-'), group)
			}
			return dst, nil
		},
		decode: func(b []byte) (uuid.UUID, error) {
			if len(b) != uuidLen { // other spellings would be other keys
				return uuid.UUID{}, errLength
			}
			v, err := uuid.ParseBytes(b)
			if err != nil {
				return uuid.UUID{}, errors.New("no hexadecimal digits in five groups")
			}
			return v, nil
		},
	}}
}

// Time is an instant in Unix milliseconds, as [Int64] has them: what is finer is cut off, towards the past. Instants
// before 1970 do not sort before later ones. What is decoded is in UTC.
func Time() Serde[time.Time] {
	n := Int64().c
	return Serde[time.Time]{&codec[time.Time]{
		name: FormatTime, format: FormatTime, fixed: n.fixed,
		appendTo: func(dst []byte, v time.Time) ([]byte, error) {
			ms := v.UnixMilli()
			if d := v.Sub(time.UnixMilli(ms)); d < 0 || d >= time.Millisecond {
				return nil, errors.New("beyond the range of milliseconds in 64 bits")
			}
			return n.appendTo(dst, ms)
		},
		decode: func(b []byte) (time.Time, error) {
			ms, err := n.decode(b)
			return time.UnixMilli(ms).UTC(), err
		},
	}}
}
