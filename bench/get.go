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

// getSize is the size of the values that gets reads.
const getSize = 16

// gets reads 16-byte values, copied out: where only the engine has them, beside Badger alone, and out of each layer above it,
// by queries with a snapshot of their own and by the task's own processor.
func gets(ctx context.Context, b *bench) error {
	if err := b.getEngine(ctx); err != nil {
		return fmt.Errorf("in the engine: %w", err)
	}
	plain, cached := countSpec, countSpec
	plain.Caching = false
	for _, l := range []struct {
		name string
		spec store.Spec
		// ready makes readers see what was put.
		ready func(*tasks) error
		query func(*tasks, context.Context, int) error
	}{
		{"recent", plain, (*tasks).commit, (*tasks).get},
		{"overlay", plain, (*tasks).show, (*tasks).getUncommitted},
		{"record cache", cached, (*tasks).show, (*tasks).getUncommitted},
	} {
		t, err := openTasks(ctx, layered.Config{Dir: filepath.Join(b.dir, "get-"+l.name)}, l.spec, 1)
		if err != nil {
			return err
		}
		err = t.putAll(ctx, b.keys)
		if err == nil {
			err = l.ready(t)
		}
		if err == nil {
			err = b.getLayer(l.name, func() error { return l.query(t, ctx, rand.IntN(b.keys)) }, func() error { return t.own(rand.IntN(b.keys)) })
		}
		if err := errors.Join(err, t.close(ctx)); err != nil { // before the next: what is alive is the collector's work
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// getEngine has only what it compares in memory.
func (b *bench) getEngine(ctx context.Context) (err error) {
	raw, err := fillRaw(filepath.Join(b.dir, "raw-get"), func(yield func([]byte, []byte) bool) {
		for i := range b.keys {
			if !yield(key(i), make([]byte, 8+getSize)) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	spec := countSpec
	spec.Caching = false
	t, err := openTasks(ctx, layered.Config{Dir: filepath.Join(b.dir, "get-engine")}, spec, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	if err := t.fill(ctx, b.keys, getSize); err != nil {
		return err
	}
	var last []byte // what is kept is made on the heap, as for a read
	choose := func() error {
		if last = key(rand.IntN(b.keys)); len(last) == 0 {
			return errors.New("no key")
		}
		return nil
	}
	var cost []float64
	err = b.profile("get-engine", func() (err error) {
		cost, err = perOp(128, choose, rawGet(raw, b.keys), func() error { return t.get(ctx, rand.IntN(b.keys)) })
		return err
	})
	if err != nil {
		return err
	}
	b.table.figure("get of 16 B: making a key, in all lines", "CPU ns/op", cost[0], "")
	b.table.cost("get of 16 B, in the engine, by a query", "CPU ns/op", cost[2], "raw badger", cost[1], "<= 1.25")
	return nil
}

// getLayer takes the goal by the wall clock: it is what a reader waits. The collector's work on what lies in memory goes on
// beside it and is in the CPU.
func (b *bench) getLayer(name string, query, own func() error) error {
	const calls = 128
	var cpu, wall []float64
	err := b.profile("get-"+name, func() (err error) {
		if cpu, err = perOp(calls, query, own); err != nil {
			return err
		}
		wall, err = wait(calls, query, own)
		return err
	})
	if err != nil {
		return err
	}
	for i, by := range []string{"a query", "the processor"} {
		line := fmt.Sprintf("get of 16 B, %s, by %s", name, by)
		b.table.figure(line, "ns", wall[i], "< 1000")
		b.table.figure(line, "CPU ns/op", cpu[i], "")
	}
	return nil
}

// wait is how long a call of each op takes in ns by the wall clock: the median of stretches of calls, each too short for the
// system to give the core to somebody else in most of them.
func wait(calls int, ops ...func() error) ([]float64, error) {
	const stretches = 4000
	took := make([][]float64, len(ops))
	for range stretches {
		for i, op := range ops {
			begin := time.Now()
			for range calls {
				if err := op(); err != nil {
					return nil, err
				}
			}
			took[i] = append(took[i], float64(time.Since(begin).Nanoseconds())/float64(calls))
		}
	}
	medians := make([]float64, len(ops))
	for i, t := range took {
		medians[i] = median(t)
	}
	return medians, nil
}

// show shows the overlay to readers.
func (t *tasks) show() error {
	for _, task := range t.open {
		task.ShowNow(func() store.Position { return nil })
	}
	return nil
}

// putAll puts every key, in a store that has them all in the engine, and does not commit.
func (t *tasks) putAll(ctx context.Context, keys int) error {
	data := make([]byte, getSize)
	if err := t.fill(ctx, keys, getSize); err != nil {
		return err
	}
	for i := range keys {
		if err := t.kv[t.of(i)].Put(key(i), store.Value{Data: data, Timestamp: 2}); err != nil {
			return err
		}
	}
	return nil
}

// own reads one key as a processor does.
func (t *tasks) own(i int) error {
	_, err := t.kv[t.of(i)].Get(key(i))
	return err
}

// getUncommitted reads one key of what the writer has shown.
func (t *tasks) getUncommitted(ctx context.Context, i int) error {
	snap, err := t.open[t.of(i)].SnapshotUncommitted(ctx, nil)
	if err != nil {
		return err
	}
	defer snap.Close()
	kv, err := snap.KeyValue(t.spec.Name)
	if err != nil {
		return err
	}
	_, err = kv.Get(ctx, key(i))
	return err
}
