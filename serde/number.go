package serde

import (
	"encoding/binary"
	"math"
)

// Int16 is two bytes, big endian (upstream's ShortSerializer). Negative numbers sort behind the others, see [OrderedInt32].
func Int16() Serde[int16] {
	return fixed16(FormatInt16, func(v int16) uint16 { return uint16(v) }, func(u uint16) int16 { return int16(u) })
}

// Int32 is four bytes, big endian (upstream's IntegerSerializer). As keys they do not order negative numbers: -1 sorts
// behind 1. See [OrderedInt32].
func Int32() Serde[int32] {
	return fixed32(FormatInt32, 4, func(v int32) uint32 { return uint32(v) }, func(u uint32) int32 { return int32(u) })
}

// Int64 is eight bytes, big endian (upstream's LongSerializer). As keys they do not order negative numbers: -1 sorts
// behind 1. See [OrderedInt64].
func Int64() Serde[int64] {
	return fixed64(FormatInt64, 8, func(v int64) uint64 { return uint64(v) }, func(u uint64) int64 { return int64(u) })
}

// Float32 is the four bytes of IEEE 754, big endian, every NaN the same (upstream's FloatSerializer).
func Float32() Serde[float32] {
	const javaNaN = 0x7fc00000
	return fixed32(FormatFloat, 4, func(v float32) uint32 {
		if v != v {
			return javaNaN
		}
		return math.Float32bits(v)
	}, math.Float32frombits)
}

// Float64 is the eight bytes of IEEE 754, big endian, every NaN the same (upstream's DoubleSerializer). As keys they do
// not order negative numbers. See [OrderedFloat64].
func Float64() Serde[float64] {
	return fixed64(FormatDouble, 8, doubleBits, math.Float64frombits)
}

// OrderedInt32 is four bytes, big endian, with the sign bit flipped: the bytes sort as the numbers do. Upstream has no
// such serializer.
func OrderedInt32() Serde[int32] {
	const sign = 1 << 31
	return fixed32(FormatOrderedInt32, 0, func(v int32) uint32 { return uint32(v) ^ sign }, func(u uint32) int32 { return int32(u ^ sign) })
}

// OrderedInt64 is eight bytes, big endian, with the sign bit flipped: the bytes sort as the numbers do. Upstream has no
// such serializer.
func OrderedInt64() Serde[int64] {
	return fixed64(FormatOrderedInt64, 0, func(v int64) uint64 { return uint64(v) ^ sign64 }, func(u uint64) int64 { return int64(u ^ sign64) })
}

// OrderedFloat64 is the eight bytes of IEEE 754, big endian, with the sign bit flipped, and all the others too in a negative
// number: the bytes sort as the numbers do, -0 before 0 and NaN last. Upstream has no such serializer.
func OrderedFloat64() Serde[float64] {
	return fixed64(FormatOrderedDouble, 0, func(v float64) uint64 {
		u := doubleBits(v)
		if u&sign64 != 0 {
			return ^u
		}
		return u | sign64
	}, func(u uint64) float64 {
		if u&sign64 != 0 {
			return math.Float64frombits(u &^ sign64)
		}
		return math.Float64frombits(^u)
	})
}

const sign64 = 1 << 63

// doubleBits are those of Java's Double.doubleToLongBits.
func doubleBits(v float64) uint64 {
	const javaNaN = 0x7ff8000000000000
	if v != v {
		return javaNaN
	}
	return math.Float64bits(v)
}

func fixed16[T any](name string, bits func(T) uint16, of func(uint16) T) Serde[T] {
	return Serde[T]{&codec[T]{
		name: name, format: name, fixed: 2,
		appendTo: func(dst []byte, v T) ([]byte, error) { return binary.BigEndian.AppendUint16(dst, bits(v)), nil },
		decode: func(b []byte) (v T, err error) {
			if len(b) != 2 {
				return v, errLength
			}
			return of(binary.BigEndian.Uint16(b)), nil
		},
	}}
}

func fixed32[T any](name string, inList int, bits func(T) uint32, of func(uint32) T) Serde[T] {
	return Serde[T]{&codec[T]{
		name: name, format: name, fixed: inList,
		appendTo: func(dst []byte, v T) ([]byte, error) { return binary.BigEndian.AppendUint32(dst, bits(v)), nil },
		decode: func(b []byte) (v T, err error) {
			if len(b) != 4 {
				return v, errLength
			}
			return of(binary.BigEndian.Uint32(b)), nil
		},
	}}
}

func fixed64[T any](name string, inList int, bits func(T) uint64, of func(uint64) T) Serde[T] {
	return Serde[T]{&codec[T]{
		name: name, format: name, fixed: inList,
		appendTo: func(dst []byte, v T) ([]byte, error) { return binary.BigEndian.AppendUint64(dst, bits(v)), nil },
		decode: func(b []byte) (v T, err error) {
			if len(b) != 8 {
				return v, errLength
			}
			return of(binary.BigEndian.Uint64(b)), nil
		},
	}}
}
