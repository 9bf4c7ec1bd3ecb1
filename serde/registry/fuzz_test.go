package registry_test

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/serde/registry"
)

// Hostile bytes under ids that are known and unknown: no panic, no other error than those about bytes, and what is taken can be
// written again.
func FuzzDecode(f *testing.F) {
	w := newWorld(f)
	w.SeedSchema("a", 1, 1, sr.Schema{Schema: flightV1})
	w.SeedSchema("b", 1, 2, sr.Schema{Schema: flightV2})
	w.SeedSchema("c", 1, 3, sr.Schema{Schema: `{}`, Type: sr.TypeJSON})
	w.SeedSchema("d", 1, 4, sr.Schema{Schema: `message A {}`, Type: sr.TypeProtobuf})
	w.SeedSchema("e", 1, 5, sr.Schema{Schema: `{"type":"array","items":{"type":"map","values":["null","bytes","double"]}}`})
	c := w.client(f, nil)
	a := must(registry.Avro[flight2](c, flightV2)).ForTopic("f", serde.Value)
	g := must(registry.Avro[any](c, `{"type":"array","items":{"type":"map","values":["null","bytes","double"]}}`)).ForTopic("g", serde.Value)
	j := must(registry.JSONSchema[flight](c, `{}`)).ForTopic("h", serde.Value)
	p := registry.Protobuf[*structpb.Value](c).ForTopic("i", serde.Value)
	for _, seed := range []string{
		"", "\x00", "\x00\x00\x00\x00\x01\x04UA\x02\x03", "\x00\x00\x00\x00\x02\x04UA\x00\x02x", "\x00\x00\x00\x00\x03{}",
		"\x00\x00\x00\x00\x04\x00", "\x00\x00\x00\x00\x04\x02\x00", "\x00\x00\x00\x00\x05\x02\x02\x02a\x00\x00\x00",
		"\x00\x00\x00\x00\x05\x01\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x00\x00\x00\x00\x04\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 5 && b[4] > 6 {
			b[4] %= 7 // else nearly all ids are unknown
		}
		again(t, a, b)
		again(t, g, b)
		again(t, j, b)
		again(t, p, b)
		for _, format := range c.Formats() {
			if _, err := format.Decode(b); err != nil && !errors.Is(err, serde.ErrDecode) {
				t.Fatal(err)
			}
		}
	})
}

func again[T any](t *testing.T, s serde.Serde[T], b []byte) {
	t.Helper()
	v, err := s.Decode(b)
	if err != nil {
		if !errors.Is(err, serde.ErrDecode) {
			t.Fatalf("%s: %x: %v", s.Name(), b, err)
		}
		return
	}
	out, err := s.Encode(v)
	if err != nil {
		t.Fatalf("%s took %x and cannot give it back: %v", s.Name(), b, err)
	}
	if _, err := s.Decode(out); err != nil {
		t.Fatalf("%s: %x, then %x: %v", s.Name(), b, out, err)
	}
}
