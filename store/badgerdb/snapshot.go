package badgerdb

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// snapshot reads a key space at one timestamp. It is known until it and its iterators are released, so that Badger
// keeps what it sees. A read-only transaction is nothing but a timestamp and may be used by many at once.
type snapshot struct {
	db    *DB
	space *space
	ts    uint64
	txn   *badger.Txn
	drop  uint64 // the number of the last drop before it
	// bound is D when its key space was written to for the first time after it was taken, 0 before. Guarded by db.mu.
	bound uint64
	// uses are its iterators, plus one until it is released.
	uses     atomic.Int64
	released atomic.Bool
	// losses are set before what it reads is dropped; nil while nothing was.
	losses atomic.Pointer[losses]
}

// Snapshot pins D.
func (db *DB) Snapshot(id engine.SpaceID) (engine.Snapshot, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	db.mu.Lock()
	defer db.mu.Unlock()
	sp := db.spaces[id]
	if sp == nil {
		return nil, fmt.Errorf("database %s: key space %d: %w", db.opt.Dir, id, engine.ErrDropped)
	}
	s := &snapshot{db: db, space: sp, ts: db.durable, drop: db.drops}
	s.txn = db.badger.NewTransactionAt(s.ts, false)
	s.uses.Store(1)
	sp.snapshots[s] = struct{}{}
	return s, nil
}

// Get appends the value of key to dst.
func (s *snapshot) Get(id engine.StoreID, segment engine.Segment, key, dst []byte) ([]byte, error) {
	if s.released.Load() {
		return nil, store.ErrClosed
	}
	if err := s.db.enter(); err != nil {
		return nil, err
	}
	full := s.db.keys.Get().(*[]byte) // Badger holds it no longer than the item, which get lets go
	*full = append(appendSegment((*full)[:0], s.space.id, id, segment), key...)
	out, err := s.get(*full, dst)
	s.db.keys.Put(full)
	s.db.leave()
	if s.lost(id, segment) { // what was not found may have been dropped
		return nil, engine.ErrDropped
	}
	return out, err
}

// Iterate opens an ordered read.
func (s *snapshot) Iterate(r engine.Range) (engine.Iterator, error) {
	if s.released.Load() {
		return nil, store.ErrClosed
	}
	if err := s.db.enter(); err != nil {
		return nil, err
	}
	defer s.db.leave()
	return s.iterate(r), nil
}

// Release ends the use of the snapshot.
func (s *snapshot) Release() {
	if !s.released.Swap(true) {
		s.done()
	}
}

func (s *snapshot) get(key, dst []byte) ([]byte, error) {
	item, err := s.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, store.ErrNotFound
	} else if err != nil {
		return nil, err
	}
	if dst != nil {
		err = item.Value(func(v []byte) error { dst = append(dst, v...); return nil })
		return dst, err
	}
	v, err := item.ValueCopy(nil)
	if err == nil && v == nil {
		v = []byte{} // an empty value is not nil
	}
	return v, err
}

// done ends one use; the last lets Badger forget what the snapshot sees.
func (s *snapshot) done() {
	if s.uses.Add(-1) > 0 {
		return
	}
	// Not Discard: in managed mode it frees nothing, and it must not run while another goroutine is reading.
	db := s.db
	db.gate.RLock()
	defer db.gate.RUnlock()
	db.mu.Lock()
	defer db.mu.Unlock()
	delete(s.space.snapshots, s)
	if s.bound == 0 {
		return
	}
	if db.live[s.bound]--; db.live[s.bound] == 0 {
		delete(db.live, s.bound)
		if !db.closed {
			db.discard()
		}
	}
}

// iterator walks a range. Its lock is against Close and Drop, which may end it from another goroutine.
type iterator struct {
	snap    *snapshot
	rng     engine.Range
	prefix  int // length of what precedes the key
	started bool

	mu    sync.Mutex
	it    *badger.Iterator // nil once closed
	key   []byte
	value []byte
	err   error
	end   []byte // full key where the range ends; nil: with the prefix
}

// iterate opens an iterator. The database cannot be closed meanwhile.
func (s *snapshot) iterate(r engine.Range) *iterator {
	opt := badger.DefaultIteratorOptions
	opt.PrefetchValues, opt.Reverse = false, r.Reverse // values are inline
	// Badger looks only into the tables that may have the prefix, so a narrow one saves a range of few keys most of its cost.
	opt.Prefix = appendSegment(make([]byte, 0, prefixBytes+len(r.From)), s.space.id, r.Store, r.Segment)
	it := &iterator{snap: s, rng: r, prefix: len(opt.Prefix)}
	opt.Prefix = append(opt.Prefix, common(r.From, r.To)...)
	it.it = s.txn.NewIterator(opt)
	s.uses.Add(1)
	s.db.mu.Lock()
	s.db.iterators[it] = struct{}{}
	s.db.mu.Unlock()
	return it
}

// Next moves to the next key.
func (it *iterator) Next() bool {
	it.mu.Lock()
	ok := it.step()
	it.mu.Unlock()
	if it.snap.lost(it.rng.Store, it.rng.Segment) { // what was read may lack what was dropped
		it.cut(engine.ErrDropped)
		return false
	}
	if !ok {
		it.Close()
	}
	return ok
}

// Key is the current key.
func (it *iterator) Key() []byte { return it.key }

// Value is the current value.
func (it *iterator) Value() []byte { return it.value }

// Err is what ended the iterator before the end of its range.
func (it *iterator) Err() error {
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.err
}

// Close ends the iterator.
func (it *iterator) Close() {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.close()
}

// cut ends the iterator with err unless it has ended.
func (it *iterator) cut(err error) {
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.it != nil {
		it.err = err
		it.close()
	}
}

// close lets go of Badger's iterator. it.mu is held.
func (it *iterator) close() {
	if it.it == nil {
		return
	}
	it.it.Close()
	it.it = nil
	db := it.snap.db
	db.mu.Lock()
	delete(db.iterators, it)
	db.mu.Unlock()
	it.snap.done()
}

// step moves Badger's iterator and looks whether it is still in the range. it.mu is held.
func (it *iterator) step() bool {
	if it.it == nil {
		return false
	}
	if it.started {
		it.it.Next()
	} else {
		it.started = true
		it.seek()
	}
	if !it.it.Valid() {
		return false
	}
	item := it.it.Item()
	key := item.Key()
	if it.end != nil && !it.before(key) {
		return false
	}
	it.key = key[it.prefix:]
	// Values are inline: what the callback gets is a copy that lives as long as the item.
	it.err = item.Value(func(v []byte) error { it.value = v; return nil })
	return it.err == nil
}
