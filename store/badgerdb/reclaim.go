package badgerdb

import (
	"context"
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

// bounds returns the first full key of what is doomed and the first behind it.
func (d *doomed) bounds() (from, to []byte) {
	switch {
	case d.store == 0:
		from = appendSpace(nil, d.space.id)
	case d.below == 0:
		from = appendStore(nil, d.space.id, d.store)
	default:
		return appendSegment(nil, d.space.id, d.store, 1), appendSegment(nil, d.space.id, d.store, d.below)
	}
	return from, successor(from)
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

// Reclaim gives back what was dropped or has expired, and compacts when much of what is stored was deleted.
func (db *DB) Reclaim(ctx context.Context) (pending bool, err error) {
	if err := db.upkeep.take(ctx); err != nil {
		return true, err
	}
	defer db.upkeep.give()
	if db.flattening() {
		return true, nil // Badger can do only one thing of this sort at a time
	}
	ripe, pending := db.ripe(time.Now())
	if len(ripe) > 0 {
		db.evict(ripe)
		if err := db.remove(ctx, ripe); err != nil {
			return true, err
		}
		db.mu.Lock()
		db.doomed = slices.DeleteFunc(db.doomed, func(d *doomed) bool { return slices.Contains(ripe, d) })
		db.mu.Unlock()
	}
	late, err := db.compact(ctx)
	return pending || late, err
}

// ripe lists what may be removed now, and whether something has to wait for its readers.
func (db *DB) ripe(now time.Time) (ripe []*doomed, pending bool) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, d := range db.doomed {
		if db.watched(d) && now.Sub(d.since) < db.opt.DropWait {
			pending = true
			continue
		}
		ripe = append(ripe, d)
	}
	return ripe, pending
}

// remove removes the bytes of ripe and then their names.
func (db *DB) remove(ctx context.Context, ripe []*doomed) error {
	var large []*doomed
	for _, d := range ripe {
		small, err := db.sweep(ctx, d)
		if err != nil {
			return err
		}
		if !small {
			large = append(large, d)
		}
	}
	if err := db.turn.take(ctx); err != nil {
		return err
	}
	defer db.turn.give()
	if err := db.ready(); err != nil {
		return err
	}
	if err := db.dropPrefixes(large); err != nil {
		return err
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
	if err := db.commit(check{}, nil, entries...); err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for sp, desc := range changed {
		sp.desc = desc
	}
	return nil
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
