//go:build realkafka

package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
)

// TestRealKafkaStandby follows a compacted changelog whose owner commits and aborts all the time, while the cleaner works, and
// at the end dies. Each published state is one that the owner committed, in order; the copy is at no time older than what was
// acknowledged when its proof was asked for; when the owner is dead it stays fresh; under a transaction that hangs it ages.
func TestRealKafkaStandby(t *testing.T) {
	w := newReal(t, kafkatest.Config{})
	log := "app-counts-changelog"
	infos := w.ensure(topics.Internal{Topic: log, Kind: topics.Changelog, Partitions: 1, Config: map[string]string{
		"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0", "segment.ms": "500",
	}})
	if _, err := w.adm.CreateTopic(t.Context(), 1, -1, nil, inputTopic); err != nil {
		t.Fatal(err)
	}
	r := w.restorer(nil)
	rounds, err := NewRounds(RoundsConfig{Client: w.direct, Group: group})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.wg.Go(func() { _ = rounds.Run(ctx) })
	t.Cleanup(cancel)

	// The history of the owner: the state after each commit, rendered, and when its commit was acknowledged.
	var mu sync.Mutex
	history := map[string]int{"": 0}
	acked := []time.Time{{}}
	var published []int
	task := newMemoryTask(t, 0)
	seen := &watching{memoryTask: task, commit: func() {
		state := strings.Join(task.content(countsStore), " ")
		mu.Lock()
		defer mu.Unlock()
		n, ok := history[state]
		if !ok {
			t.Errorf("a state that the owner never committed: %s", state)
		}
		published = append(published, n)
	}}
	changelogs := map[store.Name]Changelog{countsStore: {Topic: log, ID: infos[log].ID, Retention: infos[log].DeleteRetention}}
	watched := rounds.Watch(task.ID(), []store.TopicPartition{{Topic: inputTopic}}, changelogs)
	defer watched.Close()
	var s *Standby
	begun := make(chan struct{})
	done := make(chan error, 1)
	following, stop := context.WithCancel(t.Context())
	w.wg.Go(func() {
		done <- r.Standby(following, StandbyRequest{
			Task: seen, Changelogs: changelogs, Watched: watched, Begun: func(f *Standby) { s = f; close(begun) },
		})
	})
	t.Cleanup(stop)
	<-begun

	// A proof is looked at beside the writes: whatever was acknowledged before it must be in the state it is of.
	looked, oldest := 0, time.Duration(0)
	look := func() {
		cp := task.Checkpoint()
		p, ok := watched.Proof(cp.Changelogs)
		if !ok || cp.Restoring {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if len(published) == 0 {
			return
		}
		looked++
		oldest = max(oldest, time.Since(p.At))
		have := published[len(published)-1]
		for n, at := range acked {
			if n > have && !at.IsZero() && at.Before(p.At) {
				t.Errorf("proven as of %s with commit %d, and commit %d was acknowledged %s before", p.At, have, n, p.At.Sub(at))
			}
		}
	}
	var looking sync.WaitGroup
	endLook := make(chan struct{})
	looking.Go(func() {
		for {
			select {
			case <-endLook:
				return
			case <-watched.Changed():
				look()
			}
		}
	})

	owner := w.producer(kgo.TransactionalID("owner"), kgo.TransactionTimeout(10*time.Minute))
	rng := rand.New(rand.NewPCG(1, 1))
	state := map[string]string{}
	const commits = 400
	for n := 1; n <= commits; n++ {
		next := maps.Clone(state)
		if err := owner.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 1 + rng.IntN(40) {
			x := kv{fmt.Sprintf("k%02d", rng.IntN(30)), fmt.Sprintf("%d-%s", n, strings.Repeat("v", rng.IntN(200))), int64(n)}
			if rng.IntN(5) == 0 {
				x.value = ""
				delete(next, x.key)
			} else {
				next[x.key] = fmt.Sprintf("%s=%s@%d", x.key, x.value, x.at)
			}
			owner.Produce(t.Context(), records(log, 0, x)[0], nil)
		}
		if err := owner.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		how := kgo.TryCommit
		if rng.IntN(4) == 0 {
			how = kgo.TryAbort
		}
		mu.Lock()
		acked = append(acked, time.Time{})
		if how == kgo.TryCommit {
			state = next
			var lines []string
			for _, k := range slices.Sorted(maps.Keys(state)) {
				lines = append(lines, state[k])
			}
			history[strings.Join(lines, " ")] = n
		}
		mu.Unlock()
		if err := owner.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
		if how == kgo.TryCommit {
			mu.Lock()
			acked[n] = time.Now()
			mu.Unlock()
		}
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: inputTopic, At: 9, LeaderEpoch: -1, Metadata: commitmeta.Meta{Sequence: 400, StreamTime: 5}.Encode()})
	if err := w.adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	fresh := func(what string) Proof {
		t.Helper()
		var p Proof
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-watched.Changed() {
			var ok bool
			if p, ok = watched.Proof(task.Checkpoint().Changelogs); ok && time.Since(p.At) < time.Second && p.Sequence == 400 {
				return p
			}
		}
		t.Fatalf("%s: %s old, %+v", what, time.Since(p.At), p)
		return p
	}
	p := fresh("after the last commit")
	if p.Position[inputTopic][0] != 8 || p.StreamTime != 5 {
		t.Errorf("proof %+v", p)
	}
	want := slices.Sorted(maps.Values(state))
	if have := task.content(countsStore); !slices.Equal(have, want) || s.Lag() != 0 || !s.Exact() {
		t.Errorf("%d entries, want %d; lag %d, exact %t", len(have), len(want), s.Lag(), s.Exact())
	}
	owner.Close() // dead, between two transactions
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); <-watched.Changed() {
		fresh("the owner is dead")
	}
	hanging := w.producer(kgo.TransactionalID("hanging"), kgo.TransactionTimeout(10*time.Minute))
	if err := hanging.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.write(hanging, log, 0, kv{"bad", "1", 1})
	began := time.Now()
	var last Proof
	for end := began.Add(2 * time.Second); time.Now().Before(end); <-watched.Changed() {
		last, _ = watched.Proof(task.Checkpoint().Changelogs)
	}
	if last.At.After(began) {
		t.Errorf("as of %s, and since %s a transaction hangs", last.At, began)
	}
	if err := r.fence(t.Context(), []string{"hanging"}); err != nil {
		t.Fatal(err)
	}
	fresh("the transaction was ended")
	close(endLook)
	looking.Wait()
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if task.wipes != 0 || !slices.IsSorted(published) {
		t.Errorf("%d wipes, states in the order %v", task.wipes, published)
	}
	t.Logf("%d states of %d commits published, %d proofs looked at, the oldest %s", len(published), commits, looked, oldest)

	// Promotion in place, and a fresh copy of the cleaned log.
	res, err := r.Restore(t.Context(), Request{Task: seen, Changelogs: changelogs})
	if err != nil || res.Records != 0 || res.Rebuilt != "" {
		t.Errorf("promoted: %+v, %v", res, err)
	}
	other := newMemoryTask(t, 0)
	otherCtx, stopOther := context.WithCancel(t.Context())
	defer stopOther()
	ready := make(chan struct{}, 1)
	w.wg.Go(func() {
		_ = r.Standby(otherCtx, StandbyRequest{Task: other, Changelogs: changelogs, Published: func() {
			select {
			case ready <- struct{}{}:
			default:
			}
		}})
	})
	<-ready
	if have := other.content(countsStore); !slices.Equal(have, want) {
		t.Errorf("a fresh copy has %d entries, want %d", len(have), len(want))
	}
	t.Logf("a fresh copy applied %d records of %d offsets", other.restored[countsStore], other.Checkpoint().Changelogs[countsStore].Next)
}
