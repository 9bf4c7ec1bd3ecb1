package wire

import (
	"bytes"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func tokens() []store.Token {
	id, other := [16]byte{1, 2, 3}, [16]byte{0xff}
	return []store.Token{
		{Cuts: map[store.Partition]store.Cut{0: {TopicID: id, Next: 0}}},
		{Cuts: map[store.Partition]store.Cut{math.MaxInt32: {TopicID: id, Next: math.MaxInt64}}},
		{Cuts: map[store.Partition]store.Cut{0: {TopicID: id, Next: 17}, 5: {TopicID: other, Next: 1}, 200: {TopicID: id, Next: 300}}},
		{Inputs: store.Position{"orders": {3: 4, 0: 0}, "flights": {1: 1 << 40}}},
		{Cuts: map[store.Partition]store.Cut{1: {Next: 1}}, Inputs: store.Position{"": {0: 9}}},
	}
}

// A token comes back as it went, and equal tokens are equal bytes.
func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range tokens() {
		b := FromToken("flights", want)
		name, got, err := ToToken(b)
		if err != nil || name != "flights" || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q %s, %v", want, name, got, err)
		}
		if again := FromToken("flights", want.Clone()); !bytes.Equal(again, b) {
			t.Errorf("%s: % x, then % x", want, b, again)
		}
	}
	if b := FromToken("flights", store.Token{}); b != nil {
		t.Errorf("a token that asks for nothing: % x", b)
	}
}

// Whatever is cut off, flipped or added is refused.
func TestTokenDamage(t *testing.T) {
	t.Parallel()
	for _, tok := range tokens() {
		b := FromToken("flights", tok)
		for i := range b {
			if _, _, err := ToToken(b[:i]); err == nil {
				t.Errorf("%s: cut at %d: taken", tok, i)
			}
			for bit := range 8 {
				flipped := bytes.Clone(b)
				flipped[i] ^= 1 << bit
				if _, _, err := ToToken(flipped); err == nil {
					t.Errorf("%s: bit %d of byte %d flipped: taken", tok, bit, i)
				}
			}
		}
		if _, _, err := ToToken(append(bytes.Clone(b), 0)); err == nil {
			t.Errorf("%s: a byte more: taken", tok)
		}
	}
	if _, _, err := ToToken(make([]byte, MaxTokenBytes+1)); err == nil {
		t.Error("too large: taken")
	}
}

// sealToken puts the right checksum behind a body: what a forger does, and what a fuzzer cannot find.
func sealToken(body []byte) []byte {
	sum := crc32.Checksum(body, castagnoli)
	return append(bytes.Clone(body), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

// What is taken is exactly what FromToken makes of it: there is one form of each token, however it is forged.
func FuzzToken(f *testing.F) {
	for _, tok := range tokens() {
		b := FromToken("flights", tok)
		f.Add(b[:len(b)-crc32.Size])
	}
	f.Add([]byte{readTokenVersion, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, b := range [][]byte{body, sealToken(body)} {
			name, tok, err := ToToken(b)
			if err != nil {
				continue
			}
			if again := FromToken(name, tok); !bytes.Equal(again, b) {
				t.Fatalf("% x was taken for %s, which is % x", b, tok, again)
			}
		}
	})
}

// A model: random tokens, random order of insertion.
func TestTokenRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		var tok store.Token
		for range rnd.IntN(6) {
			tok.Raise(store.Token{Cuts: map[store.Partition]store.Cut{
				store.Partition(rnd.IntN(300)): {TopicID: [16]byte{byte(rnd.IntN(2))}, Next: store.Offset(rnd.Int64N(1 << uint(1+rnd.IntN(62))))},
			}})
		}
		for range rnd.IntN(3) {
			tok.Raise(store.Token{Inputs: store.Position{string(rune('a' + rnd.IntN(3))): {store.Partition(rnd.IntN(9)): store.Offset(rnd.IntN(1000))}}})
		}
		if tok.Empty() {
			continue
		}
		name, got, err := ToToken(FromToken("s", tok))
		if err != nil || name != "s" || !reflect.DeepEqual(got, tok) {
			t.Fatalf("seed %d: %s came back as %s, %v", seed, tok, got, err)
		}
	}
}

// BenchmarkToken is what the token of an answer costs at either end: each answer has one.
func BenchmarkToken(b *testing.B) {
	tok := store.Token{Cuts: map[store.Partition]store.Cut{3: {TopicID: [16]byte{1}, Next: 1 << 30}}}
	enc := FromToken("flights-per-carrier", tok)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			FromToken("flights-per-carrier", tok)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := ToToken(enc); err != nil {
				b.Fatal(err)
			}
		}
	})
}
