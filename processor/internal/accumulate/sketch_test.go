package accumulate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestDistinctExact: up to 64 values are counted exactly.
func TestDistinctExact(t *testing.T) {
	var d distinct
	for i := range int64(maxExact) {
		for range 3 {
			d.add(kindInt.hash(i))
		}
		if got := d.estimate(); got != i+1 {
			t.Fatalf("%d of %d", got, i+1)
		}
	}
	if n := len(d.append(nil)); n != 1+8*maxExact {
		t.Errorf("%d bytes", n)
	}
}

// TestDistinctError measures the error where the form changes, and beyond. The standard error is 0.81 %: of 60 sketches, the root of the
// mean square is within 1.3 of that, and none is off by five of them.
func TestDistinctError(t *testing.T) {
	const (
		sketches = 60
		standard = 0.0081
	)
	for _, n := range []int{65, 200, 1000, 4500, 6000, 20_000, 40_000, 60_000, 100_000} {
		var squares, mean, worst float64
		for seed := range uint64(sketches) {
			rnd := rand.New(rand.NewPCG(seed, uint64(n)))
			var d distinct
			for range n {
				d.add(kindInt.hash(rnd.Int64()))
			}
			off := float64(d.estimate()-int64(n)) / float64(n)
			squares += off * off / sketches
			mean += off / sketches
			worst = max(worst, math.Abs(off))
		}
		t.Logf("%d: error %.2f %%, bias %+.2f %%, worst %.2f %%", n, 100*math.Sqrt(squares), 100*mean, 100*worst)
		if math.Sqrt(squares) > 1.3*standard || worst > 5*standard || math.Abs(mean) > 4*standard/math.Sqrt(sketches) {
			t.Errorf("%d: error %.4f, bias %+.4f, worst %.4f", n, math.Sqrt(squares), mean, worst)
		}
	}
}

// TestDistinctForms: the order in which values came, and merging in whatever form, leave the same sketch.
func TestDistinctForms(t *testing.T) {
	sizes := []int{0, 1, 40, 64, 65, 500, 4000, 4600, 9000}
	for _, n := range sizes {
		for _, m := range sizes {
			var a, b, both, back distinct
			for i := range n + m {
				h := kindInt.hash(int64(i))
				both.add(h)
				back.add(kindInt.hash(int64(n + m - 1 - i)))
				if i < n {
					a.add(h)
				} else {
					b.add(h)
				}
			}
			a.merge(&b)
			want := string(both.append(nil))
			if string(a.append(nil)) != want || string(back.append(nil)) != want {
				t.Errorf("%d and %d: not the same sketch", n, m)
			}
		}
	}
}

// TestHashes: they are in stores, and must not change.
func TestHashes(t *testing.T) {
	for _, tt := range []struct {
		k    kind
		v    any
		want uint64
	}{
		{kindInt, int64(1), 0x9f29cb17a2a49995},
		{kindString, "statemesh", 0x739326275d5e913a},
		{kindDouble, 1.5, 0x49f7b96b6b5ccaf9},
		{kindBool, true, 0x9f29cb17a2a49995},
		{kindTimestamp, time.Unix(1, 2), 0x390597eba0eba3d7},
	} {
		if got := tt.k.hash(tt.v); got != tt.want {
			t.Errorf("%s %v: %#x, want %#x", tt.k, tt.v, got, tt.want)
		}
	}
}

func TestRanks(t *testing.T) {
	for _, tt := range []struct {
		hash           uint64
		register, rank uint32
	}{{0, 0, 51}, {1, 0, 50}, {math.MaxUint64, registers - 1, 1}, {1 << 50, 1, 51}, {1<<50 | 1<<49, 1, 1}} {
		if got := registerOf(tt.hash); got != tt.register<<rankBits|tt.rank {
			t.Errorf("%#x: register %d, rank %d", tt.hash, got>>rankBits, got&63)
		}
	}
}

// TestQuantileError: whatever the values, the result is off by 1 % of the value of its rank at most.
func TestQuantileError(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, next := range map[string]func() float64{
		"lognormal": func() float64 { return math.Exp(rnd.NormFloat64() * 3) },
		"normal":    rnd.NormFloat64,
		"uniform":   func() float64 { return rnd.Float64()*100 - 10 },
		"any":       func() float64 { return math.Ldexp(rnd.Float64()-0.5, rnd.IntN(1900)-950) },
		"whole":     func() float64 { return float64(rnd.IntN(7) - 2) },
		"great":     func() float64 { return math.MaxFloat64 * (1 - rnd.Float64()/100) },
	} {
		var q quantile
		var all []float64
		for range 5000 {
			x := next()
			q.add(x)
			all = append(all, x)
		}
		slices.Sort(all)
		worst := 0.0
		for _, part := range []float64{0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
			want := all[int(part*float64(len(all)-1))]
			got := q.at(part, int64(len(all)))
			if math.Abs(got-want) > math.Abs(want)/100 {
				t.Errorf("%s, %g: %g, want %g", name, part, got, want)
			}
			if want != 0 {
				worst = max(worst, math.Abs(got-want)/math.Abs(want))
			}
		}
		t.Logf("%s: off by %.2f %%, %d bins, %d bytes", name, 100*worst, len(q.bins), len(q.append(nil)))
	}
}

// TestBins: bounds of bins, where rounding would show.
func TestBins(t *testing.T) {
	for _, x := range []float64{1, 1.02, 2, 1.9999999999999998, 0x1p-1022, math.MaxFloat64, 0.1, 100, math.Nextafter(2, 0)} {
		for _, y := range []float64{x, -x} {
			b := bin{number: binOf(y)}
			if got := b.middle(); math.Abs(got-y) > math.Abs(y)/100 || math.IsInf(got, 0) {
				t.Errorf("%g: bin %d stands for %g", y, b.number, got)
			}
			if b.number >= maxBin || b.number <= -maxBin || b.number == 0 {
				t.Errorf("%g: bin %d", y, b.number)
			}
		}
	}
	if binOf(0x1p-1023) != 0 || binOf(math.Copysign(0, -1)) != 0 {
		t.Error("not zero")
	}
}
