package badgerdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// step is a point that a crash may follow.
type step string

const (
	stepData       step = "data written"
	stepSynced     step = "data durable"
	stepRecord     step = "record written"
	stepDone       step = "record durable"
	stepUndoData   step = "undo written"
	stepUndoSynced step = "undo durable"
	stepDropped    step = "prefixes dropped"
)

// Move applies moves: all of them at one timestamp, all of it durable, then their records in one transaction.
func (db *DB) Move(ctx context.Context, moves ...engine.Move) error {
	if err := db.turn.take(ctx); err != nil {
		return err
	}
	defer db.turn.give()
	if err := db.ready(); err != nil {
		return err
	}
	spaces := make([]*space, len(moves))
	floors := make([]map[engine.StoreID]engine.Segment, len(moves))
	db.mu.Lock()
	for i, m := range moves {
		sp := db.spaces[m.Space]
		if sp == nil {
			db.mu.Unlock()
			return fmt.Errorf("database %s: key space %d: %w", db.opt.Dir, m.Space, engine.ErrDropped)
		}
		spaces[i], floors[i] = sp, sp.floors
	}
	db.mu.Unlock()

	chk := check{Timestamp: db.tick()}
	entries := make([]*badger.Entry, 0, len(moves)+1)
	err := db.writeData(moves, floors, &chk)
	for _, m := range moves {
		entries = append(entries, badger.NewEntry(recordKey(m.Space), slices.Clone(m.Record)))
	}
	if err == nil {
		err = db.commit(chk, spaces, entries...)
	}
	if err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for i, m := range moves {
		spaces[i].record = slices.Clone(m.Record)
	}
	return nil
}

// writeData writes the data of moves, without what is below the floors, and makes it durable.
func (db *DB) writeData(moves []engine.Move, floors []map[engine.StoreID]engine.Segment, chk *check) error {
	b := newBatch(db.badger, chk.Timestamp)
	defer b.cancel()
	for i, m := range moves {
		for w := range m.Writes {
			if w.Segment > 0 && w.Segment < floors[i][w.Store] {
				continue
			}
			key := b.key(m.Space, w)
			if w.Value == nil {
				db.tombs++
				chk.Deletes++
				b.delete(key)
				continue
			}
			value := b.copy(w.Value)
			chk.add(key, value)
			b.set(key, value)
		}
	}
	if b.count == 0 {
		return nil
	}
	if err := b.flush(); err != nil {
		return err
	}
	if err := db.opt.hook(stepData); err != nil {
		return err
	}
	if err := db.syncAll(); err != nil {
		return err
	}
	return db.opt.hook(stepSynced)
}

// commit writes entries and the record that moves D, in one transaction, and makes it durable. With the turn. What the
// entries rely on must be durable before; written are the key spaces whose data has changed since the last commit.
func (db *DB) commit(chk check, written []*space, entries ...*badger.Entry) error {
	chk.Previous = db.durable
	tombs := db.tombs
	if tombs != db.tombsStored {
		entries = append(entries, badger.NewEntry(tombsKey, binary.BigEndian.AppendUint64(nil, uint64(tombs))))
	}
	ts := db.tick()
	txn := db.badger.NewTransactionAt(ts, true)
	defer txn.Discard()
	for _, e := range append(entries, badger.NewEntry(durableKey, chk.encode())) {
		var err error
		if e.Value == nil {
			err = txn.Delete(e.Key)
		} else {
			err = txn.SetEntry(e)
		}
		if err != nil {
			return err
		}
	}
	if err := txn.CommitAt(ts, nil); err != nil {
		return err
	}
	if err := db.opt.hook(stepRecord); err != nil {
		return err
	}
	if err := db.syncAll(); err != nil {
		return err
	}
	if err := db.opt.hook(stepDone); err != nil {
		return err
	}
	if db.durable == 0 { // only who has the turn changes it
		if err := db.begin(); err != nil {
			return err
		}
	}
	db.tombsStored = tombs
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, sp := range written {
		db.written(sp)
	}
	db.advance(ts)
	return nil
}

// ready says whether the database may be written to, and undoes what a failed move left. With the turn.
func (db *DB) ready() error {
	switch {
	case db.closed: // Close has the turn when it sets it
		return store.ErrClosed
	case db.failed != nil:
		return fmt.Errorf("database %s: %w: %w", db.opt.Dir, engine.ErrReadOnly, db.failed)
	}
	if err := db.checkSpace(); err != nil {
		return err
	}
	if db.leftovers == nil {
		return nil
	}
	if err := db.undo(); err != nil {
		return fmt.Errorf("database %s: %w: undo: %w, after: %w", db.opt.Dir, engine.ErrReadOnly, err, db.leftovers)
	}
	db.leftovers = nil
	return nil
}

// checkSpace refuses to write to a disk that is nearly full: a write to a mapped page without space behind it is no
// error but the end of the process.
func (db *DB) checkSpace() error {
	free, err := freeBytes(db.opt.Dir)
	if err != nil {
		return fmt.Errorf("database %s: free space: %w", db.opt.Dir, err)
	}
	if free < db.opt.MinFreeBytes {
		return fmt.Errorf("database %s: %d bytes of disk are free, %d must be: %w", db.opt.Dir, free, db.opt.MinFreeBytes, engine.ErrReadOnly)
	}
	return nil
}

// fail undoes a write that failed with err. When that fails too the next write tries again. With the turn.
func (db *DB) fail(err error) error {
	err = fmt.Errorf("database %s: %w", db.opt.Dir, err)
	db.leftovers = err
	if uerr := db.undo(); uerr != nil {
		return errors.Join(err, fmt.Errorf("database %s: undo: %w", db.opt.Dir, uerr))
	}
	db.leftovers = nil
	return err
}

// tick returns a timestamp above every other. With the turn.
func (db *DB) tick() uint64 {
	db.last = max(db.last, db.badger.MaxVersion()) + 1
	return db.last
}

// syncAll makes everything that was written durable. Badger's own Sync covers only the log of the active memtable;
// those before it were rotated without a sync, and a log that was begun has to be in the directory.
func (db *DB) syncAll() error {
	if err := db.badger.Sync(); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(db.opt.Dir, "*.mem"))
	if err != nil {
		return err
	}
	for _, name := range logs {
		if err := syncFile(name); err != nil && !errors.Is(err, os.ErrNotExist) { // flushed to a table meanwhile
			return err
		}
	}
	return syncFile(db.opt.Dir)
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
