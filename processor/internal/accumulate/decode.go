package accumulate

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// DecodeState makes a state of what [Plan.AppendState] wrote. An error is a [*StateError].
func (p *Plan) DecodeState(b []byte) (*State, error) {
	s := p.New()
	if err := s.Decode(b); err != nil {
		return nil, err
	}
	return s, nil
}

// Decode is [Plan.DecodeState] into a state that is used again: what was in it is gone, also when there is an error.
func (s *State) Decode(b []byte) error {
	s.reset()
	r := &reader{left: b}
	column := r.state(s)
	if r.bad == "" && len(r.left) > 0 {
		r.fail("bytes after the end")
	}
	if r.bad == "" {
		return nil
	}
	s.reset()
	return &StateError{Column: column, Reason: r.bad}
}

func (s *State) reset() {
	s.rows, s.fromResult = 0, false
	clear(s.cells)
}

// reader takes values off bytes. After the first failure it has none left, and returns zeros.
type reader struct {
	left []byte
	bad  string
}

// state reads into s and returns the name of the column it came to.
func (r *reader) state(s *State) (column string) {
	p := s.plan
	first := r.byte()
	if first&^ofResult != version {
		r.fail("another version")
	}
	s.fromResult = first&ofResult != 0
	if mark := r.take(2); mark != nil && binary.LittleEndian.Uint16(mark) != p.mark {
		r.fail("it is of other functions")
	}
	if r.bad != "" || len(r.left) == 0 {
		return ""
	}
	s.rows = 1
	if p.countsRows {
		if s.rows = r.count(); s.rows == 0 {
			r.fail("records that were not there")
		}
	}
	present := r.take((len(s.cells) + 7) / 8)
	if present == nil {
		return ""
	}
	for i := range s.cells {
		if present[i/8]>>(i%8)&1 == 0 {
			continue
		}
		p.columns[i].read(r, &s.cells[i])
		if p.countsRows && s.cells[i].n > s.rows {
			r.fail("more values than records")
		}
		if r.bad != "" {
			return p.columns[i].name
		}
	}
	return ""
}

func (c *column) read(r *reader, x *cell) {
	x.n = 1
	switch c.fn {
	case fnCount, fnSum, fnAvg:
		if x.n = r.count(); x.n == 0 {
			r.fail("a value that was not there")
		}
	case fnFirst, fnLatest:
		x.at = r.varint()
	default: // they count no values, or know by themselves
	}
	switch c.fn {
	case fnCount:
	case fnTopK:
		c.readTop(r, &x.top)
	case fnDistinct:
		r.distinct(&x.distinct)
	case fnQuantile:
		x.n = r.quantile(&x.quantile)
	default:
		x.value = r.value(c.kind)
	}
	if c.fn == fnAvg && c.kind == kindInt {
		x.high = r.varint() + x.value.n>>63
	}
}

func (r *reader) fail(why string) {
	if r.bad == "" {
		r.bad = why
	}
	r.left = nil
}

