package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
)

const (
	scaleRows  = 1 << 20 // of 1 KiB
	scaleBytes = 1000
)

// scaleOut adds a fifth instance to four that hold 1 GB, while readers ask all the time: those that accept 10 seconds, and those
// that insist on the owner. A read has the client's default time.
func scaleOut(ctx context.Context, b *bench) (err error) {
	const app, partitions, instances = "scale", 20, 4
	if err := b.create(ctx, app, partitions, nil); err != nil {
		return err
	}
	if err := b.load(ctx, app, scaleRows, wide); err != nil {
		return err
	}
	f, err := b.startProcesses(ctx, app, "rows", instances, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	kinds := []struct {
		name string
		opt  client.Option
		asked
	}{{name: "accept 10 s", opt: client.MaxStaleness(10 * time.Second)}, {name: "insist on the owner", opt: client.OnlyActive()}}
	for i := range kinds {
		readers.Go(func() { kinds[i].asked = f.read(reading, kinds[i].opt) })
	}
	began := time.Now()
	err = errors.Join(f.add(ctx), f.await(ctx, "a share for the fifth", func(m *router.Snapshot) bool {
		return len(f.owns(m, instances)) >= partitions/(instances+1)
	}))
	took := time.Since(began)
	stop()
	readers.Wait()
	if err != nil {
		return err
	}
	b.table.figure("from 4 to 5 instances, 1 GB: until the fifth has its share", "s", took.Seconds(), "")
	for _, k := range kinds {
		name := fmt.Sprintf("from 4 to 5 instances: of %d reads that %s", k.n, k.name)
		b.table.figure(name, "failed", float64(k.failed), "0")
		b.table.figure(name+", slowest", "s", k.slowest.Seconds(), "")
	}
	return nil
}

// asked is what a reader saw.
type asked struct {
	n, failed int
	slowest   time.Duration
}

// read asks for random keys until ctx ends.
func (f *processes) read(ctx context.Context, opt client.Option) (a asked) {
	for ctx.Err() == nil {
		began := time.Now()
		_, err := f.client.Get(ctx, f.view, key(rand.IntN(scaleRows)), opt, client.NoCache())
		if ctx.Err() != nil {
			return a
		}
		a.n++
		a.slowest = max(a.slowest, time.Since(began))
		if err != nil {
			a.failed++
			_, _ = fmt.Fprintln(f.b.log, "bench: scale:", err)
		}
	}
	return a
}

// wide is the i-th record of a table of large rows.
func wide(i int) *kgo.Record {
	v := make([]byte, scaleBytes)
	copy(v, key(i))
	return &kgo.Record{Key: key(i), Value: v}
}
