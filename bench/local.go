package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const valueBytes = 100

// local reads one task's store in the process: out of the engine, and while what is read is still recent. The floor is
// Badger alone, with the same keys and values.
func local(ctx context.Context, b *bench) error {
	raw, err := rawBadger(filepath.Join(b.dir, "raw"), b.keys)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	stores, err := layered.Open(ctx, layered.Config{Dir: filepath.Join(b.dir, "local")})
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	spec := store.Spec{Name: "bench", Kind: store.KindTimestampedKeyValue}
	id := store.TaskID{}
	task, err := stores.OpenTask(ctx, id, []store.Spec{spec})
	if err != nil {
		return err
	}
	kv, err := task.KeyValue(spec.Name)
	if err != nil {
		return err
	}
	for i := range b.keys {
		if err := kv.Put(key(i), store.Value{Data: value(i), Timestamp: int64(i)}); err != nil {
			return err
		}
	}
	task.Commit(store.Checkpoint{
		Sequence: 1, StreamTime: int64(b.keys),
		Changelogs: map[store.Name]store.LogPosition{spec.Name: {Next: store.Offset(b.keys)}},
	})
	recent, err := reads(ctx, task, spec.Name, b.keys)
	if err != nil {
		return err
	}
	if err := task.Close(ctx); err != nil { // moves all of it to the engine
		return err
	}
	if task, err = stores.OpenTask(ctx, id, []store.Spec{spec}); err != nil {
		return err
	}
	moved, err := reads(ctx, task, spec.Name, b.keys)
	if err != nil {
		return err
	}
	get, scan, err := rawReads(raw, b.keys)
	if err != nil {
		return err
	}
	b.table.cost("local get, in the engine", "ns/op", moved.get, "raw badger", get, "<= 1.3")
	b.table.cost("local get, still recent", "ns/op", recent.get, "raw badger", get, "<= 1.3")
	b.table.cost("local scan, in the engine", "ns/row", moved.scan, "raw badger", scan, "")
	b.table.cost("local scan, still recent", "ns/row", recent.scan, "raw badger", scan, "")
	return task.Close(ctx)
}

func value(i int) []byte {
	v := make([]byte, valueBytes)
	copy(v, fmt.Sprintf("%d", i))
	return v
}

type readCost struct{ get, scan float64 } // ns

// reads pins a snapshot per get, as a query does.
func reads(ctx context.Context, task *layered.Task, name store.Name, keys int) (readCost, error) {
	get, err := perOp(func() error {
		snap, err := task.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close()
		kv, err := snap.KeyValue(name)
		if err != nil {
			return err
		}
		_, err = kv.Get(ctx, key(rand.IntN(keys)))
		return err
	})
	if err != nil {
		return readCost{}, fmt.Errorf("get: %w", err)
	}
	scan, err := perOp(func() error {
		snap, err := task.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close()
		rows, err := scanAll(ctx, snap, name)
		if err == nil && rows != keys {
			err = fmt.Errorf("%d rows of %d", rows, keys)
		}
		return err
	})
	if err != nil {
		return readCost{}, fmt.Errorf("scan: %w", err)
	}
	return readCost{get: get, scan: scan / float64(keys)}, nil
}

func scanAll(ctx context.Context, snap *layered.Snapshot, name store.Name) (rows int, err error) {
	kv, err := snap.KeyValue(name)
	if err != nil {
		return 0, err
	}
	it, err := kv.Scan(ctx, store.Scan{})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	for it.Next() {
		_ = it.Entry()
		rows++
	}
	return rows, it.Err()
}

// perOp is what one call of op costs, in ns, over a second of calls after a few to warm up.
func perOp(op func() error) (float64, error) {
	for range 3 {
		if err := op(); err != nil {
			return 0, err
		}
	}
	const atOnce = 16 // between two looks at the clock
	n := 0
	begin := time.Now()
	for time.Since(begin) < time.Second {
		for range atOnce {
			if err := op(); err != nil {
				return 0, err
			}
		}
		n += atOnce
	}
	return float64(time.Since(begin).Nanoseconds()) / float64(n), nil
}

// rawBadger fills a database with the options that the engine uses where they matter: values inline, no compression.
func rawBadger(dir string, keys int) (*badger.DB, error) {
	opts := badger.DefaultOptions(dir).WithLoggingLevel(badger.ERROR).WithMemTableSize(8 << 20).WithValueThreshold(1 << 16).WithNumCompactors(2)
	db, err := badger.OpenManaged(opts)
	if err != nil {
		return nil, err
	}
	wb := db.NewWriteBatchAt(1)
	for i := range keys {
		if err := wb.Set(key(i), append(make([]byte, 8), value(i)...)); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if err := wb.Flush(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func rawReads(db *badger.DB, keys int) (get, scan float64, err error) {
	get, err = perOp(func() error {
		txn := db.NewTransactionAt(1, false)
		defer txn.Discard()
		item, err := txn.Get(key(rand.IntN(keys)))
		if err != nil {
			return err
		}
		_, err = item.ValueCopy(nil)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("raw get: %w", err)
	}
	scan, err = perOp(func() error {
		txn := db.NewTransactionAt(1, false)
		defer txn.Discard()
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		rows := 0
		for it.Rewind(); it.Valid(); it.Next() {
			_ = it.Item().KeyCopy(nil)
			if _, err := it.Item().ValueCopy(nil); err != nil {
				return err
			}
			rows++
		}
		if rows != keys {
			return fmt.Errorf("%d rows of %d", rows, keys)
		}
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("raw scan: %w", err)
	}
	return get, scan / float64(keys), nil
}
