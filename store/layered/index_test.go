package layered

import (
	"bytes"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// TestIndexOfAGrowingTable: a writer that scans after every put finds what it put, in order, and the order costs it no copy of the whole table
// at each scan; a reader that comes in between makes one run of it.
func TestIndexOfAGrowingTable(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	table := newTable(maphash.MakeSeed())
	const rows = 10_000
	copied := 0
	var before [][]*entry
	same := func(a, b []*entry) bool { return len(a) == len(b) && &a[0] == &b[0] }
	for i := 1; i <= rows; i++ {
		key := []byte(strconv.Itoa(rng.Int()))
		table.enter(0, key, table.hash(key))
		runs := table.sortedNow(i)
		sum := 0
		for n, run := range runs {
			sum += len(run)
			if n > 0 && len(runs[n-1]) <= runRatio*len(run) {
				t.Fatalf("after %d rows: run %d of %d rows, the one before has %d", i, n, len(run), len(runs[n-1]))
			}
			if !slices.ContainsFunc(before, func(b []*entry) bool { return same(b, run) }) {
				copied += len(run)
			}
			if i%1000 == 0 && !slices.IsSortedFunc(run, func(a, b *entry) int { return bytes.Compare(a.key, b.key) }) {
				t.Fatalf("after %d rows: run %d is in no order", i, n)
			}
		}
		if sum != i {
			t.Fatalf("after %d rows: %d in the index", i, sum)
		}
		if before = runs; i == rows/2 {
			whole := table.sorted(i)
			if len(whole) != i || !slices.IsSortedFunc(whole, func(a, b *entry) int { return bytes.Compare(a.key, b.key) }) {
				t.Fatalf("a reader finds %d of %d rows, or no order", len(whole), i)
			}
			if again := table.sortedNow(i); len(again) != 1 || !same(again[0], whole) {
				t.Fatalf("%d runs after a reader came", len(again))
			}
			before = [][]*entry{whole}
		}
	}
	if most := int(runRatio * rows * math.Log2(rows)); copied > most {
		t.Errorf("%d rows were copied for %d, want at most %d", copied, rows, most)
	}
}
