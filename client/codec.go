package client

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"
)

// ErrDecode reports bytes that are not what a codec expects.
var ErrDecode = errors.New("client: bytes are not what the codec expects")

// Codec translates between a type and the bytes that the producers' serializers wrote. Both functions must be safe for
// concurrent use. Decode may keep the slice.
type Codec[T any] struct {
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)
}

// Bytes passes bytes through (upstream's ByteArraySerializer).
func Bytes() Codec[[]byte] {
	pass := func(b []byte) ([]byte, error) { return b, nil }
	return Codec[[]byte]{Encode: pass, Decode: pass}
}

// String is UTF-8 text (upstream's StringSerializer). Bytes that are no UTF-8 are kept as they are.
func String() Codec[string] {
	return Codec[string]{
		Encode: func(s string) ([]byte, error) { return []byte(s), nil },
		Decode: func(b []byte) (string, error) { return string(b), nil },
	}
}

// Int64 is eight bytes, big endian (upstream's LongSerializer).
func Int64() Codec[int64] {
	return Codec[int64]{
		Encode: func(v int64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, uint64(v)), nil },
		Decode: func(b []byte) (int64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("%w: %d bytes for an int64", ErrDecode, len(b))
			}
			return int64(binary.BigEndian.Uint64(b)), nil
		},
	}
}

// Float64 is the eight bytes of IEEE 754, big endian, every NaN the same (upstream's DoubleSerializer).
func Float64() Codec[float64] {
	const javaNaN = 0x7ff8000000000000
	return Codec[float64]{
		Encode: func(v float64) ([]byte, error) {
			bits := math.Float64bits(v)
			if math.IsNaN(v) {
				bits = javaNaN
			}
			return binary.BigEndian.AppendUint64(nil, bits), nil
		},
		Decode: func(b []byte) (float64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("%w: %d bytes for a float64", ErrDecode, len(b))
			}
			return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
		},
	}
}

// JSON is a T as encoding/json writes and reads it.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		Encode: func(v T) ([]byte, error) { return json.Marshal(v) },
		Decode: func(b []byte) (T, error) {
			var v T
			if err := json.Unmarshal(b, &v); err != nil {
				return v, fmt.Errorf("%w: %w", ErrDecode, err)
			}
			return v, nil
		},
	}
}

// Proto is a protobuf message, encoded deterministically. T is a pointer to a generated message. For keys: the bytes are
// those that other programs write only as long as these are deterministic too, in the same version.
func Proto[T proto.Message]() Codec[T] {
	return Codec[T]{
		Encode: func(m T) ([]byte, error) { return proto.MarshalOptions{Deterministic: true}.Marshal(m) },
		Decode: func(b []byte) (T, error) {
			var zero T
			m, ok := zero.ProtoReflect().New().Interface().(T)
			if !ok { // New makes what T is a pointer to
				return zero, fmt.Errorf("%w: %T is no generated message", ErrDecode, zero)
			}
			if err := proto.Unmarshal(b, m); err != nil {
				return zero, fmt.Errorf("%w: %w", ErrDecode, err)
			}
			return m, nil
		},
	}
}
