package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
)

type flight struct {
	Carrier string `json:"carrier"`
	Delay   int    `json:"delay"`
}

func check[T any](t *testing.T, c Codec[T], v T, want string, equal func(a, b T) bool) {
	t.Helper()
	b, err := c.Encode(v)
	if err != nil || hex.EncodeToString(b) != want {
		t.Fatalf("%v: %x, %v, want %s", v, b, err, want)
	}
	back, err := c.Decode(b)
	if err != nil || !equal(back, v) {
		t.Fatalf("%v came back as %v, %v", v, back, err)
	}
}

func same[T comparable](a, b T) bool { return a == b }

// The bytes are those of upstream's serializers.
func TestCodecs(t *testing.T) {
	check(t, String(), "hé", "68c3a9", same)
	check(t, String(), "\xff", "ff", same)
	check(t, Bytes(), []byte{0, 255}, "00ff", bytes.Equal)
	check(t, Int64(), 1, "0000000000000001", same)
	check(t, Int64(), -2, "fffffffffffffffe", same)
	check(t, Int64(), math.MinInt64, "8000000000000000", same)
	check(t, Float64(), 1.5, "3ff8000000000000", same)
	check(t, Float64(), math.Copysign(0, -1), "8000000000000000", func(a, _ float64) bool { return a == 0 && math.Signbit(a) })
	check(t, Float64(), math.Float64frombits(0xfff8000000000001), "7ff8000000000000", func(a, _ float64) bool { return math.IsNaN(a) })
	check(t, JSON[flight](), flight{"UA", 7}, hex.EncodeToString([]byte(`{"carrier":"UA","delay":7}`)), same)
	check(t, JSON[map[string]int](), map[string]int{"b": 2, "a": 1}, hex.EncodeToString([]byte(`{"a":1,"b":2}`)),
		func(a, b map[string]int) bool { return reflect.DeepEqual(a, b) })
	check(t, Proto[*statemeshv1.Task](), &statemeshv1.Task{Subtopology: 1, Partition: 2}, "08011002",
		func(a, b *statemeshv1.Task) bool { return proto.Equal(a, b) })
}

func TestCodecsRefuse(t *testing.T) {
	bad := func(_ any, err error) {
		t.Helper()
		if !errors.Is(err, ErrDecode) {
			t.Error(err)
		}
	}
	v, err := Int64().Decode(make([]byte, 7))
	bad(v, err)
	f, err := Float64().Decode(nil)
	bad(f, err)
	j, err := JSON[flight]().Decode([]byte("{"))
	bad(j, err)
	m, err := Proto[*statemeshv1.Task]().Decode([]byte{0xff})
	bad(m, err)
}
