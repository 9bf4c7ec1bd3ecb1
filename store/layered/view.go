package layered

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// view is one published state of a task: a commit, and where its values are. It is immutable but for the count of its
// users, and lives while it is the current one or somebody uses it.
type view struct {
	task   *Task
	tick   uint64
	cp     store.Checkpoint
	stores []storeView // by the store's number in the task
	bases  []*base     // by the number of the engine in the task
	// running is set in a view of the overlay, which shows more than a commit.
	running *running
	// users counts the readers, plus one while the view is current. It never leaves 0 again.
	users atomic.Int64
}

// storeView is where one store's values are. Invariant: layers[0] is the table that took the writes when the view was
// published; the others, newer before older, take none any more.
type storeView struct {
	*placed
	layers []layer
	now    moment
}

// placed says what a store is and where its engine keeps it. It changes only with the key space.
type placed struct {
	spec   store.Spec
	engine int // number of the engine in the task
	id     engine.StoreID
	counts counter
	// segments of a store that has them, else nil.
	segments *segments
	// expired is the floor that the engine was told of. With Task.moving.
	expired engine.Segment
}

// layer is a table with the number of entries it had when the view was published.
type layer struct {
	table *table
	count int
	// last is the tick of the last commit that wrote to the table; 0 while it takes writes.
	last uint64
}

// base is a snapshot of an engine, shared by the views between two moves.
type base struct {
	snap engine.Snapshot
	of   *engineUse
	refs atomic.Int64
}

// newBases takes a snapshot of each engine. With moving.
func (t *Task) newBases() ([]*base, error) {
	bases := make([]*base, 0, len(t.engines))
	for _, use := range t.engines {
		snap, err := use.Snapshot(use.space)
		if err != nil {
			release(bases)
			return nil, err
		}
		bases = append(bases, &base{snap: snap, of: use})
	}
	return bases, nil
}

// release lets go of snapshots that no view has.
func release(bases []*base) {
	for _, b := range bases {
		b.snap.Release()
	}
}

// rebase publishes the present state of the engines under the same commit, so that they need not keep the one before. With
// moving.
func (t *Task) rebase() error {
	bases, err := t.newBases()
	if err != nil {
		return err
	}
	t.pub.Lock()
	defer t.pub.Unlock()
	if t.current.Load() == nil {
		release(bases)
		return store.ErrClosed
	}
	v := t.successor()
	v.bases = bases
	v.retain()
	t.publish(v)
	return nil
}

// size is roughly how many rows the view has, and how many bytes they are. It reads none of them.
func (v *view) size() (rows, bytes int64) {
	for _, b := range v.bases {
		n, size := b.of.Size(b.of.space)
		rows, bytes = rows+n, bytes+size
	}
	for _, sv := range v.stores {
		for _, l := range sv.layers {
			n := int64(l.count)
			rows, bytes = rows+n, bytes+max(0, l.table.bytes.Load()-n*(entryCost+versionCost))
		}
	}
	return rows, bytes
}

// pin counts the caller as a user unless the view is dead.
func (v *view) pin() bool {
	for {
		n := v.users.Load()
		if n == 0 {
			return false
		}
		if v.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// unpin ends a use; the last one lets go of the engines and has the task forget the view, whose tables it would keep in memory for
// as long as nothing else is published. The caller does not hold pub.
func (v *view) unpin() {
	if !v.drop() {
		return
	}
	v.task.pub.Lock()
	defer v.task.pub.Unlock()
	v.task.prune()
}

// drop is unpin for who holds pub, and prunes. It reports whether the use was the last one.
func (v *view) drop() (last bool) {
	if v.users.Add(-1) > 0 {
		return false
	}
	for _, b := range v.bases {
		if b.refs.Add(-1) == 0 {
			b.snap.Release()
		}
	}
	return true
}

// pinned returns the current view with the caller counted, nil after the task was closed. A view that died between the
// two steps has a successor: try again.
func (t *Task) pinned() *view {
	for {
		v := t.current.Load()
		if v == nil || v.pin() {
			return v
		}
	}
}

// publish makes v the current view. The caller holds t.pub, and has counted v's use of its bases.
func (t *Task) publish(v *view) {
	if v != nil {
		v.users.Store(1)
		t.views = append(t.views, v)
	}
	if old := t.current.Swap(v); old != nil {
		old.drop()
	}
	held := v.recentBytes()
	t.stores.recent.count(t.counted, held)
	t.counted = held
	t.prune()
}

// prune forgets the views that nobody uses. The caller holds t.pub.
func (t *Task) prune() {
	alive := t.views[:0]
	for _, w := range t.views {
		if w.users.Load() > 0 {
			alive = append(alive, w)
		}
	}
	clear(t.views[len(alive):])
	t.views = alive
}

// successor begins a view after the current one with the same content. The caller holds t.pub.
func (t *Task) successor() *view {
	old := t.current.Load()
	return &view{task: t, tick: old.tick, cp: old.cp, stores: slices.Clone(old.stores), bases: old.bases}
}

// retain counts v's use of its bases.
func (v *view) retain() {
	for _, b := range v.bases {
		b.refs.Add(1)
	}
}

// oldest is the oldest tick that a reader may look at. The caller holds t.pub.
func (t *Task) oldest() uint64 {
	tick := t.current.Load().tick
	for _, v := range t.views {
		tick = min(tick, v.tick)
	}
	for scan := range t.scans {
		tick = min(tick, scan.tick)
	}
	return tick
}

// get returns the value of a row in the view, or store.ErrNotFound. from skips the tables that were looked at already.
func (v *view) get(number, from int, segment engine.Segment, key []byte, hash uint64) (store.Value, error) {
	sv := &v.stores[number]
	for _, l := range sv.layers[from:] {
		if e := l.table.find(segment, key, hash); e != nil {
			if ver := e.at(v.tick); ver != nil {
				return ver.value(sv.spec.Kind)
			}
		}
	}
	b, err := v.bases[sv.engine].snap.Get(sv.id, segment, key, nil)
	if err != nil {
		return store.Value{}, sv.wrap(err)
	}
	val, err := stored(sv.spec.Kind, b)
	if err != nil {
		return store.Value{}, sv.wrap(err)
	}
	return val, nil
}

// wrap says which store an error came from.
func (p *placed) wrap(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrNotFound
	}
	return fmt.Errorf("store %s: %w", p.spec.Name, err)
}

// value returns a copy of what the version holds, or store.ErrNotFound.
func (v *version) value(kind store.Kind) (store.Value, error) {
	if !v.live {
		return store.Value{}, store.ErrNotFound
	}
	val := store.Value{Data: append(make([]byte, 0, len(v.data)), v.data...), Timestamp: noTimestamp}
	if timestamped(kind) {
		val.Timestamp = v.timestamp
	}
	return val, nil
}
