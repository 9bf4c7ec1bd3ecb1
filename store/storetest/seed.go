package storetest

import (
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"
)

var seedsFlag = flag.Int("seeds", 3, "histories of each model test")

// Seeds is how many histories a model test runs.
func Seeds() int { return *seedsFlag }

var seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0: a new one each time")

// Seed is the seed of this test: the flag's, or one drawn for it.
func Seed(tb testing.TB) uint64 {
	tb.Helper()
	if *seedFlag != 0 {
		return *seedFlag
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(tb.Name()))
	return h.Sum64() ^ uint64(time.Now().UnixNano())
}

// Seeded returns a source of random numbers. done prints how to repeat the test when it has failed.
func Seeded(tb testing.TB) (rng *rand.Rand, done func()) {
	tb.Helper()
	seed := Seed(tb)
	return rand.New(rand.NewPCG(seed, 0)), func() {
		if tb.Failed() {
			tb.Logf("replay with -run '%s' -seed=%d", tb.Name(), seed)
		}
	}
}
