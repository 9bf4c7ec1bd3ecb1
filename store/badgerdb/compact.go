package badgerdb

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// Badger compacts a level that has outgrown its size, so what tombstones cover stays on disk when nothing more is
// written, or not enough. tombs counts them over restarts; once they are a good part of what is stored, and stand for more
// than the first level may hold in any case, all levels are compacted into one. So each pass is paid for by the deletes
// before it.

const (
	// deadPart is which part of the rows on disk must have been deleted for a pass.
	deadPart = 3
	// deadTables is how many memtables what was deleted must fill: Badger keeps up to five tables in its first level, and
	// does not compact them when there are no others.
	deadTables = 4
)

// padPrefix begins keys that have never had a value. They fill up a memtable.
const padPrefix = 0x02

// compact removes what was deleted when there is much of it, and reports whether it has to wait for readers.
func (db *DB) compact(ctx context.Context) (pending bool, err error) {
	if err := db.turn.take(ctx); err != nil {
		return true, err
	}
	tombs, due := db.tombs, db.ready() == nil && db.muchDead()
	old, ready := db.logs(), false
	if due {
		if ready = db.nobodyLooks(); ready {
			err = db.rotate()
		}
	}
	db.turn.give()
	if err != nil || !ready {
		return due, err
	}
	db.flushed(ctx, old)
	if err := db.turn.take(ctx); err != nil {
		return true, err
	}
	done := make(chan error, 1)
	if db.closed {
		db.turn.give()
		return false, nil
	}
	db.flat = make(chan struct{})
	go func() { // Badger cannot be told to stop; Close waits for it
		defer close(db.flat)
		done <- db.badger.Flatten(1)
	}()
	db.turn.give()
	select {
	case err = <-done:
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	if err != nil {
		return true, fmt.Errorf("database %s: compact: %w", db.opt.Dir, err)
	}
	if err := db.turn.take(ctx); err != nil {
		return true, err
	}
	defer db.turn.give()
	db.tombs -= tombs // the next move makes that durable
	db.deadAt = 0
	db.opt.Listener.Compacted(tombs)
	return false, nil
}

// flattening reports whether Badger is still compacting for a call that did not wait for it.
func (db *DB) flattening() bool {
	if db.flat == nil {
		return false
	}
	select {
	case <-db.flat:
		return false
	default:
		return true
	}
}

// muchDead reports whether a pass is worth it. With the turn.
func (db *DB) muchDead() bool {
	if db.tombs == 0 {
		return false
	}
	var rows, size int64
	for _, t := range db.badger.Tables() {
		rows += int64(t.KeyCount)
		size += int64(t.OnDiskSize)
	}
	return rows > 0 && db.tombs >= rows/deadPart && db.tombs*(size/rows) >= deadTables*db.opt.MemTableBytes
}

// nobodyLooks reports whether no reader is left that was there when a pass became due: what it sees cannot be removed.
// With the turn.
func (db *DB) nobodyLooks() bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.deadAt == 0 {
		db.deadAt = db.durable
	}
	for at := range db.live {
		if at < db.deadAt {
			return false
		}
	}
	return true
}

// rotate makes Badger flush its memtable, for which it has no call: it writes more tombstones than one holds, of keys that
// never were, where nobody reads. With the turn.
func (db *DB) rotate() error {
	b := newBatch(db.badger, db.durable) // nothing above D, so nothing that an undo would have to look at
	defer b.cancel()
	size := int(min(maxKey-prefixBytes, db.opt.MemTableBytes/64))
	key := make([]byte, size)
	key[0] = padPrefix
	for n, total := uint32(0), int64(0); total < db.opt.MemTableBytes*5/4; n++ {
		binary.BigEndian.PutUint32(key[1:], n)
		b.delete(key)
		total += int64(size)
	}
	if err := b.flush(); err != nil {
		return fmt.Errorf("database %s: flush: %w", db.opt.Dir, err)
	}
	return nil
}

// logs lists the logs of the memtables.
func (db *DB) logs() []string {
	names, err := filepath.Glob(filepath.Join(db.opt.Dir, "*.mem"))
	if err != nil {
		return nil
	}
	return names
}

// flushed waits until the memtables with these logs are tables, but not for long: one that is being read keeps its log.
func (db *DB) flushed(ctx context.Context, old []string) {
	const patience, step = 5 * time.Second, 10 * time.Millisecond
	timer := time.NewTimer(step)
	defer timer.Stop()
	for range patience / step {
		now := db.logs()
		if !slices.ContainsFunc(old, func(name string) bool { return slices.Contains(now, name) }) {
			return
		}
		timer.Reset(step)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}
