package accumulate

import (
	"math"
	"math/bits"
)

// addInt is ok unless the sum leaves 64 bits.
func addInt(a, b int64) (sum int64, ok bool) {
	sum = a + b
	return sum, (sum > a) == (b > 0)
}

// subtractInt is ok unless the difference leaves 64 bits.
func subtractInt(a, b int64) (difference int64, ok bool) {
	difference = a - b
	return difference, (difference < a) == (b > 0)
}

// addWide adds to the sum of avg. That of ints has 128 bits, which no number of records leaves: the mean of any ints is one.
func (x *cell) addWide(v value) {
	x.mergeWide(&cell{value: v, high: v.n >> 63})
}

// mergeWide adds another sum of avg.
func (x *cell) mergeWide(b *cell) {
	x.value.f += b.value.f
	low, carry := bits.Add64(uint64(x.value.n), uint64(b.value.n), 0)
	high, _ := bits.Add64(uint64(x.high), uint64(b.high), carry)
	x.value.n, x.high = int64(low), int64(high)
}

// subtractWide takes out of the sum of avg.
func (x *cell) subtractWide(v value) {
	x.value.f -= v.f
	low, borrow := bits.Sub64(uint64(x.value.n), uint64(v.n), 0)
	high, _ := bits.Sub64(uint64(x.high), uint64(v.n>>63), borrow)
	x.value.n, x.high = int64(low), int64(high)
}

// mean is the result of avg.
func (c *column) mean(x *cell) float64 {
	switch {
	case c.kind == kindDouble:
		return x.value.f / float64(x.n)
	case x.high == x.value.n>>63: // it has 64 bits
		return float64(x.value.n) / float64(x.n)
	default:
		return (math.Ldexp(float64(x.high), 64) + float64(uint64(x.value.n))) / float64(x.n)
	}
}
