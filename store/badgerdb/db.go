package badgerdb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// DB is a database. Open one with Open.
//
// Locks, in this order: upkeep, turn, an iterator's own, gate, mu.
type DB struct {
	opt    Options
	badger *badger.DB

	// turn is the right to write to the database: moves, key spaces and DropPrefix come one after another.
	turn turn
	// last is the highest timestamp ever used. With the turn.
	last uint64
	// leftovers says why something newer than D may be there; it is undone before anything else is written. With the turn.
	leftovers error
	// tombs counts the rows that were deleted since all was compacted, tombsStored is what the database has of that. With
	// the turn.
	tombs, tombsStored int64
	// deadAt is D when there was first enough to compact, 0 while there is not. With the turn.
	deadAt uint64
	// failed is set when Badger itself is in no state to write again until it is reopened. With the turn.
	failed error

	// upkeep is the right to reclaim; it comes before turn.
	upkeep turn
	// flat is closed when Badger has ended its last full compaction. Set with upkeep and turn.
	flat chan struct{}

	// gate is held shared for the length of a read, so that Close cannot unmap what is being read.
	gate   sync.RWMutex
	closed bool

	// keys holds *[]byte: room for the keys of point reads.
	keys sync.Pool

	mu sync.Mutex // guards the rest; held for constant time or as long as the list of key spaces is
	// durable is D.
	durable   uint64
	nextSpace engine.SpaceID
	spaces    map[engine.SpaceID]*space
	// live counts the snapshots whose key space has been written to since, by D before that. The others see at D what they
	// see at their own timestamp, and hold nothing back.
	live      map[uint64]int
	iterators map[*iterator]struct{}
	doomed    []*doomed
	drops     uint64 // numbers drops and snapshots against each other
}

var _ engine.Engine = (*DB)(nil)

// space is a key space in use.
type space struct {
	id        engine.SpaceID
	task      store.TaskID
	desc      descriptor
	record    []byte
	snapshots map[*snapshot]struct{}
	// floors are the lowest segments that are not dead, segment 0 apart. The map is replaced, never changed.
	floors map[engine.StoreID]engine.Segment
}

// open opens the database in opt.Dir as it is, and undoes leftovers.
func open(ctx context.Context, opt Options) (db *DB, err error) {
	log := newLogger(ctx, opt.Logger)
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("%w: badger: %v", store.ErrCorrupt, p)
		}
	}()
	after, err := checkLogs(opt.Dir)
	if err != nil {
		return nil, err
	}
	tables, err := listed(opt.badger(log))
	if err != nil {
		return nil, err
	}
	if err := reach(opt.badger(log), tables, after); err != nil {
		return nil, err
	}
	b, err := badger.OpenManaged(opt.badger(log))
	if err != nil {
		return nil, err
	}
	db = &DB{
		opt: opt, badger: b, turn: make(turn, 1), upkeep: make(turn, 1), nextSpace: 1,
		spaces: make(map[engine.SpaceID]*space), live: make(map[uint64]int), iterators: make(map[*iterator]struct{}),
		keys: sync.Pool{New: func() any { return new([]byte) }},
	}
	if log.ignored.Load() {
		err = fmt.Errorf("a table is damaged: %w", store.ErrCorrupt)
	} else {
		err = db.recover()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return db, nil
}

// Close ends everything that is open with store.ErrClosed. It is bounded in time.
func (db *DB) Close() error {
	db.turn <- struct{}{} // the move on its way ends first
	defer db.turn.give()
	db.gate.Lock()
	if db.closed {
		db.gate.Unlock()
		return nil
	}
	db.closed = true
	db.gate.Unlock()

	db.mu.Lock()
	open := make([]*iterator, 0, len(db.iterators))
	for it := range db.iterators {
		open = append(open, it)
	}
	db.mu.Unlock()
	for _, it := range open {
		it.cut(store.ErrClosed)
	}
	done := make(chan error, 1)
	flat := db.flat
	go func() {
		if flat != nil {
			<-flat
		}
		done <- db.badger.Close()
	}() // Badger retries a failing flush for ever; then this goroutine stays with it
	timer := time.NewTimer(db.opt.CloseWait)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("database %s: close: %w", db.opt.Dir, err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("database %s: not closed after %s", db.opt.Dir, db.opt.CloseWait)
	}
}

