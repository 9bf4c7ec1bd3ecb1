package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// failover kills one of three instances that keep a standby of each task: how long until the survivors answer as owners for all
// that it owned, when that was 10 tasks, and when it was 100.
func failover(ctx context.Context, b *bench) error {
	const kills = 5
	var medians []float64
	for _, tasks := range []int{10, 100} {
		took, err := b.failovers(ctx, tasks, kills)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("kill -9 of an instance of %d tasks, until all have owners that answer", tasks)
		medians = append(medians, median(took))
		b.table.figure(name, "s", medians[len(medians)-1], "< 1.5")
		b.table.figure(name+", worst", "s", took[len(took)-1], "")
	}
	b.table.cost("failover of 100 tasks", "s", medians[1], "10 tasks", medians[0], "<= 2")
	return nil
}

// failovers kills one instance after the other, and waits until all is as it was before the next one.
func (b *bench) failovers(ctx context.Context, tasks, kills int) (seconds []float64, err error) {
	const instances = 3
	app := fmt.Sprintf("failover-%d", tasks)
	if err := b.create(ctx, app, int32(instances*tasks), nil); err != nil {
		return nil, err
	}
	if err := b.load(ctx, app, b.keys, keyed); err != nil {
		return nil, err
	}
	f, err := b.startProcesses(ctx, app, "counts", instances, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	for i := range kills {
		if err := pause(ctx, 3*time.Second); err != nil { // what the last start needed is done
			return nil, err
		}
		took, err := f.failover(ctx, i%instances)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, took.Seconds())
		if err := errors.Join(f.again(ctx, i%instances), f.whole(ctx)); err != nil {
			return nil, err
		}
	}
	return seconds, nil
}

// failover kills the i-th instance and asks for a key of each of its tasks until the owner answers.
func (f *processes) failover(ctx context.Context, i int) (time.Duration, error) {
	m, err := f.client.Metadata(ctx)
	if err != nil {
		return 0, err
	}
	keys := make(map[store.Partition][]byte)
	for k := range f.b.keys {
		p, err := m.Partition(f.view, key(k))
		if err != nil {
			return 0, err
		}
		keys[p] = key(k)
	}
	owned := f.owns(m, i)
	if len(owned) == 0 {
		return 0, fmt.Errorf("instance %d owns nothing", i)
	}
	if err := f.kill(i); err != nil {
		return 0, err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("no owner after 2 minutes"))
	defer cancel()
	errs := make([]error, len(owned))
	var wg sync.WaitGroup
	for n, id := range owned {
		wg.Go(func() { errs[n] = f.untilOwned(ctx, keys[id.Partition]) })
	}
	wg.Wait()
	return time.Since(began), errors.Join(errs...)
}

// untilOwned asks one owner after the other until one answers.
func (f *processes) untilOwned(ctx context.Context, key []byte) error {
	for {
		call, cancel := context.WithTimeout(ctx, time.Second)
		_, err := f.client.Get(call, f.view, key, client.OnlyActive(), client.NoCache())
		cancel()
		if err == nil {
			return nil
		}
		if wait := pause(ctx, 10*time.Millisecond); wait != nil {
			return errors.Join(wait, err)
		}
	}
}
