package processor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestSimPredecessor: an instance that is alone is killed and started again on its state. It takes its predecessor, whose session
// would last 45 s and whose transaction is open, out of the group and serves at once; the predecessor, should it live, is refused.
// Without knowing of it, or when evictions are off, it waits for that session.
func TestSimPredecessor(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *Config)
		soon   bool
	}{
		"known": {func(*Config) {}, true},
		"among others": {func(c *Config) {
			c.Predecessors = append([]MemberInfo{{Incarnation: "0", Member: "0", TransactionalID: "0"}}, c.Predecessors...)
		}, true},
		"nobody known": {func(c *Config) { c.Predecessors = nil }, false},
		"another is known": {func(c *Config) {
			c.Predecessors = []MemberInfo{{Incarnation: "0", Member: "0", TransactionalID: "0"}}
		}, false},
		"switched off": {func(c *Config) { c.NoEviction = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				const partitions = 4
				f := newFleet(t, true, partitions)
				fenceLikeKafka(f)
				var mu sync.Mutex
				var members []MemberInfo
				a := f.start("a", leaveOpen, func(c *Config) {
					c.NumStreamThreads = 2
					c.Listener.Member = func(m MemberInfo) {
						mu.Lock()
						defer mu.Unlock()
						members = append(members, m)
					}
				})
				a.waitRunning()
				tr := truth{}
				f.produce(tr, rng, 200, 50)
				f.eventually("a transaction is open", time.Minute, func() error {
					if f.openTransactions(testOut) == 0 {
						return errors.New("none")
					}
					return nil
				})
				a.kill("after")
				began := time.Now()
				b := f.start("after", func(c *Config) {
					mu.Lock()
					defer mu.Unlock()
					c.ProcessID, c.Predecessors = "a", slices.Clone(members)
					tc.change(c)
				})
				f.eventually("served", 3*time.Minute, func() error { return allServe(partitions, b) })
				if took := time.Since(began); (took < 5*time.Second) != tc.soon {
					t.Errorf("served after %s", took)
				}
				if !tc.soon {
					return
				}
				f.waitCaughtUp(10 * time.Second)
				a.cut.mend()
				f.produce(tr, rng, 200, 50)
				time.Sleep(10 * time.Second)
				f.waitCaughtUp(time.Minute)
				f.check(tr, b)
			})
		})
	}
}