// take returns n bytes; nil when there are not as many.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.left) {
		r.fail("it ends too early")
		return nil
	}
	b := r.left[:n:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) byte() byte {
	b := r.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (r *reader) varint() int64 {
	x, n := binary.Varint(r.left)
	if n <= 0 {
		r.fail("no whole number")
		return 0
	}
	r.left = r.left[n:]
	return x
}

// count reads a number from 0 to the greatest int64.
func (r *reader) count() int64 {
	x, n := binary.Uvarint(r.left)
	if n <= 0 || x > math.MaxInt64 {
		r.fail("no whole number")
		return 0
	}
	r.left = r.left[n:]
	return int64(x)
}

// items reads how many items follow, of at least size bytes each: there cannot be more of them than bytes left.
func (r *reader) items(size, most int) int {
	n := r.count()
	if n > int64(most) || n > int64(len(r.left)/size) {
		r.fail("more items than there can be")
		return 0
	}
	return int(n)
}

// value reads a value.
func (r *reader) value(k kind) value {
	switch k {
	case kindDouble:
		b := r.take(8)
		if b == nil {
			return value{}
		}
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if !finite(f) {
			r.fail("no finite number")
		}
		return value{f: f}
	case kindString, kindBytes, kindJSON:
		return value{text: string(r.take(r.items(1, math.MaxInt)))}
	case kindTimestamp:
		v := value{n: r.varint()}
		frac := r.count()
		if frac >= int64(time.Second) || !writable(time.Unix(v.n, frac).UTC()) {
			r.fail("no instant")
			return value{}
		}
		v.frac = int32(frac)
		return v
	default:
		v := value{n: r.varint()}
		if k == kindBool && uint64(v.n) > 1 {
			r.fail("no bool")
		}
		return v
	}
}

func (c *column) readTop(r *reader, t *top) {
	t.by = kind(r.byte())
	if !t.by.ordered() || t.by == kindString {
		r.fail("no order")
		return
	}
	n := r.items(2, c.k)
	if n == 0 {
		r.fail("an empty list")
		return
	}
	t.entries = make([]entry, 0, n)
	for range n {
		e := entry{value: r.value(c.kind)}
		e.by = r.value(t.by)
		if r.bad != "" {
			return
		}
		if len(t.entries) > 0 && t.compare(c, t.entries[len(t.entries)-1], e) >= 0 {
			r.fail("a list that is out of order")
			return
		}
		t.entries = append(t.entries, e)
	}
}

func (r *reader) distinct(d *distinct) {
	switch form := r.byte(); {
	case form == formDense:
		b := r.take(denseBytes)
		for i := 0; i < len(b); i += 3 {
			word := uint32(b[i]) | uint32(b[i+1])<<8 | uint32(b[i+2])<<16
			if max(word&63, word>>6&63, word>>12&63, word>>18) > maxRank {
				r.fail("a register that is too great")
				return
			}
		}
		d.dense = slices.Clone(b)
	case form == formSparse:
		r.sparse(d)
	case form <= maxExact && form > 0:
		b := r.take(int(form) * 8)
		d.exact = make([]uint64, 0, len(b)/8)
		for ; len(b) > 0; b = b[8:] {
			h := binary.LittleEndian.Uint64(b)
			if n := len(d.exact); n > 0 && d.exact[n-1] >= h {
				r.fail("hashes that are out of order")
				return
			}
			d.exact = append(d.exact, h)
		}
	default:
		r.fail("an unknown form")
	}
}

func (r *reader) sparse(d *distinct) {
	n := r.items(1, maxSparse)
	if n == 0 {
		r.fail("no registers")
		return
	}
	d.sparse = make([]uint32, 0, n)
	last := int64(0)
	for i := range n {
		x := r.count()
		ahead, rank := x>>rankBits, x&(1<<rankBits-1)
		if r.bad != "" || ahead >= registers || last+ahead >= registers || i > 0 && ahead == 0 || rank == 0 || rank > maxRank {
			r.fail("no register")
			return
		}
		last += ahead
		d.sparse = append(d.sparse, uint32(last<<rankBits|rank))
	}
}

// quantile reads a sketch and returns how many values are in it.
func (r *reader) quantile(q *quantile) (values int64) {
	n := r.items(2, 2*maxBin)
	if n == 0 {
		r.fail("no bins")
		return 0
	}
	q.bins = make([]bin, 0, n)
	last := int64(-maxBin)
	for range n {
		ahead, count := r.count(), r.count()
		sum, ok := addInt(values, count)
		if r.bad != "" || ahead > 2*maxBin || last+ahead >= maxBin || ahead == 0 || count == 0 || !ok {
			r.fail("no bin")
			return 0
		}
		last += ahead
		values = sum
		q.bins = append(q.bins, bin{int32(last), count})
	}
	return values
}
