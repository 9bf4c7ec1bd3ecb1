package registry_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/serde/registry"
)

func benchmark[T any](b *testing.B, s serde.Serde[T], v T) {
	b.Helper()
	data, err := s.Encode(v)
	if err != nil {
		b.Fatal(err)
	}
	b.Run(s.Name()+"/append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 256)
		for b.Loop() {
			if buf, err = s.Append(buf[:0], v); err != nil {
				b.Fatal(err)
			}
		}
	})
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
	c := newWorld(b).client(b, nil)
	v := flight{"UA", new(int32(7))}
	benchmark(b, must(registry.Avro[*flight](c, flightV1)).ForTopic("a", serde.Value), &v)
	benchmark(b, must(registry.JSONSchema[flight](c, `{}`)).ForTopic("j", serde.Value), v)
	benchmark(b, registry.Protobuf[*wrapperspb.StringValue](c).ForTopic("p", serde.Value), wrapperspb.String("UA"))
}
