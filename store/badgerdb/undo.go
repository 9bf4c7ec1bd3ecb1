package badgerdb

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
)

// undo makes what is newer than D as if it had never been: one pass over every version above D; each key gets the value
// it has at D again, or a delete, at a new timestamp; that is made durable, then D moves above it. Writing over leftovers
// would not do: a replay at a lower timestamp is shadowed by them, and what it does not rewrite would appear.
//
// The record that moves D is not among what is rewritten: it must come last, or a crash in the middle would call a half
// undone database durable. With the turn, or nobody else has db.
func (db *DB) undo() error {
	ts := db.tick()
	keys, err := db.rewrite(ts)
	if err != nil || keys == 0 {
		return err
	}
	if err := db.opt.hook(stepUndoData); err != nil {
		return err
	}
	if err := db.syncAll(); err != nil {
		return err
	}
	if err := db.opt.hook(stepUndoSynced); err != nil {
		return err
	}
	// The values of the last move may have been rewritten, so it can be checked no more.
	db.mu.Lock()
	spaces := slices.Collect(maps.Values(db.spaces))
	db.mu.Unlock()
	if err := db.commit(check{}, spaces); err != nil {
		return err
	}
	db.opt.Listener.Undone(keys)
	return nil
}

// rewrite writes the values at D over everything newer, at ts, and returns how many keys that were. The newer records of
// D count but are left to commit.
func (db *DB) rewrite(ts uint64) (int, error) {
	now := db.badger.NewTransactionAt(ts-1, false)
	defer now.Discard()
	then := db.badger.NewTransactionAt(db.durable, false)
	defer then.Discard()
	opt := badger.DefaultIteratorOptions
	opt.AllVersions, opt.PrefetchValues, opt.SinceTs = true, false, db.durable
	it := now.NewIterator(opt)
	defer it.Close()
	b := newBatch(db.badger, ts)
	defer b.cancel()
	var last []byte
	keys := 0
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()
		if keys > 0 && bytes.Equal(key, last) {
			continue
		}
		last = append(last[:0], key...)
		keys++
		if bytes.Equal(key, durableKey) {
			continue
		}
		item, err := db.at(then, key)
		if err != nil {
			return 0, err
		}
		if item == nil {
			b.delete(key)
			continue
		}
		if err := item.Value(func(v []byte) error { b.set(key, b.copy(v)); return nil }); err != nil {
			return 0, err
		}
	}
	if b.count == 0 {
		return keys, nil
	}
	return keys, b.flush()
}

// at reads a key at D; nil when it has no value there.
func (db *DB) at(then *badger.Txn, key []byte) (*badger.Item, error) {
	if db.durable == 0 {
		return nil, nil //nolint:nilnil // no value is not an error
	}
	item, err := then.Get(bytes.Clone(key))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil //nolint:nilnil // no value is not an error
	}
	return item, err
}

// verify compares the last move with its check. It finds what the order of a move should have made impossible: a record
// whose data is not all there.
func (db *DB) verify(want check) error {
	if want.Count == 0 {
		return nil
	}
	txn := db.badger.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	opt := badger.DefaultIteratorOptions
	opt.AllVersions, opt.PrefetchValues = true, false
	opt.Prefix, opt.SinceTs = []byte{dataPrefix}, want.Timestamp-1
	it := txn.NewIterator(opt)
	defer it.Close()
	have := check{Timestamp: want.Timestamp}
	for it.Rewind(); it.Valid(); it.Next() {
		item := it.Item()
		if item.Version() != want.Timestamp || item.IsDeletedOrExpired() {
			continue
		}
		if err := item.Value(func(v []byte) error { have.add(item.Key(), v); return nil }); err != nil {
			return err
		}
	}
	if have.Count != want.Count || have.Sum != want.Sum {
		return fmt.Errorf("last move: %d values with sum %x, want %d with %x: %w", have.Count, have.Sum, want.Count, want.Sum, store.ErrCorrupt)
	}
	return nil
}
