package serde_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/serde"
)

type flight struct {
	Carrier string `json:"carrier"`
	Delay   int8   `json:"delay"`
}

// text is bytes that are readable.
func text(s string) string { return hex.EncodeToString([]byte(s)) }

// vector checks that v becomes exactly these bytes, appended or alone, and comes back.
func vector[T any](t *testing.T, s serde.Serde[T], v T, want string) {
	t.Helper()
	b, err := s.Encode(v)
	if err != nil || hex.EncodeToString(b) != want || b == nil {
		t.Errorf("%s %v: %x, %v, want %s", s.Name(), v, b, err, want)
		return
	}
	if more, err := s.Append([]byte("before"), v); err != nil || !bytes.Equal(more, append([]byte("before"), b...)) {
		t.Errorf("%s %v: appended %x, %v", s.Name(), v, more, err)
	}
	back, err := s.Decode(b)
	if err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("%s: %s came back as %v, %v, want %v", s.Name(), want, back, err, v)
	}
}

// The bytes are those of upstream's serializers.
func TestVectors(t *testing.T) {
	t.Parallel()
	vector(t, serde.Bytes(), []byte{0, 255}, "00ff")
	vector(t, serde.Bytes(), []byte{}, "")
	vector(t, serde.String(), "hé", "68c3a9")
	vector(t, serde.String(), "\xff", "ff")
	vector(t, serde.String(), "", "")
	vector(t, serde.Bool(), true, "01")
	vector(t, serde.Bool(), false, "00")
	vector(t, serde.Int16(), -2, "fffe")
	vector(t, serde.Int32(), 1, "00000001")
	vector(t, serde.Int32(), math.MinInt32, "80000000")
	vector(t, serde.Int64(), 1, "0000000000000001")
	vector(t, serde.Int64(), -2, "fffffffffffffffe")
	vector(t, serde.Int64(), math.MinInt64, "8000000000000000")
	vector(t, serde.Float32(), 1.5, "3fc00000")
	vector(t, serde.Float64(), 1.5, "3ff8000000000000")
	vector(t, serde.Float64(), math.Inf(-1), "fff0000000000000")
	vector(t, serde.UUID(), uuid.MustParse("123e4567-e89b-12d3-a456-426614174000"), text("123e4567-e89b-12d3-a456-426614174000"))
	vector(t, serde.Time(), time.UnixMilli(1357035300000).UTC(), "0000013bf59b64a0")
	vector(t, serde.Time(), time.UnixMilli(-1).UTC(), "ffffffffffffffff")
	vector(t, serde.JSON[flight](), flight{"UA", 7}, text(`{"carrier":"UA","delay":7}`))
	vector(t, serde.JSON[map[string]int](), map[string]int{"b": 2, "a": 1}, text(`{"a":1,"b":2}`))
	vector(t, serde.JSON[*flight](), nil, text("null"))
}

// semantics.md, byte layouts before T3/39: key a, start 1000; session a [50,100]; the end of a window does not overflow.
func TestWindowedVectors(t *testing.T) {
	t.Parallel()
	type key = serde.Windowed[string]
	vector(t, serde.TimeWindowed(serde.String(), 500*time.Millisecond), key{"a", 1000, 1500}, "6100000000000003e8")
	vector(t, serde.TimeWindowed(serde.String(), time.Second), key{"", 0, 1000}, "0000000000000000")
	vector(t, serde.TimeWindowed(serde.String(), time.Hour), key{"a", math.MaxInt64 - 1, math.MaxInt64}, "617ffffffffffffffe")
	vector(t, serde.TimeWindowedChangelog(serde.String(), 500*time.Millisecond), key{"a", 1000, 1500}, "6100000000000003e800000000")
	vector(t, serde.SessionWindowed(serde.String()), key{"a", 50, 100}, "6100000000000000640000000000000032")
	vector(t, serde.SessionWindowed(serde.Int32()), serde.Windowed[int32]{1, 7, 7}, "0000000100000000000000070000000000000007")
	// The number that tells duplicates apart is not part of what is decoded.
	b, _ := hex.DecodeString("6100000000000003e800000007")
	if w, err := serde.TimeWindowedChangelog(serde.String(), time.Second).Decode(b); err != nil || w != (key{"a", 1000, 2000}) {
		t.Error(w, err)
	}
}

