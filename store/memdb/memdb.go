package memdb

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/tidwall/btree"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// DB is an in-memory engine. Create one with New.
type DB struct {
	mu     sync.Mutex // guards all below; held for the length of a move, never by a reader that has its snapshot
	closed bool
	next   engine.SpaceID
	spaces map[engine.SpaceID]*space
}

var _ engine.Engine = (*DB)(nil)

// space is a key space. Its trees are only changed under DB.mu.
type space struct {
	info      engine.Space
	nextStore engine.StoreID
	trees     map[treeID]*tree
	// floors are the lowest segments that are not dead, segment 0 apart.
	floors map[engine.StoreID]engine.Segment
	// published is what snapshots share until the next move: copies of the trees, made when first asked for.
	published map[treeID]*tree
}

type treeID struct {
	store   engine.StoreID
	segment engine.Segment
}

// tree maps keys to values. Keys are strings so that nobody can change them.
type tree = btree.Map[string, []byte]

// New returns an empty engine.
func New() *DB { return &DB{next: 1, spaces: make(map[engine.SpaceID]*space)} }

// Spaces lists the key spaces.
func (db *DB) Spaces() []engine.Space {
	db.mu.Lock()
	defer db.mu.Unlock()
	out := make([]engine.Space, 0, len(db.spaces))
	for _, sp := range db.spaces {
		out = append(out, clone(sp.info))
	}
	slices.SortFunc(out, func(a, b engine.Space) int { return a.Task.Compare(b.Task) })
	return out
}

// Open returns the key space of a task.
func (db *DB) Open(_ context.Context, task store.TaskID, stores []engine.Declared) (engine.Space, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return engine.Space{}, store.ErrClosed
	}
	sp := db.find(task)
	if sp == nil {
		sp = &space{info: engine.Space{ID: db.next, Task: task}, nextStore: 1, trees: make(map[treeID]*tree), floors: make(map[engine.StoreID]engine.Segment)}
		db.spaces[db.next] = sp
		db.next++
	}
	placed := make(map[store.Name]engine.Placed, len(stores))
	for _, d := range stores {
		p, ok := sp.info.Stores[d.Name]
		if !ok || d.Fresh || p.Kind != d.Kind {
			p = engine.Placed{ID: sp.nextStore, Kind: d.Kind}
			sp.nextStore++
		}
		placed[d.Name] = p
	}
	live := make(map[engine.StoreID]bool, len(placed))
	for _, p := range placed {
		live[p.ID] = true
	}
	for id := range sp.trees {
		if !live[id.store] {
			delete(sp.trees, id)
		}
	}
	maps.DeleteFunc(sp.floors, func(id engine.StoreID, _ engine.Segment) bool { return !live[id] })
	sp.info.Stores = placed
	sp.published = nil
	return clone(sp.info), nil
}

// Move applies the moves.
func (db *DB) Move(_ context.Context, moves ...engine.Move) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	for _, m := range moves {
		if db.spaces[m.Space] == nil {
			return fmt.Errorf("key space %d: %w", m.Space, engine.ErrDropped)
		}
	}
	for _, m := range moves {
		db.spaces[m.Space].apply(m)
	}
	return nil
}

// Snapshot pins the state after the last move.
func (db *DB) Snapshot(id engine.SpaceID) (engine.Snapshot, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, store.ErrClosed
	}
	sp, ok := db.spaces[id]
	if !ok {
		return nil, fmt.Errorf("key space %d: %w", id, engine.ErrDropped)
	}
	if sp.published == nil {
		sp.published = make(map[treeID]*tree, len(sp.trees))
		for id, t := range sp.trees {
			sp.published[id] = t.Copy()
		}
	}
	return &snapshot{trees: sp.published}, nil
}

// Size counts the rows; their bytes are those of the first rows of each segment, extrapolated.
func (db *DB) Size(id engine.SpaceID) (rows, bytes int64) {
	db.mu.Lock()
	defer db.mu.Unlock()
	sp := db.spaces[id]
	if sp == nil {
		return 0, 0
	}
	for _, t := range sp.trees {
		const sample = 64
		var n, size int64
		t.Scan(func(key string, value []byte) bool {
			n, size = n+1, size+int64(len(key)+len(value))
			return n < sample
		})
		if n > 0 {
			rows, bytes = rows+int64(t.Len()), bytes+size*int64(t.Len())/n
		}
	}
	return rows, bytes
}

// Drop forgets a key space; snapshots keep what they pinned.
func (db *DB) Drop(_ context.Context, id engine.SpaceID) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	delete(db.spaces, id)
	return nil
}

// Expire forgets segments; snapshots keep what they pinned.
func (db *DB) Expire(id engine.SpaceID, s engine.StoreID, below engine.Segment) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	sp := db.spaces[id]
	if sp == nil {
		return fmt.Errorf("key space %d: %w", id, engine.ErrDropped)
	}
	if below <= sp.floors[s] {
		return nil
	}
	sp.floors[s] = below
	for id := range sp.trees {
		if id.store == s && sp.dead(id) {
			delete(sp.trees, id)
			sp.published = nil
		}
	}
	return nil
}

// Reclaim has nothing to do: memory goes with the last snapshot.
func (db *DB) Reclaim(context.Context) (bool, error) { return false, nil }

// Close forgets everything.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
	clear(db.spaces)
	return nil
}

func (db *DB) find(task store.TaskID) *space {
	for _, sp := range db.spaces {
		if sp.info.Task == task {
			return sp
		}
	}
	return nil
}

func clone(s engine.Space) engine.Space {
	s.Stores = maps.Clone(s.Stores)
	s.Record = slices.Clone(s.Record)
	return s
}

// apply makes the changes of m. The published copies share nothing that it touches.
func (sp *space) apply(m engine.Move) {
	for w := range m.Writes {
		id := treeID{w.Store, w.Segment}
		if sp.dead(id) {
			continue
		}
		t := sp.trees[id]
		if t == nil {
			if w.Value == nil {
				continue
			}
			t = new(tree)
			sp.trees[id] = t
		}
		if w.Value == nil {
			t.Delete(string(w.Key))
			continue
		}
		t.Set(string(w.Key), append(make([]byte, 0, len(w.Value)), w.Value...))
	}
	sp.info.Record = slices.Clone(m.Record)
	sp.published = nil
}

func (sp *space) dead(id treeID) bool { return id.segment > 0 && id.segment < sp.floors[id.store] }
