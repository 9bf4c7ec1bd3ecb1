package serde_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/serde"
)

// A type becomes bytes, and bytes the type, or an error that says what was expected.
func Example() {
	type Flight struct {
		Carrier string `json:"carrier"`
		Delay   int    `json:"delay"`
	}
	flights := serde.JSON[Flight]()
	b, err := flights.Encode(Flight{"UA", 7})
	fmt.Printf("%s %v\n", b, err)
	_, err = serde.Int64().Decode(b)
	fmt.Println(errors.Is(err, serde.ErrDecode), err)
	// Output:
	// {"carrier":"UA","delay":7} <nil>
	// true serde: int64: wrong length of 26 bytes
}

// Nil is a tombstone, and only a nullable type has a value for it; an empty string is something else.
func ExampleNullable() {
	text := serde.Nullable(serde.String())
	none, _ := text.Encode(nil)
	empty, _ := text.Encode(new(""))
	fmt.Println(none == nil, empty == nil)
	_, err := serde.String().Decode(nil)
	fmt.Println(err)
	// Output:
	// true false
	// serde: string: no bytes but nil
}

// The bytes of Kafka's numbers do not sort as numbers when some are negative; these do.
func ExampleOrderedInt64() {
	for _, s := range []serde.Serde[int64]{serde.Int64(), serde.OrderedInt64()} {
		minus, _ := s.Encode(-1)
		one, _ := s.Encode(1)
		fmt.Println(s.Name(), string(minus) < string(one))
	}
	// Output:
	// int64 false
	// ordered-int64 true
}

// The key of a window in a topic is that of its key, and the start.
func ExampleTimeWindowed() {
	hourly := serde.TimeWindowed(serde.String(), time.Hour)
	w, err := hourly.Decode([]byte("EWR\x00\x00\x01\x3b\xf5\x8d\xa9\x00"))
	fmt.Println(w.Key, time.UnixMilli(w.Start).UTC().Format(time.RFC3339), time.UnixMilli(w.End).UTC().Format(time.RFC3339), err)
	// Output:
	// EWR 2013-01-01T10:00:00Z 2013-01-01T11:00:00Z <nil>
}

// A program without types finds out by name what a store holds.
func ExampleFormats() {
	f, err := serde.Builtin().Lookup("int64")
	if err != nil {
		fmt.Println(err)
		return
	}
	v, _ := f.Parse("258")
	b, _ := f.Encode(v)
	back, _ := f.Decode(b)
	fmt.Printf("%x %s\n", b, serde.Text(back))
	// Output:
	// 0000000000000102 258
}