// KIP-466: lists of the serializers of a fixed size have no lengths but the places of nil; others have lengths.
func TestListVectors(t *testing.T) {
	t.Parallel()
	vector(t, serde.List(serde.Int32()), []int32{1, -1}, "00"+"00000000"+"00000002"+"00000001"+"ffffffff")
	vector(t, serde.List(serde.Int32()), []int32{}, "00"+"00000000"+"00000000")
	vector(t, serde.List(serde.Nullable(serde.Int64())), []*int64{nil, new(int64(5)), nil},
		"00"+"00000002"+"00000000"+"00000002"+"00000003"+"0000000000000005")
	vector(t, serde.List(serde.UUID()), []uuid.UUID{{}}, "00"+"00000000"+"00000001"+text("00000000-0000-0000-0000-000000000000"))
	vector(t, serde.List(serde.String()), []string{"a", "", "bc"}, "01"+"00000003"+"00000001"+"61"+"00000000"+"00000002"+"6263")
	vector(t, serde.List(serde.String()), []string{}, "01"+"00000000")
	vector(t, serde.List(serde.Nullable(serde.String())), []*string{nil, new("")}, "01"+"00000002"+"ffffffff"+"00000000")
	vector(t, serde.List(serde.Bytes()), [][]byte{nil, {}}, "01"+"00000002"+"ffffffff"+"00000000")
	vector(t, serde.List(serde.Bool()), []bool{true}, "01"+"00000001"+"00000001"+"01")
	vector(t, serde.List(serde.List(serde.Int16())), [][]int16{{1}, nil},
		"01"+"00000002"+"0000000b"+"00"+"00000000"+"00000001"+"0001"+"ffffffff")
}

// SE-14: nil, empty and absent are three things. Absent is the store's answer; here are the other two.
func TestNilAndEmpty(t *testing.T) {
	t.Parallel()
	refusesNil := func(name string, decode func([]byte) error) {
		t.Helper()
		e, ok := errors.AsType[*serde.DecodeError](decode(nil))
		if !ok || e.Length != -1 || !errors.Is(e, serde.ErrDecode) {
			t.Errorf("%s of nil: %v", name, e)
		}
	}
	refusesNil("string", func(b []byte) error { _, err := serde.String().Decode(b); return err })
	refusesNil("int64", func(b []byte) error { _, err := serde.Int64().Decode(b); return err })
	refusesNil("json", func(b []byte) error { _, err := serde.JSON[*int]().Decode(b); return err })
	refusesNil("session", func(b []byte) error { _, err := serde.SessionWindowed(serde.Bytes()).Decode(b); return err })

	if b, err := serde.Bytes().Encode(nil); b != nil || err != nil {
		t.Error(b, err)
	}
	if b, err := serde.Bytes().Decode(nil); b != nil || err != nil {
		t.Error(b, err)
	}
	text := serde.Nullable(serde.String())
	if b, err := text.Encode(nil); b != nil || err != nil {
		t.Error(b, err)
	}
	if b, err := text.Encode(new("")); b == nil || len(b) != 0 || err != nil {
		t.Error(b, err)
	}
	if v, err := text.Decode(nil); v != nil || err != nil {
		t.Error(v, err)
	}
	if v, err := text.Decode([]byte{}); v == nil || *v != "" || err != nil {
		t.Error(v, err)
	}
	list := serde.List(serde.Int32())
	if b, err := list.Encode(nil); b != nil || err != nil {
		t.Error(b, err)
	}
	if v, err := list.Decode(nil); v != nil || err != nil {
		t.Error(v, err)
	}
	// What may be nil in itself is no key of a window, and no item of a list that has no nil.
	if _, err := serde.TimeWindowed(serde.Bytes(), time.Second).Encode(serde.Windowed[[]byte]{}); !errors.Is(err, serde.ErrEncode) {
		t.Error(err)
	}
	if _, err := serde.List(serde.String()).Decode([]byte{1, 0, 0, 0, 1, 255, 255, 255, 255}); !errors.Is(err, serde.ErrDecode) {
		t.Error(err)
	}
}

