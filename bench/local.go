package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// local reads one task's store in the process: out of the engine, and while what is read is still recent. The floor is
// Badger alone, with the engine's options and the same keys and values.
func local(ctx context.Context, b *bench) error {
	rows := rows{b.keys, valueBytes}
	raw, err := rawBadger(filepath.Join(b.dir, "raw"), rows)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	moved, err := openLocal(ctx, layered.Config{Dir: filepath.Join(b.dir, "local-engine")}, localSpec, rows)
	if err != nil {
		return err
	}
	defer func() { _ = moved.stores.Close() }()
	if err := moved.move(ctx); err != nil {
		return err
	}
	recent, err := openLocal(ctx, layered.Config{Dir: filepath.Join(b.dir, "local-recent")}, localSpec, rows)
	if err != nil {
		return err
	}
	defer func() { _ = recent.stores.Close() }()

	var get, scan []float64
	err = b.profile("local-get", func() (err error) {
		get, err = perOp(16, rawGet(raw, b.keys), moved.get(ctx, b.keys), recent.get(ctx, b.keys))
		return err
	})
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	err = b.profile("local-scan", func() (err error) {
		scan, err = perOp(1, rawScan(raw, b.keys), moved.scan(ctx, b.keys), recent.scan(ctx, b.keys))
		return err
	})
	if err != nil {
		return fmt.Errorf("scan: %w", err)
	}
	b.table.cost("local get, in the engine", "CPU ns/op", get[1], "raw badger", get[0], "<= 1.3")
	b.table.cost("local get, still recent", "CPU ns/op", get[2], "raw badger", get[0], "<= 1.3")
	b.table.cost("local scan, in the engine", "CPU ns/row", scan[1]/float64(rows.n), "raw badger", scan[0]/float64(rows.n), "<= 1.25")
	b.table.cost("local scan, still recent", "CPU ns/row", scan[2]/float64(rows.n), "raw badger", scan[0]/float64(rows.n), "<= 1.25")
	return errors.Join(moved.task.Close(ctx), recent.task.Close(ctx))
}

// get pins a snapshot per read, as a query does.
func (l *localStore) get(ctx context.Context, keys int) func() error {
	return func() error {
		snap, err := l.task.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close()
		kv, err := snap.KeyValue(localSpec.Name)
		if err != nil {
			return err
		}
		_, err = kv.Get(ctx, key(rand.IntN(keys)))
		return err
	}
}

func (l *localStore) scan(ctx context.Context, keys int) func() error {
	return func() error {
		snap, err := l.task.Snapshot()
		if err != nil {
			return err
		}
		defer snap.Close()
		rows, err := scanAll(ctx, snap, localSpec.Name)
		if err == nil && rows != keys {
			err = fmt.Errorf("%d rows of %d", rows, keys)
		}
		return err
	}
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

// readAt is above the timestamp of what rawBadger wrote: as with a database in use, a read does not find the very version
// that it asks for, which would end it early.
const readAt = 2

func rawGet(db *badger.DB, keys int) func() error {
	return func() error {
		txn := db.NewTransactionAt(readAt, false)
		defer txn.Discard()
		item, err := txn.Get(key(rand.IntN(keys)))
		if err != nil {
			return err
		}
		_, err = item.ValueCopy(nil)
		return err
	}
}

func rawScan(db *badger.DB, keys int) func() error {
	return func() error {
		txn := db.NewTransactionAt(readAt, false)
		defer txn.Discard()
		opts := badger.DefaultIteratorOptions
		opts.PrefetchValues = false // they are inline
		it := txn.NewIterator(opts)
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
	}
}
