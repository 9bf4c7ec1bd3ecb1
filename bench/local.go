package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

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
	task.Commit(store.Checkpoint{Sequence: 1, StreamTime: int64(b.keys)})
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
	var failed error
	get := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			snap, err := task.Snapshot()
			if err != nil {
				failed = err
				return
			}
			kv, err := snap.KeyValue(name)
			if err == nil {
				_, err = kv.Get(ctx, key(rand.IntN(keys)))
			}
			snap.Close()
			if err != nil {
				failed = err
				return
			}
		}
	})
	if failed != nil {
		return readCost{}, failed
	}
	rows := 0
	scan := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			snap, err := task.Snapshot()
			if err != nil {
				failed = err
				return
			}
			rows, failed = scanAll(ctx, snap, name)
			snap.Close()
			if failed != nil {
				return
			}
		}
	})
	if failed == nil && rows != keys {
		failed = fmt.Errorf("scan: %d rows of %d", rows, keys)
	}
	return readCost{get: perOp(get), scan: perOp(scan) / float64(keys)}, failed
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

func perOp(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }

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
	g := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			txn := db.NewTransactionAt(1, false)
			item, e := txn.Get(key(rand.IntN(keys)))
			if e == nil {
				_, e = item.ValueCopy(nil)
			}
			txn.Discard()
			if e != nil {
				err = e
				return
			}
		}
	})
	rows := 0
	s := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			rows = 0
			txn := db.NewTransactionAt(1, false)
			it := txn.NewIterator(badger.DefaultIteratorOptions)
			for it.Rewind(); it.Valid(); it.Next() {
				_ = it.Item().KeyCopy(nil)
				if _, e := it.Item().ValueCopy(nil); e != nil {
					err = e
				}
				rows++
			}
			it.Close()
			txn.Discard()
		}
	})
	if err == nil && rows != keys {
		err = fmt.Errorf("raw scan: %d rows of %d", rows, keys)
	}
	return perOp(g), perOp(s) / float64(keys), err
}
