package serde_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/serde"
)

// hostile feeds bytes that nobody checked to a decoder: no panic, no error of another kind, no memory beyond what the bytes
// can stand for; and what it takes encodes to bytes that stand for the same.
func hostile[T any](t *testing.T, s serde.Serde[T], b []byte) {
	t.Helper()
	v, err := s.Decode(b)
	if err != nil {
		if !errors.Is(err, serde.ErrDecode) {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		return
	}
	again, err := s.Encode(v)
	if err != nil {
		t.Fatalf("%s took %x and cannot give it back: %v", s.Name(), b, err)
	}
	back, err := s.Decode(again)
	if err != nil {
		t.Fatalf("%s: %x encoded as %x: %v", s.Name(), b, again, err)
	}
	// Once through the encoder, the bytes stay: this holds for NaN too, which is not equal to itself.
	third, err := s.Encode(back)
	if err != nil || !bytes.Equal(third, again) || (third == nil) != (again == nil) {
		t.Fatalf("%s: %x, then %x, %v", s.Name(), again, third, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range [][]byte{
		nil,
		{},
		{0},
		{1},
		{2},
		make([]byte, 4), make([]byte, 8), make([]byte, 12), make([]byte, 16), make([]byte, 24),
		[]byte("123e4567-e89b-12d3-a456-426614174000"), []byte(`{"carrier":"UA","delay":7}`), []byte("null"),
		[]byte("00000000"), // as a time: beyond the years of RFC 3339
		{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 5},
		{1, 0, 0, 0, 2, 255, 255, 255, 255, 0, 0, 0, 1, 97},
		{0, 127, 255, 255, 255, 127, 255, 255, 255},
		{1, 127, 255, 255, 255},
		{1, 0, 0, 0, 1, 128, 0, 0, 0},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		hostile(t, serde.Bytes(), b)
		hostile(t, serde.String(), b)
		hostile(t, serde.Bool(), b)
		hostile(t, serde.Int16(), b)
		hostile(t, serde.Int32(), b)
		hostile(t, serde.Int64(), b)
		hostile(t, serde.Float32(), b)
		hostile(t, serde.Float64(), b)
		hostile(t, serde.OrderedInt32(), b)
		hostile(t, serde.OrderedInt64(), b)
		hostile(t, serde.OrderedFloat64(), b)
		hostile(t, serde.UUID(), b)
		hostile(t, serde.Time(), b)
		hostile(t, serde.JSON[flight](), b)
		hostile(t, serde.JSON[json.RawMessage](), b)
		hostile(t, serde.Nullable(serde.Int32()), b)
		hostile(t, serde.TimeWindowed(serde.String(), time.Hour), b)
		hostile(t, serde.TimeWindowedChangelog(serde.Bytes(), time.Hour), b)
		hostile(t, serde.SessionWindowed(serde.String()), b)
		hostile(t, serde.List(serde.Int32()), b)
		hostile(t, serde.List(serde.Nullable(serde.Int64())), b)
		hostile(t, serde.List(serde.Nullable(serde.String())), b)
		hostile(t, serde.List(serde.List(serde.Bytes())), b)
		for _, name := range serde.Builtin().Names() {
			format, _ := serde.Builtin().Lookup(name)
			v, err := format.Decode(b)
			if err != nil {
				if !errors.Is(err, serde.ErrDecode) {
					t.Fatalf("%s: %v", name, err)
				}
				continue
			}
			_ = serde.Text(v)
			if again, err := format.Encode(v); err != nil && b != nil { // nil bytes decode as []byte(nil), which is no typed value
				t.Fatalf("%s: %x encoded as %x, %v", name, b, again, err)
			}
		}
	})
}

func roundTrip[T any](t *testing.T, s serde.Serde[T], v T) {
	t.Helper()
	b, err := s.Encode(v)
	if err != nil || b == nil {
		t.Fatalf("%s %v: %x, %v", s.Name(), v, b, err)
	}
	back, err := s.Decode(b)
	if err != nil || !reflect.DeepEqual(back, v) {
		t.Fatalf("%s: %v came back as %v, %v", s.Name(), v, back, err)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(int64(0), 0.0, "", []byte{}, uint64(0), uint64(1))
	f.Add(int64(-1), math.Inf(1), "é", []byte{255}, uint64(1000), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, n int64, x float64, s string, b []byte, start, length uint64) {
		if b == nil {
			b = []byte{}
		}
		roundTrip(t, serde.Bytes(), b)
		roundTrip(t, serde.String(), s)
		roundTrip(t, serde.Bool(), n&1 == 0)
		roundTrip(t, serde.Int16(), int16(n))
		roundTrip(t, serde.Int32(), int32(n))
		roundTrip(t, serde.Int64(), n)
		roundTrip(t, serde.OrderedInt32(), int32(n))
		roundTrip(t, serde.OrderedInt64(), n)
		if x == x {
			roundTrip(t, serde.Float32(), float32(x))
			roundTrip(t, serde.Float64(), x)
			roundTrip(t, serde.OrderedFloat64(), x)
		}
		var id uuid.UUID
		copy(id[:], b)
		roundTrip(t, serde.UUID(), id)
		roundTrip(t, serde.Time(), time.UnixMilli(n).UTC())
		roundTrip(t, serde.List(serde.Nullable(serde.Int64())), []*int64{nil, &n, nil})
		roundTrip(t, serde.List(serde.Nullable(serde.String())), []*string{&s, nil, &s})
		begin := int64(start & math.MaxInt64)
		end := begin + int64(length&math.MaxInt64)
		if end < begin {
			end = math.MaxInt64
		}
		roundTrip(t, serde.SessionWindowed(serde.String()), serde.Windowed[string]{Key: s, Start: begin, End: end})
		hour := begin + time.Hour.Milliseconds()
		if hour < begin {
			hour = math.MaxInt64
		}
		roundTrip(t, serde.TimeWindowed(serde.Bytes(), time.Hour), serde.Windowed[[]byte]{Key: b, Start: begin, End: hour})
	})
}

// Ordered numbers compare as their bytes do.
func FuzzOrder(f *testing.F) {
	f.Add(int64(-1), int64(1), -1.0, 1.0)
	f.Fuzz(func(t *testing.T, a, b int64, x, y float64) {
		compare(t, serde.OrderedInt64(), a, b)
		compare(t, serde.OrderedInt32(), int32(a), int32(b))
		if x == x && y == y && x != y {
			compare(t, serde.OrderedFloat64(), x, y)
		}
	})
}

func compare[T int32 | int64 | float64](t *testing.T, s serde.Serde[T], a, b T) {
	t.Helper()
	x, err1 := s.Encode(a)
	y, err2 := s.Encode(b)
	if err1 != nil || err2 != nil || bytes.Compare(x, y) < 0 != (a < b) {
		t.Fatalf("%s: %v is %x, %v is %x", s.Name(), a, x, b, y)
	}
}
