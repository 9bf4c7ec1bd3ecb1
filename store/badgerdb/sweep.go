package badgerdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store/engine"
)

const (
	// sweepChunk is how many rows are deleted before moves get a turn.
	sweepChunk = 64 << 10
	// maxSweepRows is up to how many rows are deleted one by one. That writes, but no read waits for it; from here on
	// DropPrefix is much cheaper, and holds up all reads of the database while it runs.
	maxSweepRows = 128 << 10
)

// sweep deletes the rows of d one by one unless they are too many.
func (db *DB) sweep(ctx context.Context, d *doomed) (small bool, err error) {
	from, _ := d.bounds()
	for first := true; ; first = false {
		if err := db.turn.take(ctx); err != nil {
			return false, err
		}
		if first && db.rows(d, db.opt.sweepRows+1) > db.opt.sweepRows {
			db.turn.give()
			return false, nil
		}
		from, err = db.sweepSome(d, from)
		db.turn.give()
		if err != nil || from == nil {
			return true, err
		}
	}
}

// sweepSome deletes the next rows of d from a full key on, durably, and returns where to go on: nil at the end. To begin
// at the first row each time would be to walk over all that was deleted before. With the turn.
func (db *DB) sweepSome(d *doomed, from []byte) (next []byte, err error) {
	if err := db.ready(); err != nil {
		return nil, err
	}
	b := newBatch(db.badger, db.tick())
	defer b.cancel()
	db.walk(d, from, sweepChunk, func(key []byte) {
		next = append(next[:0], key...)
		b.delete(key)
	})
	if b.count == 0 {
		return nil, nil
	}
	db.tombs += int64(b.count)
	err = b.flush()
	for _, then := range []func() error{
		func() error { return db.opt.hook(stepData) },
		db.syncAll,
		func() error { return db.opt.hook(stepSynced) },
		func() error { return db.commit(check{}, nil) }, // what the last move wrote may be among them: no check
	} {
		if err == nil {
			err = then()
		}
	}
	if err != nil {
		return nil, db.fail(err)
	}
	if b.count < sweepChunk {
		return nil, nil
	}
	return next, nil
}

// rows counts the rows of d, up to limit. With the turn.
func (db *DB) rows(d *doomed, limit int) (n int) {
	from, _ := d.bounds()
	db.walk(d, from, limit, func([]byte) { n++ })
	return n
}

// walk calls visit with the full keys of d at or behind from, at most limit, that have a value now. With the turn.
func (db *DB) walk(d *doomed, from []byte, limit int, visit func(key []byte)) {
	if db.closed {
		return
	}
	first, to := d.bounds()
	txn := db.badger.NewTransactionAt(db.durable, false)
	defer txn.Discard()
	opt := badger.DefaultIteratorOptions
	opt.PrefetchValues, opt.Prefix = false, first[:min(len(first), prefixBytes-8)] // the store, or the space
	it := txn.NewIterator(opt)
	defer it.Close()
	for it.Seek(from); it.Valid() && limit > 0; it.Next() {
		key := it.Item().Key()
		if bytes.Compare(key, to) >= 0 {
			return
		}
		visit(key)
		limit--
	}
}

// dropPrefixes drops what is too much to be deleted row by row. With the turn.
func (db *DB) dropPrefixes(large []*doomed) error {
	var prefixes [][]byte
	for _, d := range large {
		if d.below > 0 {
			prefixes = append(prefixes, db.segments(d)...)
			continue
		}
		from, _ := d.bounds()
		prefixes = append(prefixes, from)
	}
	if len(prefixes) == 0 {
		return nil
	}
	// The last move may have written there, and its check would count what is about to go.
	if err := db.commit(check{}, nil); err != nil {
		return db.fail(err)
	}
	if err := db.badger.DropPrefix(prefixes...); err != nil {
		// Badger has let go of memtables that it may not have flushed: only opening it again tells what is there.
		db.failed = fmt.Errorf("drop prefixes: %w", err)
		return fmt.Errorf("database %s: %w", db.opt.Dir, db.failed)
	}
	if err := db.syncAll(); err != nil { // the tables that DropPrefix has written
		return db.fail(err)
	}
	if err := db.opt.hook(stepDropped); err != nil {
		return db.fail(err)
	}
	for _, d := range large {
		if db.rows(d, 1) > 0 { // when it cannot compact its first level Badger says so in its log alone
			return fmt.Errorf("database %s: rows of key space %d, store %d, are there after they were dropped", db.opt.Dir, d.space.id, d.store)
		}
	}
	return nil
}

// segments finds the expired segments that hold something, by one seek for each. With the turn.
func (db *DB) segments(d *doomed) [][]byte {
	txn := db.badger.NewTransactionAt(db.durable, false)
	defer txn.Discard()
	opt := badger.DefaultIteratorOptions
	opt.PrefetchValues, opt.Prefix = false, appendStore(nil, d.space.id, d.store)
	it := txn.NewIterator(opt)
	defer it.Close()
	var out [][]byte
	for next := engine.Segment(1); next < d.below; next++ {
		it.Seek(appendSegment(nil, d.space.id, d.store, next))
		if !it.Valid() {
			break
		}
		key := it.Item().Key()
		if next = engine.Segment(binary.BigEndian.Uint64(key[len(opt.Prefix):])); next >= d.below {
			break
		}
		out = append(out, slices.Clone(key[:prefixBytes]))
	}
	return out
}
