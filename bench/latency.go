package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const (
	latencyKeys = 100_000
	latencySize = 1 << 10
	// latencyRound has moves, memtables that are written out, and compactions.
	latencyRound = 4 * time.Second
	latencyBeat  = 50 * time.Millisecond
)

// latency is the p99 of a read by the wall clock while 20 commits a second of 1,000 values of 1 KiB each are made, moved
// and compacted; the floor is that of the rounds between, in which nothing is written. A writer that takes all it can get
// would measure the scheduler instead.
func latency(ctx context.Context, b *bench) (err error) {
	spec := countSpec
	spec.Caching = false
	cfg := layered.Config{Dir: filepath.Join(b.dir, "latency"), MoveInterval: time.Second}
	t, err := openTasks(ctx, cfg, spec, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	if err := t.fill(ctx, latencyKeys, latencySize); err != nil {
		return err
	}
	get := func() error { return t.get(ctx, rand.IntN(latencyKeys)) }
	var quiet, busy []float64
	err = b.profile("latency", func() error {
		for range 4 {
			p99, err := percentile99(latencyRound, get)
			if err != nil {
				return err
			}
			quiet = append(quiet, p99)
			if p99, err = t.beside(ctx, get); err != nil {
				return err
			}
			busy = append(busy, p99)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("latency of reads: %w", err)
	}
	b.table.cost("p99 of a read during commits, moves, compactions", "us", median(busy)/1e3, "nothing written", median(quiet)/1e3, "<= 3")
	return nil
}

// beside measures get while commits are made and moved.
func (t *tasks) beside(ctx context.Context, get func() error) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- t.stores.Run(ctx) }()
	go func() { ended <- t.beat(ctx) }()
	p99, err := percentile99(latencyRound, get)
	stop()
	return p99, errors.Join(err, <-ended, <-ended)
}

// beat commits at a steady rate until ctx ends.
func (t *tasks) beat(ctx context.Context) error {
	ticker := time.NewTicker(latencyBeat)
	defer ticker.Stop()
	data := make([]byte, latencySize)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := t.put(latencyKeys, data); err != nil {
			return err
		}
	}
}

// get reads one key with a snapshot of its own.
func (t *tasks) get(ctx context.Context, i int) error {
	snap, err := t.open[t.of(i)].Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	if t.spec.Kind == store.KindTimestampedWindow {
		w, err := snap.Windows(t.spec.Name)
		if err != nil {
			return err
		}
		_, err = w.Fetch(ctx, key(i), firstWindow)
		return err
	}
	kv, err := snap.KeyValue(t.spec.Name)
	if err != nil {
		return err
	}
	_, err = kv.Get(ctx, key(i))
	return err
}

// percentile99 calls op for as long as length, one call after the other, and returns how long in ns 99 of 100 took at most.
func percentile99(length time.Duration, op func() error) (float64, error) {
	const step = 50 * time.Nanosecond
	counts := make([]int, 5*time.Millisecond/step+1) // the last is all that took longer
	calls := 0
	start := time.Now()
	for at := start; at.Sub(start) < length; calls++ {
		if err := op(); err != nil {
			return 0, err
		}
		now := time.Now()
		counts[min(int(now.Sub(at)/step), len(counts)-1)]++
		at = now
	}
	below := 0
	for i, n := range counts {
		if below += n; below*100 >= calls*99 {
			return float64(time.Duration(i+1) * step), nil
		}
	}
	return 0, errors.New("nothing was called")
}