// Plain numbers do not sort as numbers when some are negative; ordered ones do.
func TestOrder(t *testing.T) {
	t.Parallel()
	ints := []int64{math.MinInt64, math.MinInt64 + 1, math.MinInt32 - 1, -256, -2, -1, 0, 1, 2, 255, 256, math.MaxInt32, math.MaxInt64}
	if sorted(t, serde.Int64(), ints) {
		t.Error("plain int64 sort as numbers: the documentation is wrong")
	}
	if !sorted(t, serde.Int64(), ints[6:]) {
		t.Error("plain int64 from 0 do not sort")
	}
	if !sorted(t, serde.OrderedInt64(), ints) {
		t.Error("ordered int64 do not sort")
	}
	small := []int32{math.MinInt32, -65536, -1, 0, 1, 65536, math.MaxInt32}
	if sorted(t, serde.Int32(), small) || !sorted(t, serde.OrderedInt32(), small) {
		t.Error("int32")
	}
	floats := []float64{
		math.Inf(-1), -math.MaxFloat64, -2, -1, -math.SmallestNonzeroFloat64, math.Copysign(0, -1),
		0, math.SmallestNonzeroFloat64, 1, 1.5, 2, math.MaxFloat64, math.Inf(1), math.NaN(),
	}
	if sorted(t, serde.Float64(), floats) || !sorted(t, serde.OrderedFloat64(), floats) {
		t.Error("float64")
	}
	vector(t, serde.OrderedInt64(), 0, "8000000000000000")
	vector(t, serde.OrderedInt64(), -1, "7fffffffffffffff")
	vector(t, serde.OrderedInt32(), math.MinInt32, "00000000")
	vector(t, serde.OrderedFloat64(), 1.5, "bff8000000000000")
	vector(t, serde.OrderedFloat64(), -1.5, "4007ffffffffffff")
	for _, x := range floats {
		b, err := serde.OrderedFloat64().Encode(x)
		back, err2 := serde.OrderedFloat64().Decode(b)
		if err != nil || err2 != nil || math.Float64bits(back) != math.Float64bits(x) && !math.IsNaN(x) {
			t.Errorf("%g came back as %g, %v, %v", x, back, err, err2)
		}
	}
}

func sorted[T any](t *testing.T, s serde.Serde[T], values []T) bool {
	t.Helper()
	var keys [][]byte
	for _, v := range values {
		b, err := s.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, b)
	}
	return slices.IsSortedFunc(keys, bytes.Compare)
}

// Upstream writes every NaN the same, and so the key of one is found again.
func TestNaN(t *testing.T) {
	t.Parallel()
	odd := math.Float64frombits(0xfff8000000000001)
	if b, err := serde.Float64().Encode(odd); err != nil || hex.EncodeToString(b) != "7ff8000000000000" {
		t.Errorf("%x, %v", b, err)
	}
	if b, err := serde.Float32().Encode(float32(odd)); err != nil || hex.EncodeToString(b) != "7fc00000" {
		t.Errorf("%x, %v", b, err)
	}
	if b, err := serde.Float64().Encode(math.Copysign(0, -1)); err != nil || hex.EncodeToString(b) != "8000000000000000" {
		t.Errorf("%x, %v", b, err)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	at := time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("", 3600))
	b, err := serde.Time().Encode(at)
	if err != nil {
		t.Fatal(err)
	}
	back, err := serde.Time().Decode(b)
	if err != nil || !back.Equal(at.Truncate(time.Millisecond)) || back.Location() != time.UTC {
		t.Error(back, err)
	}
	for _, far := range []time.Time{time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64/2, 0)} {
		if _, err := serde.Time().Encode(far); !errors.Is(err, serde.ErrEncode) {
			t.Error(far, err)
		}
	}
}

type secretive struct{ N int8 }

func (*secretive) UnmarshalJSON(b []byte) error { return errors.New("cannot take " + string(b)) }
func (secretive) MarshalJSON() ([]byte, error)  { return nil, errors.New("cannot give hunter2") }