// recover finds D, undoes what is newer, checks the last move and loads the key spaces.
func (db *DB) recover() error {
	if err := db.syncAll(); err != nil { // a killed process may have left what it wrote to the system alone
		return err
	}
	db.last = db.badger.MaxVersion()
	txn := db.badger.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	var last check
	item, err := txn.Get(durableKey)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound): // D is 0: nothing was ever durable
	case err != nil:
		return err
	default:
		db.durable = item.Version()
		b, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		if last, err = decodeCheck(b); err != nil {
			return err
		}
	}
	if err := db.verify(last); err != nil {
		return err
	}
	if err := db.undo(); err != nil {
		return err
	}
	db.discard()
	return db.load()
}

// load reads the key spaces at D.
func (db *DB) load() error {
	txn := db.badger.NewTransactionAt(db.durable, false)
	defer txn.Discard()
	if b, err := read(txn, nextSpaceKey); err == nil && len(b) == 4 {
		db.nextSpace = engine.SpaceID(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
	} else if err == nil {
		return fmt.Errorf("next key space: %d bytes: %w", len(b), store.ErrCorrupt)
	} else if !errors.Is(err, badger.ErrKeyNotFound) {
		return err
	}
	if b, err := read(txn, tombsKey); err == nil && len(b) == 8 {
		db.tombs = int64(binary.BigEndian.Uint64(b))
		db.tombsStored = db.tombs
	} else if err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
		return err
	}
	opt := badger.DefaultIteratorOptions
	opt.Prefix, opt.PrefetchValues = descriptors, false
	it := txn.NewIterator(opt)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()
		if len(key) != len(descriptors)+4 {
			return fmt.Errorf("key of a descriptor: %d bytes: %w", len(key), store.ErrCorrupt)
		}
		k := key[len(descriptors):]
		id := engine.SpaceID(uint32(k[0])<<24 | uint32(k[1])<<16 | uint32(k[2])<<8 | uint32(k[3]))
		b, err := it.Item().ValueCopy(nil)
		if err != nil {
			return err
		}
		desc, task, err := decodeDescriptor(b)
		if err != nil {
			return err
		}
		sp := &space{id: id, task: task, desc: desc, snapshots: make(map[*snapshot]struct{})}
		if sp.record, err = read(txn, recordKey(id)); err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
			return err
		}
		db.adopt(sp)
	}
	return nil
}

// adopt takes a key space that was found on disk.
func (db *DB) adopt(sp *space) {
	if sp.desc.Dropped {
		db.doom(&doomed{space: sp})
		return
	}
	for _, id := range sp.desc.Doomed {
		db.doom(&doomed{space: sp, store: id})
	}
	db.spaces[sp.id] = sp
}

// enter begins a read. leave must follow when it returns nil.
func (db *DB) enter() error {
	db.gate.RLock()
	if db.closed {
		db.gate.RUnlock()
		return store.ErrClosed
	}
	return nil
}

func (db *DB) leave() { db.gate.RUnlock() }

// advance makes ts the new D. What readers do not need any more may go. db.mu is held.
func (db *DB) advance(ts uint64) {
	db.durable = ts
	db.discard()
}

// written tells the snapshots of a key space that from now on they see something else than what is at D. db.mu is held, and
// D has not advanced yet.
func (db *DB) written(sp *space) {
	for s := range sp.snapshots {
		if s.bound == 0 {
			s.bound = db.durable
			db.live[s.bound]++
		}
	}
}

// discard tells Badger the oldest timestamp that is still needed: of each key the newest version at or below it stays,
// older ones may go. A reader below it would lose keys. db.mu is held.
func (db *DB) discard() {
	ts := db.durable
	for at := range db.live {
		ts = min(ts, at)
	}
	db.badger.SetDiscardTs(ts)
}

// read returns a copy of the value of key.
func read(txn *badger.Txn, key []byte) ([]byte, error) {
	item, err := txn.Get(key)
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
}

// turn is a right that one holds at a time.
type turn chan struct{}

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }
