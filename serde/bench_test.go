package serde_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/statemesh/statemesh/serde"
)

// benchmark encodes into a kept buffer, and decodes.
func benchmark[T any](b *testing.B, s serde.Serde[T], v T) {
	b.Helper()
	b.Run(s.Name()+"/append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 256)
		for b.Loop() {
			var err error
			if buf, err = s.Append(buf[:0], v); err != nil {
				b.Fatal(err)
			}
		}
	})
	data, err := s.Encode(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run(s.Name()+"/decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSerdes(b *testing.B) {
	benchmark(b, serde.String(), "N14228")
	benchmark(b, serde.Int64(), 42)
	benchmark(b, serde.OrderedFloat64(), -1.5)
	benchmark(b, serde.UUID(), uuid.UUID{1})
	benchmark(b, serde.JSON[flight](), flight{"UA", 7})
	benchmark(b, serde.TimeWindowed(serde.String(), time.Hour), serde.Windowed[string]{Key: "N14228", Start: 1357035300000})
	benchmark(b, serde.SessionWindowed(serde.String()), serde.Windowed[string]{Key: "N14228", Start: 1357035300000, End: 1357035400000})
	benchmark(b, serde.List(serde.Int64()), []int64{1, 2, 3, 4, 5, 6, 7, 8})
	benchmark(b, serde.List(serde.String()), []string{"UA", "AA", "B6"})
}
