package protobuf_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/serde/protobuf"
)

func TestVectors(t *testing.T) {
	t.Parallel()
	s := protobuf.Of[*wrapperspb.StringValue]()
	for text, want := range map[string]string{"a": "0a0161", "": ""} {
		b, err := s.Encode(wrapperspb.String(text))
		if err != nil || b == nil || hex.EncodeToString(b) != want {
			t.Errorf("%q: %x, %v", text, b, err)
		}
		back, err := s.Decode(b)
		if err != nil || back.GetValue() != text {
			t.Errorf("%q: %v, %v", text, back, err)
		}
	}
}

// Maps have no order; bytes that are keys need one.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	s := protobuf.Of[*structpb.Struct]()
	m, err := structpb.NewStruct(map[string]any{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if b, err := s.Encode(proto.CloneOf(m)); err != nil || string(b) != string(first) {
			t.Fatalf("%x, %v", b, err)
		}
	}
}

// SE-14: no message is nil, a message without fields is the empty slice.
func TestRefuses(t *testing.T) {
	t.Parallel()
	s := protobuf.Of[*wrapperspb.StringValue]()
	if b, err := s.Encode(nil); b != nil || !errors.Is(err, serde.ErrEncode) {
		t.Error(b, err)
	}
	for _, b := range [][]byte{nil, {0xff}, []byte("\x0a\x07\xffunter2")} {
		_, err := s.Decode(b)
		if !errors.Is(err, serde.ErrDecode) || !strings.Contains(err.Error(), "google.protobuf.StringValue") || strings.Contains(err.Error(), "unter2") {
			t.Errorf("%x: %v", b, err)
		}
	}
	null := serde.Nullable(s)
	if b, err := null.Encode(nil); b != nil || err != nil {
		t.Error(b, err)
	}
}

func FuzzDecode(f *testing.F) {
	s := protobuf.Of[*structpb.Value]()
	f.Add([]byte{})
	f.Add([]byte{0xff})
	b, err := s.Encode(structpb.NewStringValue("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := s.Decode(b)
		if err != nil {
			if !errors.Is(err, serde.ErrDecode) {
				t.Fatal(err)
			}
			return
		}
		again, err := s.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := s.Decode(again)
		if err != nil {
			t.Fatalf("%x, then %x: %v", b, again, err)
		}
		if third, err := s.Encode(back); err != nil || string(third) != string(again) {
			t.Fatalf("%x, then %x, then %x: %v", b, again, third, err)
		}
	})
}
