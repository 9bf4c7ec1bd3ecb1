package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// inStore is what a store of one task costs in the process, beyond the reads of local.
func inStore(ctx context.Context, b *bench) error {
	for _, f := range []func(context.Context, *bench) error{updates, waiting, windowStore, latency} {
		if err := f(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// waiting scans a store while commits wait to be moved: one, a hundred that together write the same rows, and a hundred
// each of which writes all of them.
func waiting(ctx context.Context, b *bench) (err error) {
	const keys, changed, commits = 100_000, 10_000, 100
	var opened []*tasks
	defer func() {
		for _, t := range opened {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	spec := countSpec
	spec.Caching = false // so that all is in what is scanned
	var scans []func() error
	for i, c := range []struct{ commits, rows, step int }{{1, changed, 0}, {commits, changed / commits, changed / commits}, {commits, changed, 0}} {
		cfg := layered.Config{Dir: filepath.Join(b.dir, fmt.Sprint("waiting-", i))}
		t, err := openTasks(ctx, cfg, spec, 1)
		if err != nil {
			return err
		}
		opened = append(opened, t)
		if err := t.fill(ctx, keys, valueBytes); err != nil {
			return err
		}
		for n := range c.commits {
			for row := range c.rows {
				at := (n*c.step + row) * (keys / changed)
				if err := t.kv[0].Put(key(at), store.Value{Data: value(at), Timestamp: 2}); err != nil {
					return err
				}
			}
			if err := t.commit(); err != nil {
				return err
			}
		}
		scans = append(scans, t.scan(ctx, keys))
	}
	cost, err := perOp(1, scans...)
	if err != nil {
		return fmt.Errorf("scan with commits waiting: %w", err)
	}
	for i, name := range []string{"100 commits wait", "100 commits of the same rows wait"} {
		b.table.cost("local scan, "+name, "CPU ns/row", cost[i+1]/keys, "1 commit waits", cost[0]/keys, "<= 1.5")
	}
	return nil
}

// scan reads all rows of all tasks.
func (t *tasks) scan(ctx context.Context, keys int) func() error {
	return func() error {
		rows := 0
		for _, task := range t.open {
			n, err := scanTask(ctx, task, t.spec.Name)
			if err != nil {
				return err
			}
			rows += n
		}
		if rows != keys {
			return fmt.Errorf("%d rows of %d", rows, keys)
		}
		return nil
	}
}

func scanTask(ctx context.Context, task *layered.Task, name store.Name) (int, error) {
	snap, err := task.Snapshot()
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	return scanAll(ctx, snap, name)
}

const (
	windowKeys  = 10_000
	windowsEach = 24
	hour        = int64(time.Hour / time.Millisecond)
	// firstWindow begins a segment of windowSpec, as it would on some day.
	firstWindow = 20_000 * 24 * hour
)

// windowStore fetches the 24 hourly windows of a key. The floor is a seek and a prefix scan in each of as many segments of
// the same rows, all with one iterator.
func windowStore(ctx context.Context, b *bench) (err error) {
	t, err := openTasks(ctx, layered.Config{Dir: filepath.Join(b.dir, "windows")}, windowSpec, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close(ctx)) }()
	if err := t.fillWindows(ctx, windowKeys, windowsEach); err != nil {
		return err
	}
	raw, err := rawWindows(filepath.Join(b.dir, "raw-windows"), windowKeys, windowsEach)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	var cost []float64
	err = b.profile("windows", func() (err error) {
		cost, err = perOp(16, rawFetch(raw, windowKeys, windowsEach), t.fetch(ctx, windowKeys, windowsEach))
		return err
	})
	if err != nil {
		return fmt.Errorf("window fetch: %w", err)
	}
	b.table.cost("window fetch, 24 windows of a key", "CPU ns/op", cost[1], "raw badger, prefix scans", cost[0], "<= 1.5")
	return nil
}

// fillWindows puts counts of each key in so many windows, in the order of time.
func (t *tasks) fillWindows(ctx context.Context, keys, each int) error {
	for n := range each {
		for i := range keys {
			if err := t.win[t.of(i)].Put(key(i), firstWindow+int64(n)*hour, store.Value{Data: make([]byte, countBytes), Timestamp: 1}); err != nil {
				return err
			}
		}
		if err := t.commit(); err != nil {
			return err
		}
	}
	return t.reopen(ctx)
}

func (t *tasks) fetch(ctx context.Context, keys, each int) func() error {
	return func() error {
		i := rand.IntN(keys)
		snap, err := t.open[t.of(i)].Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close()
		w, err := snap.Windows(t.spec.Name)
		if err != nil {
			return err
		}
		it, err := w.Scan(ctx, store.WindowScan{Key: key(i), To: math.MaxInt64})
		if err != nil {
			return err
		}
		defer it.Close()
		rows := 0
		for it.Next() {
			_ = it.Entry()
			rows++
		}
		if rows != each {
			return errors.Join(it.Err(), fmt.Errorf("%d windows of %d", rows, each))
		}
		return it.Err()
	}
}

// rawWindow is segment, key and start.
func rawWindow(k []byte, start int64) []byte {
	row := binary.BigEndian.AppendUint64(nil, uint64(store.SegmentOf(start, windowSpec.Segment())))
	return binary.BigEndian.AppendUint64(append(row, k...), uint64(start))
}

func rawWindows(dir string, keys, each int) (*badger.DB, error) {
	return fillRaw(dir, func(yield func([]byte, []byte) bool) {
		for n := range each {
			for i := range keys {
				if !yield(rawWindow(key(i), firstWindow+int64(n)*hour), make([]byte, 8+countBytes)) {
					return
				}
			}
		}
	})
}

func rawFetch(db *badger.DB, keys, each int) func() error {
	segment := windowSpec.Segment().Milliseconds()
	return rawRows(db, each, func(it *badger.Iterator, take func() error) error {
		k := key(rand.IntN(keys))
		for at := firstWindow; at < firstWindow+int64(each)*hour; at += segment {
			prefix := rawWindow(k, at)
			prefix = prefix[:len(prefix)-8]
			for it.Seek(prefix); it.Valid() && bytes.HasPrefix(it.Item().Key(), prefix); it.Next() {
				if err := take(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
