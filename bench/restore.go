package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor"
)

// restoring rebuilds a count's state out of its changelog: of as many records as the count had, once over few keys and
// once with every key distinct. The floor is the drain of the changelog.
func restoring(ctx context.Context, b *bench) error {
	const partitions = 4
	if err := b.create(ctx, "idle", partitions, nil); err != nil {
		return err
	}
	for _, c := range []struct {
		name, goal string
		keys       int
	}{{"restore, repeated keys", ">= 4", b.keys}, {"restore, distinct keys", ">= 1", b.records}} {
		app := fmt.Sprintf("restore-%d", c.keys)
		log := app + "-counts-changelog"
		compact := "compact"
		if err := b.create(ctx, log, partitions, map[string]*string{"cleanup.policy": &compact}); err != nil {
			return err
		}
		if err := b.load(ctx, log, b.records, func(i int) *kgo.Record { return counted(i%c.keys, i) }); err != nil {
			return err
		}
		floor, err := b.drain(ctx, log, b.records)
		if err != nil {
			return err
		}
		var wall, cpu time.Duration
		err = b.profile(app, func() (err error) {
			wall, cpu, err = b.restore(ctx, app, partitions)
			return err
		})
		if err != nil {
			return err
		}
		b.table.rate(c.name, "records/CPU s", perSecond(b.records, cpu), "bare drain", perSecond(b.records, floor), "")
		b.table.rate(c.name, "records/CPU s", perSecond(b.records, cpu), "Kafka Streams*", streamsRestore, c.goal)
		b.table.figure(c.name, "records/s", perSecond(b.records, wall), "")
	}
	return nil
}

// restore measures from the first restore's start to the last one's end.
func (b *bench) restore(ctx context.Context, app string, tasks int) (wall, cpu time.Duration, err error) {
	var mu sync.Mutex
	var begin, end usage
	var failed error
	left := tasks
	done := make(chan struct{})
	listener := processor.Listener{
		RestoreStart: func(processor.RestoreInfo) {
			mu.Lock()
			defer mu.Unlock()
			if begin.at.IsZero() {
				begin = used()
			}
		},
		RestoreEnd: func(i processor.RestoreInfo) {
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(i.Err, context.Canceled) {
				return // the task goes to a stream thread that began later, and is restored there
			}
			if i.Err != nil {
				failed = i.Err
			}
			if left--; left == 0 {
				end = used()
				close(done)
			}
		},
	}
	if err := b.instance(ctx, app, "idle", processor.Config{Listener: listener}, done); err != nil {
		return 0, 0, err
	}
	mu.Lock()
	defer mu.Unlock()
	wall, cpu = end.since(begin)
	return wall, cpu, failed
}
