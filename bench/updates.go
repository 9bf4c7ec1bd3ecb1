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

// updates compares updates in commits through record cache, overlay and moves with the naive form, in which each commit
// is a write batch of Badger. A round opens, updates and closes, so that each form pays in its own rounds for what it left
// to be done later; what there is before is not measured.
func updates(ctx context.Context, b *bench) error {
	for _, c := range []struct {
		name       string
		keys       int
		filled     bool
		read       bool
		goal, file string
	}{
		{"updates of 100 k hot keys", 100_000, false, true, ">= 5", "hot"},
		{"updates of 1 M cold keys", 1_000_000, true, true, ">= 1.5", "cold"},
		{"writes alone, 100 k hot keys", 100_000, false, false, "", "hot-writes"},
		{"writes alone, 1 M cold keys", 1_000_000, true, false, "", "cold-writes"},
	} {
		ours, raw := filepath.Join(b.dir, "updates-"+c.file), filepath.Join(b.dir, "raw-updates-"+c.file)
		if c.filled {
			if err := fillBoth(ctx, ours, raw, c.keys); err != nil {
				return err
			}
		}
		var costs, floors []float64
		err := b.profile("updates-"+c.file, func() error {
			for range 3 {
				cost, err := updateRound(ctx, ours, c.keys, c.read)
				if err != nil {
					return err
				}
				floor, err := rawUpdateRound(ctx, raw, c.keys, c.read)
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

const updateRoundCPU = 2 * time.Second

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

func updateRound(ctx context.Context, dir string, keys int, read bool) (ns float64, err error) {
	t, err := openTasks(ctx, layered.Config{Dir: dir}, countSpec, 1)
	if err != nil {
		return 0, err
	}
	data := make([]byte, countBytes)
	commit := func() error { return t.put(keys, data) }
	if read {
		commit = func() error { return t.count(keys, data) }
	}
	return t.updating(ctx, updateRoundCPU, commit)
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
func rawUpdateRound(ctx context.Context, dir string, keys int, read bool) (ns float64, err error) {
	db, err := badger.OpenManaged(rawOptions(dir))
	if err != nil {
		return 0, err
	}
	at := max(db.MaxVersion(), 1)
	written := make(map[string][]byte, perCommit)
	return spend(ctx, updateRoundCPU, func() error {
		clear(written)
		if err := rawCommit(db, at, keys, read, written); err != nil {
			return err
		}
		at++
		db.SetDiscardTs(at - 1) // older versions are for nobody
		return nil
	}, db.Close)
}

// rawCommit reads what is committed at a time, or written by this commit, and writes its batch after it.
func rawCommit(db *badger.DB, at uint64, keys int, read bool, written map[string][]byte) error {
	txn := db.NewTransactionAt(at, false)
	defer txn.Discard()
	wb := db.NewWriteBatchAt(at + 1)
	defer wb.Cancel()
	for range perCommit {
		k := key(rand.IntN(keys))
		if !read {
			if err := wb.Set(k, make([]byte, 8+countBytes)); err != nil {
				return err
			}
			continue
		}
		v, seen := written[string(k)]
		if !seen {
			v = make([]byte, 8+countBytes)
			written[string(k)] = v
			item, err := txn.Get(k)
			if err == nil {
				_, err = item.ValueCopy(v)
			}
			if err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
				return err
			}
		}
		count := v[8:]
		binary.BigEndian.PutUint64(count, binary.BigEndian.Uint64(count)+1)
	}
	for k, v := range written {
		if err := wb.Set([]byte(k), v); err != nil {
			return err
		}
	}
	return wb.Flush()
}
