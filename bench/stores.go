package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// This file has what the parts without a broker work on: one task in this process, and Badger alone beside it.

const valueBytes = 100

// rows are n keys with values of size bytes.
type rows struct{ n, size int }

func (r rows) value(i int) []byte {
	v := make([]byte, r.size)
	copy(v, fmt.Sprintf("%d", i))
	return v
}

func value(i int) []byte { return rows{size: valueBytes}.value(i) }

var localSpec = store.Spec{Name: "bench", Kind: store.KindTimestampedKeyValue}

// localStore is one task with one filled store.
type localStore struct {
	cfg    layered.Config
	spec   store.Spec
	stores *layered.Stores
	task   *layered.Task
	// sequence of the last commit.
	sequence store.Sequence
}

// openLocal opens a task and puts r into it in one commit, which stays recent. The stores do not run.
func openLocal(ctx context.Context, cfg layered.Config, spec store.Spec, r rows) (*localStore, error) {
	stores, err := layered.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	l := &localStore{cfg: cfg, spec: spec, stores: stores}
	if l.task, err = stores.OpenTask(ctx, store.TaskID{}, []store.Spec{spec}); err == nil {
		err = l.fill(r)
	}
	if err != nil {
		return nil, errors.Join(err, stores.Close())
	}
	return l, nil
}

func (l *localStore) fill(r rows) error {
	if r.n == 0 {
		return nil
	}
	kv, err := l.task.KeyValue(l.spec.Name)
	if err != nil {
		return err
	}
	for i := range r.n {
		if err := kv.Put(key(i), store.Value{Data: r.value(i), Timestamp: int64(i)}); err != nil {
			return err
		}
	}
	l.commit()
	return nil
}

// commit makes what was put recent.
func (l *localStore) commit() {
	l.sequence++
	l.task.Commit(store.Checkpoint{
		Sequence: l.sequence, StreamTime: int64(l.sequence),
		Changelogs: map[store.Name]store.LogPosition{l.spec.Name: {Next: store.Offset(l.sequence)}},
	})
}

// move brings all of it to the engine, and reopens that, so that all of it is in tables: how much of it a memtable holds
// would be chance.
func (l *localStore) move(ctx context.Context) (err error) {
	if err := errors.Join(l.task.Close(ctx), l.stores.Close()); err != nil {
		return err
	}
	if l.stores, err = layered.Open(ctx, l.cfg); err != nil {
		return err
	}
	l.task, err = l.stores.OpenTask(ctx, store.TaskID{}, []store.Spec{l.spec})
	return err
}

// running runs the stores beside f, and moves what is recent before it returns.
func (l *localStore) running(ctx context.Context, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- l.stores.Run(ctx) }()
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

func (l *localStore) close(ctx context.Context) error {
	return errors.Join(l.task.Close(ctx), l.stores.Close())
}

// openRaw opens a database with the options that the engine uses: values inline, no compression, blocks out of the mapped
// files, every block checked once.
func openRaw(dir string) (*badger.DB, error) {
	return badger.OpenManaged(badger.DefaultOptions(dir).WithLoggingLevel(badger.ERROR).WithMemTableSize(8 << 20).
		WithNumMemtables(2).WithValueThreshold(1 << 20).WithValueLogFileSize(2 << 20).WithCompression(options.None).
		WithBlockCacheSize(0).WithNumCompactors(2).WithDetectConflicts(false).WithMetricsEnabled(false).
		WithChecksumVerificationMode(options.OnTableRead))
}

// rawBadger fills one, and reopens it: all of it is in tables then.
func rawBadger(dir string, r rows) (*badger.DB, error) {
	db, err := openRaw(dir)
	if err != nil {
		return nil, err
	}
	wb := db.NewWriteBatchAt(1)
	for i := range r.n {
		if err := wb.Set(key(i), append(make([]byte, 8), r.value(i)...)); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if err := errors.Join(wb.Flush(), db.Close()); err != nil {
		return nil, err
	}
	return openRaw(dir)
}

// perOp is what one call of each op costs in CPU ns of the process, background work included: the median of many short
// rounds in turn, so that all have the same share of whatever else the machine does. atOnce calls lie between two looks
// at the clock.
func perOp(atOnce int, ops ...func() error) ([]float64, error) {
	const rounds, length = 21, 50 * time.Millisecond
	costs := make([][]float64, len(ops))
	for round := range rounds {
		for i, op := range ops {
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

// settled waits until the process rests, so that what a round has put off, compactions above all, is counted as its own.
func settled(ctx context.Context) error {
	const look, quiet = 50 * time.Millisecond, 2 * time.Millisecond
	for range 200 {
		before := used()
		if err := pause(ctx, look); err != nil {
			return err
		}
		if used().cpu-before.cpu < quiet {
			return nil
		}
	}
	return errors.New("the process does not come to rest")
}
