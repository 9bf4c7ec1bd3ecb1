package accumulate

import (
	"encoding/binary"
	"math"
)

const (
	// version is the first byte of a state.
	version = 1
	// ofResult is a bit of the first byte: the state was made of a result once.
	ofResult = 0x80
)

// The forms of distinct are told apart by a byte: up to maxExact it is how many hashes there are.
const (
	formSparse = maxExact + 1
	formDense  = maxExact + 2
)

// AppendState appends the bytes of a state of this plan, from which [Plan.DecodeState] makes it again.
//
// They are the version and the plan's mark; then, unless the state is empty, how many records there are (a varint, if the plan counts
// them), one bit per column for whether it has had a value, and what is kept of those that have. DESIGN.md has the forms.
func (p *Plan) AppendState(dst []byte, s *State) []byte {
	first := byte(version)
	if s.fromResult {
		first |= ofResult
	}
	dst = append(dst, first)
	dst = binary.LittleEndian.AppendUint16(dst, p.mark)
	if s.rows == 0 {
		return dst
	}
	if p.countsRows {
		dst = binary.AppendUvarint(dst, uint64(s.rows))
	}
	present := len(dst)
	dst = append(dst, make([]byte, (len(s.cells)+7)/8)...)
	for i := range s.cells {
		if s.cells[i].n > 0 {
			dst[present+i/8] |= 1 << (i % 8)
			dst = p.columns[i].appendState(dst, &s.cells[i])
		}
	}
	return dst
}

func (c *column) appendState(dst []byte, x *cell) []byte {
	switch c.fn {
	case fnCount:
		return binary.AppendUvarint(dst, uint64(x.n))
	case fnSum:
		dst = binary.AppendUvarint(dst, uint64(x.n))
		return c.kind.append(dst, x.value)
	case fnAvg:
		dst = binary.AppendUvarint(dst, uint64(x.n))
		dst = c.kind.append(dst, x.value)
		if c.kind == kindInt {
			dst = binary.AppendVarint(dst, x.high-x.value.n>>63) // 0 unless the sum needs more than 64 bits
		}
		return dst
	case fnMin, fnMax:
		return c.kind.append(dst, x.value)
	case fnFirst, fnLatest:
		dst = binary.AppendVarint(dst, x.at)
		return c.kind.append(dst, x.value)
	case fnTopK:
		return c.appendTop(dst, &x.top)
	case fnDistinct:
		return x.distinct.append(dst)
	default:
		return x.quantile.append(dst)
	}
}

// append appends a value.
func (k kind) append(dst []byte, v value) []byte {
	switch k {
	case kindDouble:
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v.f))
	case kindString, kindBytes, kindJSON:
		dst = binary.AppendUvarint(dst, uint64(len(v.text)))
		return append(dst, v.text...)
	case kindTimestamp:
		dst = binary.AppendVarint(dst, v.n)
		return binary.AppendUvarint(dst, uint64(v.frac))
	default:
		return binary.AppendVarint(dst, v.n)
	}
}

func (c *column) appendTop(dst []byte, t *top) []byte {
	dst = append(dst, byte(t.by))
	dst = binary.AppendUvarint(dst, uint64(len(t.entries)))
	for _, e := range t.entries {
		dst = c.kind.append(dst, e.value)
		dst = t.by.append(dst, e.by)
	}
	return dst
}

func (d *distinct) append(dst []byte) []byte {
	switch {
	case d.dense != nil:
		return append(append(dst, formDense), d.dense...)
	case d.sparse != nil:
		dst = append(dst, formSparse)
		dst = binary.AppendUvarint(dst, uint64(len(d.sparse)))
		last := uint32(0)
		for _, r := range d.sparse {
			dst = binary.AppendUvarint(dst, uint64((r>>rankBits-last)<<rankBits|r&(1<<rankBits-1)))
			last = r >> rankBits
		}
		return dst
	default:
		dst = append(dst, byte(len(d.exact)))
		for _, h := range d.exact {
			dst = binary.LittleEndian.AppendUint64(dst, h)
		}
		return dst
	}
}

func (q *quantile) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(q.bins)))
	last := int32(-maxBin)
	for _, b := range q.bins {
		dst = binary.AppendUvarint(dst, uint64(b.number-last))
		dst = binary.AppendUvarint(dst, uint64(b.count))
		last = b.number
	}
	return dst
}
