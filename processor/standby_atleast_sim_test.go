package processor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// TestSimStandbyReadsYourWrites: a copy that a caller waits at meets positions of the input as soon as a round tells where the group
// stands, although nothing is published at that moment.
func TestSimStandbyReadsYourWrites(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 2
		f := newFleet(t, true, tasks)
		f.withStandbys(1)
		all := []*instance{f.start("a"), f.start("b")}
		f.eventually("copies", time.Minute, func() error { return follows(tasks, 1, all...) })
		for range 5 {
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			rec := &kgo.Record{Topic: testInput, Key: []byte("key"), Value: []byte("v"), Timestamp: time.Now()}
			if err := f.client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
			p := store.Partition(rec.Partition)
			want := store.Token{Inputs: store.Position{}}
			want.Inputs.Set(testInput, p, store.Offset(rec.Offset))
			asked, standbys := time.Now(), 0
			for _, in := range all {
				_, facts, err := in.total(p, store.ReadOptions{AtLeast: want, Wait: 10 * time.Second})
				if err != nil {
					t.Fatalf("%s: %v", in.dir, err)
				}
				if facts.Role == store.RoleStandby {
					standbys++
				}
			}
			if took := time.Since(asked); standbys != 1 || took > 2*time.Second {
				t.Errorf("%d standbys answered after %s, want 1 within a commit and a few rounds", standbys, took)
			}
		}
	})
}