// Errors name the type and the length, and hold nothing of the data.
func TestErrors(t *testing.T) {
	t.Parallel()
	refuse := func(err error, want string) {
		t.Helper()
		if !errors.Is(err, serde.ErrDecode) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	hunter := []byte(`{"carrier":"hunter2","delay":hunter2}`)
	_, err := serde.Int64().Decode(hunter[:7])
	refuse(err, "serde: int64: wrong length of 7 bytes")
	_, err = serde.Int64().Decode([]byte{})
	refuse(err, "serde: int64: wrong length of 0 bytes")
	_, err = serde.Bool().Decode([]byte{2})
	refuse(err, "serde: bool: 1 bytes: neither 0 nor 1")
	_, err = serde.UUID().Decode([]byte("{123e4567-e89b-12d3-a456-42661417400}"))
	refuse(err, "serde: uuid: wrong length of 37 bytes")
	_, err = serde.UUID().Decode([]byte("hunter2hunter2hunter2hunter2hunter2hu"[:36]))
	refuse(err, "serde: uuid: 36 bytes: no hexadecimal digits in five groups")
	_, err = serde.JSON[flight]().Decode(hunter)
	refuse(err, "serde: json: 37 bytes: no JSON at byte 30")
	_, err = serde.JSON[flight]().Decode([]byte(`{"delay":12345}`))
	refuse(err, "serde: json: 15 bytes: what ends at byte 14 does not fit into a int8")
	_, err = serde.JSON[secretive]().Decode([]byte(`"hunter2"`))
	refuse(err, "serde: json: 9 bytes: the methods of the type refuse it")
	_, err = serde.TimeWindowed(serde.String(), time.Second).Decode(hunter[:7])
	refuse(err, "serde: time window of string: wrong length of 7 bytes")
	_, err = serde.SessionWindowed(serde.Int64()).Decode(make([]byte, 20))
	refuse(err, "serde: int64: wrong length of 4 bytes")
	_, err = serde.SessionWindowed(serde.Bytes()).Decode(slices.Concat(make([]byte, 15), []byte{1}))
	refuse(err, "serde: session of bytes: 16 bytes: no window begins before 1970 or ends before it begins")
	_, err = serde.List(serde.Int32()).Decode([]byte{0, 255, 255, 255, 255})
	refuse(err, "serde: list of int32: 5 bytes: no list")
	_, err = serde.List(serde.String()).Decode([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0})
	refuse(err, "serde: list of string: 9 bytes: another layout of lists")
	_, err = serde.New("mine", func(dst []byte, _ int) ([]byte, error) { return dst, nil },
		func([]byte) (int, error) { return 0, errors.New("odd") }).Decode([]byte{1})
	refuse(err, "serde: mine: 1 bytes: odd")

	for _, err := range []error{
		second(serde.JSON[float64]().Encode(math.NaN())),
		second(serde.JSON[func()]().Encode(nil)),
		second(serde.JSON[secretive]().Encode(secretive{})),
		second(serde.TimeWindowed(serde.String(), time.Second).Encode(serde.Windowed[string]{Start: -1})),
		second(serde.SessionWindowed(serde.String()).Encode(serde.Windowed[string]{Start: 2, End: 1})),
		second(serde.TimeWindowed(serde.String(), time.Microsecond).Encode(serde.Windowed[string]{})),
		second(serde.Serde[int]{}.Encode(1)),
	} {
		if !errors.Is(err, serde.ErrEncode) || strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	}
	if serde.TimeWindowed(serde.String(), 0).Err() == nil || (serde.Serde[int]{}).Err() == nil || serde.String().Err() != nil {
		t.Error("Err does not say what cannot work")
	}
	// What says that it may pass stays apart from what is about the bytes.
	away := serde.Of("remote", func(int) ([]byte, error) { return nil, serde.ErrUnavailable },
		func([]byte) (int, error) { return 0, serde.ErrUnavailable })
	if _, err := away.Decode([]byte{}); !errors.Is(err, serde.ErrUnavailable) || errors.Is(err, serde.ErrDecode) {
		t.Error(err)
	}
	if _, err := serde.List(away).Encode([]int{1}); !errors.Is(err, serde.ErrUnavailable) || errors.Is(err, serde.ErrEncode) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// A serde whose bytes depend on the topic takes what is made of it along.
func TestForTopic(t *testing.T) {
	t.Parallel()
	where := func(name string) serde.Serde[string] {
		return serde.Of(name, func(s string) ([]byte, error) { return []byte(name + s), nil },
			func(b []byte) (string, error) { return strings.TrimPrefix(string(b), name), nil })
	}
	s := serde.Bind(where("?:"), func(topic string, part serde.Part) serde.Serde[string] {
		return where(topic + "-" + part.String() + ":")
	})
	vector(t, s, "x", text("?:x"))
	vector(t, s.ForTopic("flights", serde.Value), "x", text("flights-value:x"))
	vector(t, serde.TimeWindowed(s, time.Second).ForTopic("f", serde.Key), serde.Windowed[string]{"x", 0, 1000}, text("f-key:x")+"0000000000000000")
	vector(t, serde.Nullable(s).ForTopic("f", serde.Key), new("x"), text("f-key:x"))
	vector(t, serde.List(s).ForTopic("f", serde.Key), []string{"x"}, "0100000001"+"00000007"+text("f-key:x"))
	if plain := serde.String(); plain.ForTopic("f", serde.Key) != plain {
		t.Error("a serde that knows no topic depends on it")
	}
}

func TestFormatOf(t *testing.T) {
	t.Parallel()
	for want, have := range map[string]string{
		"string": serde.String().Format(), "int64": serde.Int64().Format(), "double": serde.Nullable(serde.Float64()).Format(),
		"json": serde.JSON[json.RawMessage]().Format(), "bytes": serde.List(serde.String()).Format(),
		"ordered-int64": serde.OrderedInt64().Format(), "mine": serde.String().As("mine").Format(),
	} {
		if have != want {
			t.Errorf("%s, want %s", have, want)
		}
	}
}
