package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store/layered"
)

// The Kafka Streams 4.4 figures of the same work, from its own harness on this kind of machine: records per CPU second of
// the process in the second half of the run.
const (
	streamsExactlyOnce = 37_051
	streamsRestore     = 163_800
)

// count counts records per key under exactly once, with the product's own view. The floor is the drain of the same topic
// with franz-go alone.
func count(ctx context.Context, b *bench) error {
	for _, partitions := range []int32{1, 4} {
		topic := fmt.Sprintf("in-%d", partitions)
		if err := b.create(ctx, topic, partitions, nil); err != nil {
			return err
		}
		if err := b.load(ctx, topic, b.records, b.input); err != nil {
			return err
		}
		floor, err := b.drain(ctx, topic, b.records)
		if err != nil {
			return err
		}
		for _, g := range []processor.Guarantee{processor.ExactlyOnce, processor.AtLeastOnce} {
			var c counting
			err := b.profile(fmt.Sprintf("count-%s-%d", g, partitions), func() (err error) {
				c, err = b.count(ctx, topic, partitions, g)
				return err
			})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("count, %s, %d partitions", g, partitions)
			b.table.rate(name, "records/CPU s", perSecond(b.records, c.cpu), "bare drain", perSecond(b.records, floor), "")
			if g == processor.ExactlyOnce {
				b.table.rate(name+", 2nd half", "records/CPU s", perSecond(b.records/2, c.halfCPU), "Kafka Streams*", streamsExactlyOnce, ">= 5")
			}
			b.table.figure(name, "records/s", perSecond(b.records, c.wall), "")
			b.table.figure(name, "ms/commit", 1000*c.committing.Seconds()/float64(c.commits), "")
		}
	}
	return nil
}

type counting struct {
	wall, cpu, halfCPU time.Duration
	// committing is the sum of what the commits took, of all threads.
	committing time.Duration
	commits    int
}

// count runs one instance until it has committed every record.
func (b *bench) count(ctx context.Context, topic string, partitions int32, g processor.Guarantee) (c counting, err error) {
	app := fmt.Sprintf("count-%s-%d", g, partitions)
	var begin, half usage
	done := make(chan struct{})
	commits := make(chan processor.CommitInfo, 4096)
	go func() {
		defer close(done)
		seen := 0
		for i := range commits {
			if begin.at.IsZero() {
				begin = used()
			}
			seen += i.Records
			c.commits++
			c.committing += i.Took
			if half.at.IsZero() && seen >= b.records/2 {
				half = used()
			}
			if seen >= b.records {
				end := used()
				c.wall, c.cpu = end.since(begin)
				_, c.halfCPU = end.since(half)
				return
			}
		}
	}()
	listener := processor.Listener{Commit: func(i processor.CommitInfo) {
		if i.Err == nil {
			select {
			case commits <- i:
			case <-done:
			}
		}
	}}
	begin = used()
	err = b.instance(ctx, app, topic, processor.Config{Guarantee: g, CommitInterval: 100 * time.Millisecond, Listener: listener}, done)
	return c, err
}

// instance runs a runtime that counts topic per key, until done is closed.
func (b *bench) instance(ctx context.Context, app, topic string, cfg processor.Config, done <-chan struct{}) (err error) {
	topology, err := views.Topology([]views.View{{Name: "counts", Topic: topic, Format: views.Bytes, Type: views.Count}})
	if err != nil {
		return err
	}
	stores, err := layered.Open(ctx, layered.Config{Dir: filepath.Join(b.dir, app)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stores.Close()) }()
	cfg.ApplicationID, cfg.ProcessID, cfg.Incarnation, cfg.Endpoint = app, app, "1", "127.0.0.1:7070"
	cfg.Kafka.Brokers = b.brokers
	rt, err := processor.New(cfg, topology, stores, router.NewTable())
	if err != nil {
		return err
	}
	rctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- stores.Run(rctx) }()
	go func() { ended <- rt.Run(rctx) }()
	select {
	case <-done:
	case err := <-ended:
		stop()
		return errors.Join(err, <-ended)
	}
	stop()
	return errors.Join(<-ended, <-ended)
}
