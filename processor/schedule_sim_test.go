package processor

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	simSeed  = flag.Uint64("seed", 1, "first seed of the simulations")
	simSeeds = flag.Int("seeds", 1, "how many seeds each simulation runs")
)

// TestMain says after simulations of many schedules what they were made of.
func TestMain(m *testing.M) {
	m.Run()
	if *simSeeds > 1 {
		_, _ = fmt.Fprintln(os.Stdout, sums.String())
	}
}

// simulate runs fn in a bubble of virtual time, once per seed, as many at a time as there are processors. A seed fixes the schedule of
// faults, not the interleaving.
func simulate(t *testing.T, fn func(t *testing.T, rng *rand.Rand)) {
	t.Helper()
	var taken atomic.Uint64
	var wg sync.WaitGroup
	for range min(*simSeeds, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for n := taken.Add(1); n <= uint64(*simSeeds); n = taken.Add(1) {
				seed := *simSeed + n - 1
				t.Run("seed="+strconv.FormatUint(seed, 10), func(t *testing.T) {
					t.Logf("to repeat this schedule: %s", again(t.Name(), seed))
					defer func() { sums.ended(t.Failed()) }()
					synctest.Test(t, func(t *testing.T) {
						defer func(began time.Time) { t.Logf("%s of virtual time", time.Since(began)) }(time.Now())
						fn(t, rand.New(&lockedSource{src: rand.NewPCG(seed, 0)}))
					})
				})
			}
		})
	}
	wg.Wait()
}

// again is the command that runs a schedule a hundred times: one interleaving of it may be lucky.
func again(name string, seed uint64) string {
	var parts []string
	for part := range strings.SplitSeq(name[:strings.LastIndex(name, "/")], "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	return fmt.Sprintf("go test -tags invariants ./processor -run '%s' -seed=%d -count=100 -failfast", strings.Join(parts, "/"), seed)
}

// lockedSource serves the test and the broker's control functions, which run elsewhere.
type lockedSource struct {
	mu  sync.Mutex
	src *rand.PCG
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Uint64()
}
