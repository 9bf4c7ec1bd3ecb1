package accumulate

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
)

const (
	// maxExact is how many different values are counted exactly, by their hashes.
	maxExact = 64
	// indexBits of a hash are the number of a register: 2^14 of them have a standard error of 1.04/2^7 = 0.8 %.
	indexBits = 14
	registers = 1 << indexBits
	// rankBits hold the greatest rank, 64-14+1 = 51.
	rankBits = 6
	maxRank  = 64 - indexBits + 1
	// maxSparse is how many registers are kept one by one; with more of them, all are.
	maxSparse = 4096
	// denseBytes is the size of all registers.
	denseBytes = registers * rankBits / 8
)

// distinct is a HyperLogLog sketch, in one of three forms, of which the number of values decides: what was added in whatever order is
// kept the same way. Ranks are those of xxHash64 with seed 0.
type distinct struct {
	// exact are the hashes themselves, ascending, while there are at most maxExact.
	exact []uint64
	// sparse are registers that are not 0, number<<rankBits|rank, ascending, while there are at most maxSparse.
	sparse []uint32
	// dense are all registers, four in three bytes.
	dense []byte
}

// hash is that of a value that was checked: of eight bytes, little endian, of int, duration and double (0 for -0); of seconds and
// nanoseconds of timestamp, of 0 or 1 of bool, else of the bytes.
func (k kind) hash(x any) uint64 {
	var b [12]byte
	switch x := x.(type) {
	case string:
		return xxhash.Sum64String(x)
	case []byte:
		return xxhash.Sum64(x)
	case json.RawMessage:
		return xxhash.Sum64(x)
	case float64:
		binary.LittleEndian.PutUint64(b[:], math.Float64bits(x+0)) // -0 + 0 is 0
	case time.Time:
		binary.LittleEndian.PutUint64(b[:], uint64(x.Unix()))
		binary.LittleEndian.PutUint32(b[8:], uint32(x.Nanosecond()))
		return xxhash.Sum64(b[:])
	default:
		binary.LittleEndian.PutUint64(b[:], uint64(valueOf(x).n))
	}
	return xxhash.Sum64(b[:8])
}

func (d *distinct) add(hash uint64) {
	if d.dense != nil || d.sparse != nil {
		d.raise(registerOf(hash))
		return
	}
	at, ok := slices.BinarySearch(d.exact, hash)
	if ok {
		return
	}
	if len(d.exact) < maxExact {
		d.exact = slices.Insert(d.exact, at, hash)
		return
	}
	exact := d.exact
	d.exact = nil
	for _, h := range exact {
		d.raise(registerOf(h))
	}
	d.raise(registerOf(hash))
}

// registerOf returns the register that a hash belongs to, with its rank, as sparse has them.
func registerOf(hash uint64) uint32 {
	rank := bits.LeadingZeros64(hash<<indexBits|1<<(indexBits-1)) + 1
	return uint32(hash>>(64-indexBits))<<rankBits | uint32(rank)
}

// raise sets a register to a rank, if it is less.
func (d *distinct) raise(register uint32) {
	if d.dense != nil {
		d.raiseDense(register)
		return
	}
	at, _ := slices.BinarySearch(d.sparse, register&^(1<<rankBits-1))
	switch {
	case at < len(d.sparse) && d.sparse[at]>>rankBits == register>>rankBits:
		d.sparse[at] = max(d.sparse[at], register)
	case len(d.sparse) < maxSparse:
		d.sparse = slices.Insert(d.sparse, at, register)
	default:
		d.dense = make([]byte, denseBytes)
		for _, r := range d.sparse {
			d.raiseDense(r)
		}
		d.sparse = nil
		d.raiseDense(register)
	}
}

func (d *distinct) raiseDense(register uint32) {
	i, rank := register>>rankBits, register&(1<<rankBits-1)
	four := d.dense[i/4*3:][:3]
	shift := i % 4 * rankBits
	word := uint32(four[0]) | uint32(four[1])<<8 | uint32(four[2])<<16
	if word>>shift&(1<<rankBits-1) >= rank {
		return
	}
	word = word&^((1<<rankBits-1)<<shift) | rank<<shift
	four[0], four[1], four[2] = byte(word), byte(word>>8), byte(word>>16)
}

// merge takes over what another one has seen.
func (d *distinct) merge(other *distinct) {
	for _, h := range other.exact {
		d.add(h)
	}
	if other.exact != nil || other.sparse == nil && other.dense == nil {
		return
	}
	exact := d.exact
	d.exact = nil
	for _, h := range exact {
		d.raise(registerOf(h))
	}
	for _, r := range other.sparse {
		d.raise(r)
	}
	if other.dense == nil {
		return
	}
	for i := range uint32(registers) {
		if rank := other.rank(i); rank > 0 {
			d.raise(i<<rankBits | rank)
		}
	}
}

// rank of a register of the dense form.
func (d *distinct) rank(i uint32) uint32 {
	four := d.dense[i/4*3:][:3]
	word := uint32(four[0]) | uint32(four[1])<<8 | uint32(four[2])<<16
	return word >> (i % 4 * rankBits) & (1<<rankBits - 1)
}
