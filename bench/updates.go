package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store/layered"
)

// countBytes is a count.
const countBytes = 8

// updates compares reading a count, adding one and writing it, in commits through record cache, overlay and moves, with the
// naive form, in which each commit is a write batch of Badger. A round opens, updates and closes, so that each form pays in
// its own rounds for what it left to be done later.
func updates(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		name, file string
		keys, warm int
		goal       string
	}{
		{"updates of 100 k hot keys", "hot", 100_000, 300, ">= 5"},
		{"updates of 1 M cold keys", "cold", 1_000_000, 0, ">= 1.5"},
	} {
		ours, raw := filepath.Join(b.dir, "updates-"+c.file), filepath.Join(b.dir, "raw-updates-"+c.file)
		if err := fillBoth(ctx, ours, raw, c.keys); err != nil {
			return err
		}
		var costs, floors []float64
		err := b.profile("updates-"+c.file, func() error {
			for range 3 {
				cost, err := updateRound(ctx, ours, c.keys, c.warm)
				if err != nil {
					return err
				}
				floor, err := rawUpdateRound(ctx, raw, c.keys, c.warm)
				if err != nil {
					return err
				}
				costs, floors = append(costs, cost), append(floors, floor)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.table.rate(c.name, "per CPU s", 1e9/median(costs), "a write batch per commit", 1e9/median(floors), c.goal)
	}
	return nil
}

const updateRoundCPU = 4 * time.Second

func fillBoth(ctx context.Context, ours, raw string, keys int) error {
	t, err := openTasks(ctx, layered.Config{Dir: ours}, countSpec, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(t.fill(ctx, keys, countBytes), t.close(ctx)); err != nil {
		return err
	}
	db, err := fillRaw(raw, func(yield func([]byte, []byte) bool) {
		for i := range keys {
			if !yield(key(i), make([]byte, 8+countBytes)) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return db.Close()
}

// updateRound makes so many commits before it measures: hot keys are in memory by then.
func updateRound(ctx context.Context, dir string, keys, warm int) (float64, error) {
	t, err := openTasks(ctx, layered.Config{Dir: dir}, countSpec, 1)
	if err != nil {
		return 0, err
	}
	data := make([]byte, countBytes)
	for range warm {
		if err := t.count(keys, data); err != nil {
			return 0, errors.Join(err, t.close(ctx))
		}
	}
	return t.updating(ctx, updateRoundCPU, func() error { return t.count(keys, data) })
}

// updating spends CPU on commits, the moves beside them and the closing included.
func (t *tasks) updating(ctx context.Context, cpu time.Duration, commit func() error) (float64, error) {
	run, stop := context.WithCancel(ctx)
	defer stop()
	moved := make(chan error, 1)
	go func() { moved <- t.stores.Run(run) }()
	return spend(ctx, cpu, commit, func() error {
		stop()
		return errors.Join(<-moved, t.close(ctx))
	})
}

// rawUpdateRound has values with a timestamp before them, as ours.
func rawUpdateRound(ctx context.Context, dir string, keys, warm int) (float64, error) {
	db, err := badger.OpenManaged(rawOptions(dir))
	if err != nil {
		return 0, err
	}
	at := db.MaxVersion()
	written := make(map[string][]byte, perCommit)
	commit := func() error {
		clear(written)
		if err := rawCommit(db, at, keys, written); err != nil {
			return err
		}
		at++
		db.SetDiscardTs(at - 1) // older versions are for nobody
		return nil
	}
	for range warm {
		if err := commit(); err != nil {
			return 0, errors.Join(err, db.Close())
		}
	}
	return spend(ctx, updateRoundCPU, commit, db.Close)
}

// rawCommit reads what is committed at a time, or written by this commit, and writes its batch after it.
func rawCommit(db *badger.DB, at uint64, keys int, written map[string][]byte) error {
	txn := db.NewTransactionAt(at, false)
	defer txn.Discard()
	for range perCommit {
		k := key(rand.IntN(keys))
		v, seen := written[string(k)]
		if !seen {
			item, err := txn.Get(k)
			if err != nil {
				return err
			}
			if v, err = item.ValueCopy(nil); err != nil {
				return err
			}
			written[string(k)] = v
		}
		count := v[8:]
		binary.BigEndian.PutUint64(count, binary.BigEndian.Uint64(count)+1)
	}
	wb := db.NewWriteBatchAt(at + 1)
	defer wb.Cancel()
	for k, v := range written {
		if err := wb.Set([]byte(k), v); err != nil {
			return err
		}
	}
	return wb.Flush()
}
