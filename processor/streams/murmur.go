package streams

import (
	"encoding/binary"
	"math/bits"
)

// hashSize is the size of hashes of values in foreign-key joins.
const hashSize = 16

// hashSeed is that of upstream's Murmur3.
const hashSeed = 104729

// murmur128 is the 128-bit variant of MurmurHash3 for 64-bit machines, both halves big endian.
func murmur128(b []byte, seed uint64) (sum [hashSize]byte) {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	mix1 := func(k uint64) uint64 { return bits.RotateLeft64(k*c1, 31) * c2 }
	mix2 := func(k uint64) uint64 { return bits.RotateLeft64(k*c2, 33) * c1 }
	h1, h2, n := seed, seed, uint64(len(b))
	for ; len(b) >= 16; b = b[16:] {
		h1 ^= mix1(binary.LittleEndian.Uint64(b))
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= mix2(binary.LittleEndian.Uint64(b[8:]))
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var tail [16]byte // what is missing counts as 0, and 0 is mixed to 0
	copy(tail[:], b)
	h2 ^= mix2(binary.LittleEndian.Uint64(tail[8:]))
	h1 ^= mix1(binary.LittleEndian.Uint64(tail[:]))
	h1 ^= n
	h2 ^= n
	h1 += h2
	h2 += h1
	h1, h2 = finish64(h1), finish64(h2)
	h1 += h2
	h2 += h1
	binary.BigEndian.PutUint64(sum[:], h1)
	binary.BigEndian.PutUint64(sum[8:], h2)
	return sum
}

func finish64(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
