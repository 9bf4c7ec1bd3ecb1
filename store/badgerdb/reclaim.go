package badgerdb

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store/engine"
)

// doomed is what is to be given back: a key space, a store of it or, when below is set, the expired segments of a store.
type doomed struct {
	space *space
	store engine.StoreID // 0: the whole space
	below engine.Segment // 0: the whole store
	since time.Time
	// drop is the number of the drop: snapshots with a lower one may see it.
	drop uint64
}

// losses are what a snapshot can read no more. Immutable.
type losses struct {
	all    bool
	stores map[engine.StoreID]engine.Segment // segments below it, segment 0 apart; wholeStore: all
}

// wholeStore is above every segment.
const wholeStore = ^engine.Segment(0)

// with returns the losses with those of d.
func (l *losses) with(d *doomed) *losses {
	out := &losses{all: d.store == 0, stores: make(map[engine.StoreID]engine.Segment)}
	if l != nil {
		out.all = out.all || l.all
		maps.Copy(out.stores, l.stores)
	}
	below := d.below
	if below == 0 {
		below = wholeStore
	}
	out.stores[d.store] = max(out.stores[d.store], below)
	return out
}

// lost reports whether a part of what s reads is dropped, or may be in this moment.
func (s *snapshot) lost(id engine.StoreID, segment engine.Segment) bool {
	l := s.losses.Load()
	if l == nil {
		return false
	}
	floor := l.stores[id]
	return l.all || floor == wholeStore || segment > 0 && segment < floor
}

// doom marks something to be reclaimed. db.mu is held, or nobody else has db.
func (db *DB) doom(d *doomed) {
	db.drops++
	d.since, d.drop = time.Now(), db.drops
	db.doomed = append(db.doomed, d)
}

// Expire raises the floor of a store's segments.
func (db *DB) Expire(id engine.SpaceID, s engine.StoreID, below engine.Segment) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	db.mu.Lock()
	defer db.mu.Unlock()
	sp := db.spaces[id]
	if sp == nil {
		return fmt.Errorf("database %s: key space %d: %w", db.opt.Dir, id, engine.ErrDropped)
	}
	below = min(below, wholeStore-1)
	if below <= max(1, sp.floors[s]) {
		return nil
	}
	floors := maps.Clone(sp.floors)
	if floors == nil {
		floors = make(map[engine.StoreID]engine.Segment)
	}
	floors[s] = below
	sp.floors = floors
	db.doom(&doomed{space: sp, store: s, below: below})
	return nil
}

// Reclaim gives back what was dropped, in one pass for all prefixes. While Badger drops prefixes it answers no reads, so
// that is done rarely and for many at once.
func (db *DB) Reclaim(ctx context.Context) (pending bool, err error) {
	now := time.Now()
	db.mu.Lock()
	var ripe []*doomed
	for _, d := range db.doomed {
		if db.watched(d) && now.Sub(d.since) < db.opt.DropWait {
			pending = true
			continue
		}
		ripe = append(ripe, d)
	}
	db.mu.Unlock()
	if len(ripe) == 0 {
		return pending, nil
	}
	if err := db.turn.take(ctx); err != nil {
		return true, err
	}
	defer db.turn.give()
	if err := db.ready(); err != nil {
		return true, err
	}
	db.evict(ripe)
	if err := db.dropPrefixes(ripe); err != nil {
		return true, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.doomed = slices.DeleteFunc(db.doomed, func(d *doomed) bool { return slices.Contains(ripe, d) })
	return pending, nil
}

// dropPrefixes removes the bytes of ripe and then their names. With the turn.
func (db *DB) dropPrefixes(ripe []*doomed) error {
	var prefixes [][]byte
	expired := false
	for _, d := range ripe {
		switch {
		case d.store == 0:
			prefixes = append(prefixes, appendSpace(nil, d.space.id))
		case d.below == 0:
			prefixes = append(prefixes, appendStore(nil, d.space.id, d.store))
		default:
			segments := db.segments(d)
			prefixes = append(prefixes, segments...)
			expired = expired || len(segments) > 0
		}
	}
	if len(prefixes) == 0 {
		return nil
	}
	if expired {
		// The last move may have written there, and its check would count what is about to go.
		if err := db.commit(check{}); err != nil {
			return db.fail(err)
		}
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
	return db.forget(ripe)
}

// forget removes the names of what was dropped. With the turn.
func (db *DB) forget(ripe []*doomed) error {
	changed := make(map[*space]descriptor)
	var entries []*badger.Entry
	for _, d := range ripe {
		switch {
		case d.store == 0:
			entries = append(entries, &badger.Entry{Key: descriptorKey(d.space.id)}, &badger.Entry{Key: recordKey(d.space.id)})
		case d.below == 0:
			desc, ok := changed[d.space]
			if !ok {
				desc = d.space.desc
			}
			desc.Doomed = slices.DeleteFunc(slices.Clone(desc.Doomed), func(id engine.StoreID) bool { return id == d.store })
			changed[d.space] = desc
		}
	}
	for sp, desc := range changed {
		if slices.ContainsFunc(ripe, func(d *doomed) bool { return d.space == sp && d.store == 0 }) {
			continue
		}
		b, err := desc.encode()
		if err != nil {
			return err
		}
		entries = append(entries, badger.NewEntry(descriptorKey(sp.id), b))
	}
	if len(entries) == 0 {
		return nil
	}
	if err := db.commit(check{}, entries...); err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for sp, desc := range changed {
		sp.desc = desc
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

// watched reports whether a reader may see d. db.mu is held.
func (db *DB) watched(d *doomed) bool {
	for s := range d.space.snapshots {
		if s.drop < d.drop {
			return true
		}
	}
	return false
}

// evict ends the readers of what is to be dropped: from now on their reads of it say so.
func (db *DB) evict(ripe []*doomed) {
	db.mu.Lock()
	var open []*iterator
	for _, d := range ripe {
		for s := range d.space.snapshots {
			if s.drop < d.drop {
				s.losses.Store(s.losses.Load().with(d))
			}
		}
	}
	for it := range db.iterators {
		if it.snap.lost(it.rng.Store, it.rng.Segment) {
			open = append(open, it)
		}
	}
	db.mu.Unlock()
	for _, it := range open {
		it.cut(engine.ErrDropped)
	}
}
