package accumulate

import "math"

// estimate returns how many different values there were.
func (d *distinct) estimate() int64 {
	if d.sparse == nil && d.dense == nil {
		return int64(len(d.exact))
	}
	var counts [maxRank + 1]int32
	for _, r := range d.sparse {
		counts[r&(1<<rankBits-1)]++
	}
	for i := 0; i < len(d.dense); i += 3 {
		word := uint32(d.dense[i]) | uint32(d.dense[i+1])<<8 | uint32(d.dense[i+2])<<16
		counts[word&63]++
		counts[word>>6&63]++
		counts[word>>12&63]++
		counts[word>>18]++
	}
	if d.dense == nil {
		counts[0] = int32(registers - len(d.sparse))
	}
	return ertl(&counts)
}

// ertl is the improved raw estimator of O. Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), algorithm 6: from how
// many registers have which rank, without tables, and without bias for few values and for many.
//
// Products are converted to float64 before they are added to something: machines that multiply and add at once then round as
// others do.
func ertl(counts *[maxRank + 1]int32) int64 {
	const m = registers
	z := m * tau(1-float64(counts[maxRank])/m)
	for rank := maxRank - 1; rank >= 1; rank-- {
		z = (z + float64(counts[rank])) / 2
	}
	z += float64(m * sigma(float64(counts[0])/m))
	const alpha = 1 / (2 * math.Ln2)
	return int64(math.RoundToEven(alpha * m * m / z))
}

// sigma is what registers of rank 0 contribute: x + the sum of x^(2^k) * 2^(k-1) from k = 1.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	y, z := 1.0, x
	for {
		x = float64(x * x)
		before := z
		z += float64(x * y)
		y += y
		if z == before {
			return z
		}
	}
}

// tau is what registers of the greatest rank contribute: a third of 1 - x - the sum of (1-x^(2^-k))^2 * 2^-k from k = 1.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		before := z
		y /= 2
		z -= float64(float64((1-x)*(1-x)) * y)
		if z == before {
			return z / 3
		}
	}
}
