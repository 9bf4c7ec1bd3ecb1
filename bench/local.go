package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const valueBytes = 100

// local reads one task's store in the process: out of the engine, and while what is read is still recent. The floor is
// Badger alone, with the engine's options and the same keys and values.
func local(ctx context.Context, b *bench) error {
	raw, err := rawBadger(filepath.Join(b.dir, "raw"), b.keys)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	dir := filepath.Join(b.dir, "local-engine")
	moved, err := openLocal(ctx, dir, b.keys)
	if err != nil {
		return err
	}
	defer func() { _ = moved.stores.Close() }()
	if err := moved.move(ctx, dir); err != nil {
		return err
	}
	recent, err := openLocal(ctx, filepath.Join(b.dir, "local-recent"), b.keys)
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
	rows := float64(b.keys)
	b.table.cost("local get, in the engine", "CPU ns/op", get[1], "raw badger", get[0], "<= 1.3")
	b.table.cost("local get, still recent", "CPU ns/op", get[2], "raw badger", get[0], "<= 1.3")
	b.table.cost("local scan, in the engine", "CPU ns/row", scan[1]/rows, "raw badger", scan[0]/rows, "")
	b.table.cost("local scan, still recent", "CPU ns/row", scan[2]/rows, "raw badger", scan[0]/rows, "")
	return errors.Join(moved.task.Close(ctx), recent.task.Close(ctx))
}

// localStore is one task with one filled store.
type localStore struct {
	stores *layered.Stores
	task   *layered.Task
}

var localSpec = store.Spec{Name: "bench", Kind: store.KindTimestampedKeyValue}

func openLocal(ctx context.Context, dir string, keys int) (*localStore, error) {
	stores, err := layered.Open(ctx, layered.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	l := &localStore{stores: stores}
	if err := l.fill(ctx, keys); err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return l, nil
}

func (l *localStore) fill(ctx context.Context, keys int) (err error) {
	if l.task, err = l.stores.OpenTask(ctx, store.TaskID{}, []store.Spec{localSpec}); err != nil {
		return err
	}
	kv, err := l.task.KeyValue(localSpec.Name)
	if err != nil {
		return err
	}
	for i := range keys {
		if err := kv.Put(key(i), store.Value{Data: value(i), Timestamp: int64(i)}); err != nil {
			return err
		}
	}
	l.task.Commit(store.Checkpoint{
		Sequence: 1, StreamTime: int64(keys),
		Changelogs: map[store.Name]store.LogPosition{localSpec.Name: {Next: store.Offset(keys)}},
	})
	return nil
}

// move brings all of it to the engine, and reopens that, so that all of it is in tables: how much of it a memtable holds
// would be chance.
func (l *localStore) move(ctx context.Context, dir string) (err error) {
	if err := errors.Join(l.task.Close(ctx), l.stores.Close()); err != nil {
		return err
	}
	if l.stores, err = layered.Open(ctx, layered.Config{Dir: dir}); err != nil {
		return err
	}
	l.task, err = l.stores.OpenTask(ctx, store.TaskID{}, []store.Spec{localSpec})
	return err
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

func value(i int) []byte {
	v := make([]byte, valueBytes)
	copy(v, fmt.Sprintf("%d", i))
	return v
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

// perOp is what one call of each op costs in CPU ns of the process, background work included: the median of many short
// rounds in turn, so that all have the same share of whatever else the machine does. atOnce calls lie between two looks
// at the clock.
func perOp(atOnce int, ops ...func() error) ([]float64, error) { return perOpIn(21, atOnce, ops...) }

// perOpIn is perOp with another number of rounds.
func perOpIn(rounds, atOnce int, ops ...func() error) ([]float64, error) {
	const length = 50 * time.Millisecond
	costs := make([][]float64, len(ops))
	for round := range rounds {
		for i, op := range ops {
			runtime.GC() // nobody pays for what the one before left
			n, begin := 0, used()
			for n == 0 || used().cpu-begin.cpu < length {
				for range atOnce {
					if err := op(); err != nil {
						return nil, err
					}
				}
				n += atOnce
			}
			if round == 0 {
				continue // to warm up
			}
			_, cpu := used().since(begin)
			costs[i] = append(costs[i], float64(cpu.Nanoseconds())/float64(n))
		}
	}
	medians := make([]float64, len(ops))
	for i, c := range costs {
		medians[i] = median(c)
	}
	return medians, nil
}

// rawOptions are those that the engine uses: values inline, no compression, blocks out of the mapped files, every block
// checked once.
func rawOptions(dir string) badger.Options {
	return badger.DefaultOptions(dir).WithLoggingLevel(badger.ERROR).WithMemTableSize(8 << 20).WithNumMemtables(2).
		WithValueThreshold(1 << 20).WithValueLogFileSize(2 << 20).WithCompression(options.None).WithBlockCacheSize(0).
		WithNumCompactors(2).WithDetectConflicts(false).WithMetricsEnabled(false).
		WithChecksumVerificationMode(options.OnTableRead)
}

// rawBadger has the rows of local.
func rawBadger(dir string, keys int) (*badger.DB, error) {
	return fillRaw(dir, func(yield func([]byte, []byte) bool) {
		for i := range keys {
			if !yield(key(i), append(make([]byte, 8), value(i)...)) {
				return
			}
		}
	})
}

// fillRaw fills a database, and reopens it, so that all of it is in tables.
func fillRaw(dir string, rows iter.Seq2[[]byte, []byte]) (*badger.DB, error) {
	db, err := badger.OpenManaged(rawOptions(dir))
	if err != nil {
		return nil, err
	}
	wb := db.NewWriteBatchAt(1)
	for k, v := range rows {
		if err := wb.Set(k, v); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if err := errors.Join(wb.Flush(), db.Close()); err != nil {
		return nil, err
	}
	return badger.OpenManaged(rawOptions(dir))
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
	return rawRows(db, keys, func(it *badger.Iterator, take func() error) error {
		for it.Rewind(); it.Valid(); it.Next() {
			if err := take(); err != nil {
				return err
			}
		}
		return nil
	})
}

// rawRows makes a read of want rows, of those that walk stands on when it calls take: key and value are copied out.
func rawRows(db *badger.DB, want int, walk func(it *badger.Iterator, take func() error) error) func() error {
	return func() error {
		txn := db.NewTransactionAt(readAt, false)
		defer txn.Discard()
		opts := badger.DefaultIteratorOptions
		opts.PrefetchValues = false // they are inline
		it := txn.NewIterator(opts)
		defer it.Close()
		rows := 0
		err := walk(it, func() error {
			rows++
			_ = it.Item().KeyCopy(nil)
			_, err := it.Item().ValueCopy(nil)
			return err
		})
		if err == nil && rows != want {
			err = fmt.Errorf("%d rows, want %d", rows, want)
		}
		return err
	}
}
