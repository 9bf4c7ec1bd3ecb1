package accumulate

import (
	"cmp"
	"math"
	"slices"
)

const (
	// binsPerOctave is into how many bins of equal width the doubles from one power of two to the next are split. A bin is then at
	// most 1/50 of its lower bound wide, and a point of it off by 1/101 of any value in it at most.
	binsPerOctave = 50
	// maxBin is the number of the last bin.
	maxBin = 2047 * binsPerOctave

	mantissaBits = 52
	exponentBias = 1023
)

// quantile is a DDSketch with linear interpolation between powers of two, which makes the bin of a value a matter of whole numbers: it
// is the same on every machine. Bins are in ascending order, and none is empty.
type quantile struct {
	bins []bin
}

// bin counts values of nearly the same size. Those below zero have negative numbers; number 0 is of zero.
type bin struct {
	number int32
	count  int64
}

// binOf returns the number of the bin of a finite value. What is closer to zero than the least normal double, 2.2e-308, counts as zero.
func binOf(x float64) int32 {
	b := math.Float64bits(math.Abs(x))
	exponent, mantissa := b>>mantissaBits, b&(1<<mantissaBits-1)
	if exponent == 0 {
		return 0
	}
	n := int32(exponent*binsPerOctave + mantissa*binsPerOctave>>mantissaBits)
	if x < 0 {
		return -n
	}
	return n
}

// middle returns the value that stands for a bin: the one that is off by the same part of either bound.
func (b bin) middle() float64 {
	if b.number == 0 {
		return 0
	}
	n := b.number
	if n < 0 {
		n = -n
	}
	exponent, i := n/binsPerOctave, n%binsPerOctave
	// Of bounds 1+i/50 and 1+(i+1)/50, 2ab/(a+b). One division of whole numbers: the same on every machine.
	low, high := binsPerOctave+i, binsPerOctave+i+1
	x := math.Ldexp(float64(2*low*high)/float64(binsPerOctave*(low+high)), int(exponent)-exponentBias)
	if b.number < 0 {
		return -x
	}
	return x
}

func compareBins(a, b bin) int { return cmp.Compare(a.number, b.number) }

func (q *quantile) add(x float64) { q.put(bin{binOf(x), 1}) }

func (q *quantile) put(b bin) {
	at, ok := slices.BinarySearchFunc(q.bins, b, compareBins)
	if ok {
		q.bins[at].count += b.count
		return
	}
	q.bins = slices.Insert(q.bins, at, b)
}

// at returns the value of a rank, from 0, out of n values.
func (q *quantile) at(part float64, n int64) float64 {
	rank := int64(part * float64(n-1))
	for _, b := range q.bins {
		if rank -= b.count; rank < 0 {
			return b.middle()
		}
	}
	return q.bins[len(q.bins)-1].middle() // rounding of a great n
}

// merge takes over the bins of another one.
func (q *quantile) merge(other *quantile) {
	for _, b := range other.bins {
		q.put(b)
	}
}
