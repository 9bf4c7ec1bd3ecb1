package processor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// pauses measures how long no record of a task is committed while they come all the time.
type pauses struct {
	tasks int
	mu    sync.Mutex
	last  map[store.TaskID]time.Time // of a commit, or of the first call of take
	worst map[store.TaskID]time.Duration
}

func (f *fleet) measurePauses(tasks int) *pauses {
	p := &pauses{tasks: tasks, last: make(map[store.TaskID]time.Time), worst: make(map[store.TaskID]time.Duration)}
	before := f.options
	f.options = func(c *Config) {
		if before != nil {
			before(c)
		}
		c.Listener.Commit = func(i CommitInfo) {
			if i.Err != nil {
				return
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			now := time.Now()
			for _, id := range i.Tasks {
				if at, ok := p.last[id]; ok {
					p.worst[id] = max(p.worst[id], now.Sub(at))
				}
				p.last[id] = now
			}
		}
	}
	return p
}

// take returns the longest pause since the last call, be it that it has not ended.
func (p *pauses) take() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var worst time.Duration
	now := time.Now()
	for n := range p.tasks {
		id := store.TaskID{Partition: store.Partition(n)}
		if _, begun := p.last[id]; !begun {
			p.last[id] = now
		}
		worst = max(worst, p.worst[id], now.Sub(p.last[id]))
	}
	clear(p.worst)
	return worst
}

// drip writes one record to each partition every interval until stop is called, and notes them.
func (f *fleet) drip(partitions int32, interval time.Duration, tr truth) (stop func()) {
	f.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cl.Close()
		for i := 0; ctx.Err() == nil; i++ {
			records := make([]*kgo.Record, partitions)
			for p := range partitions {
				key := fmt.Sprintf("of-%d-%d", p, i%50)
				tr[key]++
				records[p] = &kgo.Record{Topic: testInput, Partition: p, Key: []byte(key), Value: []byte("v"), Timestamp: time.Now()}
			}
			if err := cl.ProduceSync(context.WithoutCancel(ctx), records...).FirstErr(); err != nil {
				f.t.Error(err)
			}
			pause(interval)
		}
	}()
	return sync.OnceFunc(func() { cancel(); <-done })
}

// outage measures how long no instance answers as the owner of a partition, until stop is called; one that has not ended by then counts.
func (f *fleet) outage(partitions int, instances func() []*instance) (stop func() time.Duration) {
	end, done := make(chan struct{}), make(chan struct{})
	var worst time.Duration
	last := make([]time.Time, partitions)
	for p := range last {
		last[p] = time.Now()
	}
	go func() {
		defer close(done)
		for {
			for p := range last {
				answered := slices.ContainsFunc(instances(), func(in *instance) bool {
					_, _, err := in.total(store.Partition(p), store.ReadOptions{OnlyActive: true})
					return err == nil
				})
				worst = max(worst, time.Since(last[p]))
				if answered {
					last[p] = time.Now()
				}
			}
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() time.Duration { close(end); <-done; return worst }
}

// TestSimOpenPauses: what has no end counts: an owner that never commits and never answers again.
func TestSimOpenPauses(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks, away = 2, 5 * time.Second
		f := newFleet(t, true, tasks)
		waited := f.measurePauses(tasks)
		a := f.start("a")
		f.running(a)
		tr := truth{}
		stop := f.drip(tasks, dripInterval(), tr)
		defer stop()
		time.Sleep(time.Second)
		waited.take()
		c := &crew{}
		c.add(a)
		owned := f.outage(tasks, c.list)
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		a.cut.cut()
		c.remove(a)
		time.Sleep(away)
		if d := waited.take(); d < away || d > away+pauseGoal {
			t.Errorf("writers waited %s so far, want some %s", d, away)
		}
		time.Sleep(away)
		if d := waited.take(); d < 2*away || d > 2*away+pauseGoal {
			t.Errorf("writers waited %s so far, want some %s", d, 2*away)
		}
		if d := owned(); d < 2*away || d > 2*away+pauseGoal {
			t.Errorf("nobody answered for %s so far, want some %s", d, 2*away)
		}
		a.cut.mend()
		stop()
		f.waitCaughtUp(time.Minute)
		f.check(tr, a)
	})
}
