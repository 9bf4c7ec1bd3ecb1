package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// getSize is the size of the values that gets reads.
const getSize = 16

// gets reads 16-byte values, copied out: where only the engine has them, beside Badger alone, and out of each layer above it,
// by queries with a snapshot of their own and by the task's own processor. All lines contain what choosing a key costs.
func gets(ctx context.Context, b *bench) (err error) {
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
	var opened []*tasks
	defer func() {
		for _, t := range opened {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	plain, cached := countSpec, countSpec
	plain.Caching = false
	open := func(name string, spec store.Spec) (*tasks, error) {
		t, err := openTasks(ctx, layered.Config{Dir: filepath.Join(b.dir, "get-"+name)}, spec, 1)
		if err == nil {
			opened = append(opened, t)
			err = t.fill(ctx, b.keys, getSize)
		}
		return t, err
	}
	engine, err := open("engine", plain)
	if err != nil {
		return err
	}
	recent, err := open("recent", plain)
	if err != nil {
		return err
	}
	overlay, err := open("overlay", plain)
	if err != nil {
		return err
	}
	cache, err := open("cache", cached)
	if err != nil {
		return err
	}
	for _, t := range []*tasks{recent, overlay, cache} {
		if err := t.putAll(b.keys, make([]byte, getSize)); err != nil {
			return err
		}
	}
	if err := recent.commit(); err != nil {
		return err
	}
	overlay.open[0].ShowNow(func() store.Position { return nil })

	var last []byte // what is kept is made on the heap, as for a read
	choose := func() error {
		if last = key(rand.IntN(b.keys)); len(last) != 16 {
			return fmt.Errorf("key %q", last)
		}
		return nil
	}
	lines := []struct {
		name, goal string
		op         func() error
	}{
		{"raw badger", "", rawGet(raw, b.keys)},
		{"choosing a key, alone", "", choose},
		{"in the engine, by a query", "<= 1.25", func() error { return engine.get(ctx, rand.IntN(b.keys)) }},
		{"recent, by a query", "< 1000", func() error { return recent.get(ctx, rand.IntN(b.keys)) }},
		{"overlay, by a query", "< 1000", func() error { return overlay.getUncommitted(ctx, rand.IntN(b.keys)) }},
		{"recent, by the processor", "< 1000", func() error { return recent.own(rand.IntN(b.keys)) }},
		{"overlay, by the processor", "< 1000", func() error { return overlay.own(rand.IntN(b.keys)) }},
		{"record cache, by the processor", "< 1000", func() error { return cache.own(rand.IntN(b.keys)) }},
	}
	var ops []func() error
	for _, l := range lines {
		ops = append(ops, l.op)
	}
	var cost []float64
	err = b.profile("get", func() (err error) {
		cost, err = perOp(128, ops...)
		return err
	})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	for i, l := range lines[1:] {
		if name := "get of 16 B, " + l.name; l.goal == "<= 1.25" {
			b.table.cost(name, "CPU ns/op", cost[i+1], "raw badger", cost[0], l.goal)
		} else {
			b.table.figure(name, "CPU ns/op", cost[i+1], l.goal)
		}
	}
	return nil
}

// putAll puts every key and does not commit.
func (t *tasks) putAll(keys int, data []byte) error {
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
