package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// shape is what a store is filled with; each table of growth changes one thing of it.
type shape struct {
	name                   string
	tasks, keys, valueSize int
	windows                int // of each key; 0: a key-value store
}

var growths = []struct {
	name   string
	shapes []shape
}{
	{"tasks", []shape{{"1", 1, 100_000, 100, 0}, {"10", 10, 100_000, 100, 0}, {"100", 100, 100_000, 100, 0}}},
	{"keys", []shape{{"10 k", 1, 10_000, 100, 0}, {"100 k", 1, 100_000, 100, 0}, {"1 M", 1, 1_000_000, 100, 0}}},
	{"value size", []shape{{"16 B", 1, 10_000, 16, 0}, {"1 KiB", 1, 10_000, 1 << 10, 0}, {"16 KiB", 1, 10_000, 16 << 10, 0}}},
	{"windows of a key", []shape{{"1", 1, 2000, 8, 1}, {"24", 1, 2000, 8, 24}, {"240", 1, 2000, 8, 240}}},
}

// growth is how the cost of a read, an update and a scan or fetch grows. The floor is the smallest of each table.
func growth(ctx context.Context, b *bench) error {
	for _, g := range growths {
		if err := b.grow(ctx, g.name, g.shapes); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return nil
}

// grow has all shapes of a table read in turn, out of the engine, and then updates them one after the other, each with the
// moves that it causes; they begin with all in the engine, so that of many keys each update reads one for the first time.
func (b *bench) grow(ctx context.Context, name string, shapes []shape) (err error) {
	var opened []*tasks
	defer func() {
		for _, t := range opened {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	var gets, scans []func() error
	for i, s := range shapes {
		t, err := s.open(ctx, filepath.Join(b.dir, "growth-"+strings.ReplaceAll(name, " ", "-")+fmt.Sprint(i)))
		if err != nil {
			return err
		}
		opened = append(opened, t)
		gets = append(gets, func() error { return t.get(ctx, rand.IntN(s.keys)) })
		if s.windows > 0 {
			scans = append(scans, t.fetch(ctx, s.keys, s.windows))
		} else {
			scans = append(scans, t.scan(ctx, s.keys))
		}
	}
	get, err := perOpIn(9, 16, gets...)
	if err != nil {
		return err
	}
	scan, err := perOpIn(9, 1, scans...)
	if err != nil {
		return err
	}
	var update []float64
	for i := range shapes {
		cost, err := opened[0].updating(ctx, time.Second, shapes[i].update(opened[0]))
		opened = opened[1:] // closed
		if err != nil {
			return err
		}
		update = append(update, cost)
	}
	for i, s := range shapes {
		rows, what := s.keys, "scan, a row"
		if s.windows > 0 {
			rows, what = s.windows, "fetch, a window"
		}
		scan[i] /= float64(rows)
		for _, f := range []struct {
			what  string
			costs []float64
		}{{"get", get}, {"update", update}, {what, scan}} {
			b.table.cost(fmt.Sprintf("%s, %s: %s", name, s.name, f.what), "CPU ns", f.costs[i], shapes[0].name, f.costs[0], "")
		}
	}
	return nil
}

func (s shape) open(ctx context.Context, dir string) (*tasks, error) {
	spec := countSpec
	if s.windows > 0 {
		spec = windowSpec
		spec.Retention = max(spec.Retention, time.Duration(s.windows)*spec.WindowSize)
	}
	t, err := openTasks(ctx, layered.Config{Dir: dir}, spec, s.tasks)
	if err != nil {
		return nil, err
	}
	if s.windows > 0 {
		err = t.fillWindows(ctx, s.keys, s.windows)
	} else {
		err = t.fill(ctx, s.keys, s.valueSize)
	}
	if err != nil {
		return nil, errors.Join(err, t.close(ctx))
	}
	return t, nil
}

// update is one commit of updates.
func (s shape) update(t *tasks) func() error {
	data := make([]byte, s.valueSize)
	if s.windows > 0 {
		return func() error { return t.countWindows(s.keys, s.windows, data) }
	}
	return func() error { return t.count(s.keys, data) }
}

// countWindows is count in windows.
func (t *tasks) countWindows(keys, each int, data []byte) error {
	for range perCommit {
		i, start := rand.IntN(keys), firstWindow+int64(rand.IntN(each))*hour
		w := t.win[t.of(i)]
		v, err := w.Fetch(key(i), start)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint64(data, binary.BigEndian.Uint64(v.Data)+1)
		if err := w.Put(key(i), start, store.Value{Data: data, Timestamp: 1}); err != nil {
			return err
		}
	}
	return t.commit()
}
