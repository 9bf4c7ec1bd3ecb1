package badgerdb

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

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
		if err := db.commit(check{}, nil, append(entries, badger.NewEntry(descriptorKey(sp.id), b))...); err != nil {
			return engine.Space{}, db.fail(err)
		}
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	sp.desc = desc
	db.nextSpace = next
	db.spaces[sp.id] = sp
	for _, id := range gone {
		db.doom(&doomed{space: sp, store: id})
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
	if err := db.commit(check{}, nil, badger.NewEntry(descriptorKey(id), b)); err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	sp.desc = desc
	delete(db.spaces, id)
	db.doom(&doomed{space: sp})
	return nil
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
