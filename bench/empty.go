package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store/layered"
)

// empty measures an instance of 500 tasks that have nothing to do, in a process of its own: how long after its start all of
// them answer, and what they take.
func empty(ctx context.Context, b *bench) (err error) {
	const topic, partitions = "empty", 500
	opening, cpu, err := openEmpty(ctx, filepath.Join(b.dir, "empty-stores"), partitions)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d empty tasks", partitions)
	b.table.figure(name+": opening the stores alone", "s", opening.Seconds(), "< 5")
	b.table.figure(name+": opening the stores alone", "CPU s", cpu.Seconds(), "")
	if err := b.create(ctx, topic, partitions, nil); err != nil {
		return err
	}
	listen, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	// The first start makes the changelog, which is the broker's work.
	first, _, err := b.startEmpty(ctx, topic, listen)
	if err != nil {
		return err
	}
	if err := first.stop(); err != nil {
		return err
	}
	child, began, err := b.startEmpty(ctx, topic, listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.stop()) }()
	if err := pause(ctx, 15*time.Second); err != nil { // what starting needed goes back to the system
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	cpu, _, err = child.idle(ctx, kadm.NewClient(cl))
	if err != nil {
		return err
	}
	b.table.figure(name+": start of an instance to all answering", "s", began.wall.Seconds(), "< 5")
	b.table.figure(name+": start of an instance to all answering", "CPU s", began.cpu.Seconds(), "")
	for _, f := range []struct{ field, what string }{{"VmHWM:", "most"}, {"VmRSS:", "idle"}} {
		mb, err := child.memory(f.field)
		if err != nil {
			return err
		}
		b.table.figure(name+": "+f.what, "resident MB", mb, "< 250")
	}
	b.table.figure(name+": idle", "% of a core", 100*cpu.Seconds()/idleFor.Seconds(), "< 5")
	return nil
}

// openEmpty is what opening takes when the tasks are there already.
func openEmpty(ctx context.Context, dir string, n int) (wall, cpu time.Duration, err error) {
	t, err := openTasks(ctx, layered.Config{Dir: dir}, countSpec, n)
	if err != nil {
		return 0, 0, err
	}
	if err := t.close(ctx); err != nil {
		return 0, 0, err
	}
	begin := used()
	if err := t.start(ctx, n); err != nil {
		return 0, 0, err
	}
	wall, cpu = used().since(begin)
	return wall, cpu, t.close(ctx)
}

// start is what an instance took to begin.
type start struct{ wall, cpu time.Duration }

// startEmpty returns when a scan over all partitions has an end.
func (b *bench) startEmpty(ctx context.Context, topic, listen string) (_ *child, _ start, err error) {
	begin := time.Now()
	c, err := b.startChild(ctx, topic, "-listen", listen)
	if err != nil {
		return nil, start{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	cl, err := client.New(client.Config{Seeds: []string{listen}, Application: topic, Timeout: time.Second})
	if err != nil {
		return nil, start{}, err
	}
	defer func() { err = errors.Join(err, cl.Close()) }()
	for {
		err := drainScan(cl.Scan(ctx, "counts", client.ScanQuery{}))
		if err == nil {
			took := start{wall: time.Since(begin)}
			ticks, err := c.ticks()
			took.cpu = time.Duration(ticks) * tick
			return c, took, err
		}
		if time.Since(begin) > time.Minute {
			return nil, start{}, err
		}
		select {
		case <-c.exited:
			return nil, start{}, errors.Join(errors.New("the instance ended"), err)
		default:
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, start{}, err
		}
	}
}
