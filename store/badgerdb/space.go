package badgerdb

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Spaces lists the key spaces that are not dropped, by task.
func (db *DB) Spaces() []engine.Space {
	db.mu.Lock()
	defer db.mu.Unlock()
	out := make([]engine.Space, 0, len(db.spaces))
	for _, sp := range db.spaces {
		out = append(out, sp.describe())
	}
	slices.SortFunc(out, func(a, b engine.Space) int { return a.Task.Compare(b.Task) })
	return out
}

// Open returns the key space of a task with exactly the declared stores.
func (db *DB) Open(ctx context.Context, task store.TaskID, stores []engine.Declared) (engine.Space, error) {
	if err := db.turn.take(ctx); err != nil {
		return engine.Space{}, err
	}
	defer db.turn.give()
	if db.closed {
		return engine.Space{}, store.ErrClosed
	}
	db.mu.Lock()
	sp, next := db.find(task), db.nextSpace
	db.mu.Unlock()
	var entries []*badger.Entry
	desc := descriptor{Task: task.String(), NextStore: 1}
	if sp == nil {
		sp = &space{id: next, task: task, snapshots: make(map[*snapshot]struct{})}
		next++
		entries = append(entries, badger.NewEntry(nextSpaceKey, binary.BigEndian.AppendUint32(nil, uint32(next))))
	} else {
		desc = sp.desc
	}
	desc, gone := desc.with(stores)
	if len(entries) > 0 || len(gone) > 0 || !maps.Equal(desc.Stores, sp.desc.Stores) {
		if err := db.ready(); err != nil {
			return engine.Space{}, err
		}
		b, err := desc.encode()
		if err != nil {
			return engine.Space{}, err
		}
		if err := db.commit(check{}, append(entries, badger.NewEntry(descriptorKey(sp.id), b))...); err != nil {
			return engine.Space{}, db.fail(err)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	sp.desc = desc
	db.nextSpace = next
	db.spaces[sp.id] = sp
	for _, id := range gone {
		db.doom(sp, id)
	}
	return sp.describe(), nil
}

// Drop hides a key space.
func (db *DB) Drop(ctx context.Context, id engine.SpaceID) error {
	if err := db.turn.take(ctx); err != nil {
		return err
	}
	defer db.turn.give()
	db.mu.Lock()
	sp := db.spaces[id]
	db.mu.Unlock()
	if sp == nil {
		return nil
	}
	if err := db.ready(); err != nil {
		return err
	}
	desc := sp.desc
	desc.Dropped = true
	b, err := desc.encode()
	if err != nil {
		return err
	}
	if err := db.commit(check{}, badger.NewEntry(descriptorKey(id), b)); err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	sp.desc = desc
	delete(db.spaces, id)
	db.doom(sp, 0)
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
	prefixes := make([][]byte, 0, len(ripe))
	for _, d := range ripe {
		if d.store == 0 {
			prefixes = append(prefixes, appendSpace(nil, d.space.id))
		} else {
			prefixes = append(prefixes, appendStore(nil, d.space.id, d.store))
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
	changed := make(map[engine.SpaceID]descriptor)
	var entries []*badger.Entry
	for _, d := range ripe {
		if d.store == 0 {
			entries = append(entries, &badger.Entry{Key: descriptorKey(d.space.id)}, &badger.Entry{Key: recordKey(d.space.id)})
			continue
		}
		desc, ok := changed[d.space.id]
		if !ok {
			desc = d.space.desc
		}
		desc.Doomed = slices.DeleteFunc(slices.Clone(desc.Doomed), func(id engine.StoreID) bool { return id == d.store })
		changed[d.space.id] = desc
	}
	for id, desc := range changed {
		if db.dead(ripe, id) {
			continue
		}
		b, err := desc.encode()
		if err != nil {
			return err
		}
		entries = append(entries, badger.NewEntry(descriptorKey(id), b))
	}
	if err := db.commit(check{}, entries...); err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, d := range ripe {
		if desc, ok := changed[d.space.id]; ok {
			d.space.desc = desc
		}
	}
	return nil
}

// dead reports whether the whole space is among ripe.
func (db *DB) dead(ripe []*doomed, id engine.SpaceID) bool {
	return slices.ContainsFunc(ripe, func(d *doomed) bool { return d.space.id == id && d.store == 0 })
}

// watched reports whether a reader may see the prefix. db.mu is held.
func (db *DB) watched(d *doomed) bool {
	for s := range d.space.snapshots {
		if s.drop < d.drop {
			return true
		}
	}
	return false
}

// evict ends the readers of what is to be dropped: from now on their reads say so.
func (db *DB) evict(ripe []*doomed) {
	db.mu.Lock()
	var open []*iterator
	for _, d := range ripe {
		for s := range d.space.snapshots {
			if s.drop < d.drop {
				s.cut.Store(true)
			}
		}
	}
	for it := range db.iterators {
		if it.snap.cut.Load() {
			open = append(open, it)
		}
	}
	db.mu.Unlock()
	for _, it := range open {
		it.cut(engine.ErrDropped)
	}
}

func (db *DB) find(task store.TaskID) *space {
	for _, sp := range db.spaces {
		if sp.task == task {
			return sp
		}
	}
	return nil
}

func (sp *space) describe() engine.Space {
	stores := make(map[store.Name]engine.Placed, len(sp.desc.Stores))
	for name, p := range sp.desc.Stores {
		stores[name] = engine.Placed{ID: p.ID, Kind: p.Kind}
	}
	return engine.Space{ID: sp.id, Task: sp.task, Stores: stores, Record: slices.Clone(sp.record)}
}

// with returns the descriptor with exactly the declared stores, and the ids of those that go.
func (d descriptor) with(stores []engine.Declared) (descriptor, []engine.StoreID) {
	had := d.Stores
	d.Stores = make(map[store.Name]placement, len(stores))
	for _, s := range stores {
		p, ok := had[s.Name]
		if !ok || s.Fresh || p.Kind != s.Kind {
			p = placement{ID: d.NextStore, Kind: s.Kind}
			d.NextStore++
		}
		d.Stores[s.Name] = p
	}
	var gone []engine.StoreID
	for name, p := range had {
		if d.Stores[name] != p {
			gone = append(gone, p.ID)
		}
	}
	slices.Sort(gone)
	d.Doomed = append(slices.Clone(d.Doomed), gone...)
	return d, gone
}
