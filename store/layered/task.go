package layered

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Task is the state of one task on this instance. The writer's methods belong to one goroutine at a time; Snapshot and
// Checkpoint may be called by anyone.
//
// Locks, in this order: moving, turn, pub. The writer holds turn from the first use of its stores to Commit or Rollback;
// others only try for it, so nobody waits for a writer. pub is held for constant time.
type Task struct {
	id     store.TaskID
	stores *Stores
	specs  []store.Spec
	byName map[store.Name]*part
	parts  []*part

	// moving is the right to move this task to its engines: one holder at a time.
	moving turn
	// moved is the tick up to which the engines have everything. With moving.
	moved uint64
	// closing is set when Close gave up waiting for a move: who ends that move ends the task. With moving or pub.
	closing bool
	// gone is closed when the copy is released.
	gone chan struct{}

	engines []*engineUse // replaced by Wipe, with moving and turn

	// turn is the right to write. The rest of this block belongs to who has it.
	turn        sync.Mutex
	inCommit    bool  // the writer keeps its turn until it commits
	base        *view // pinned while the turn is held
	marks       marks
	uncommitted int64
	touched     bool // something was written since it was last shown
	// loading is what fills the task with a copy of another instance's.
	loading *Load
	// showUntil is until when the overlay is shown; zero: nobody asked lately.
	showUntil time.Time

	current atomic.Pointer[view] // nil once closed
	// unfinished: what is there is no copy, whatever current says. Changed by who holds moving and turn.
	unfinished atomic.Bool
	// shown is a view of the overlay, nil when the last commit is all there is to show. Changed under pub.
	shown atomic.Pointer[view]
	// fresh says that shown, or the last commit, is what the writer had at the end of its last batch.
	fresh atomic.Bool
	// asked says that somebody read the overlay since the writer last looked.
	asked atomic.Bool

	pub   sync.Mutex
	views []*view               // those that may be alive, oldest first
	scans map[*scanPin]struct{} // open iterators of the writer
	// showing is closed when something is shown; nil: nobody waits.
	showing chan struct{}
	// dirtySince is when the oldest commit that has not moved was published; zero when all have.
	dirtySince time.Time
	urgent     bool      // recent commits are too big to wait
	counted    int64     // what recent has counted of this task
	retryAt    time.Time // after a failed move
}

// engineUse is one engine of a task with the task's key space in it.
type engineUse struct {
	engine.Engine
	space engine.SpaceID
}

// scanPin keeps what an iterator of the writer sees. cut is set when a rollback took it away.
type scanPin struct {
	tick uint64
	cut  atomic.Bool
}

// ID of the task.
func (t *Task) ID() store.TaskID { return t.id }

// Checkpoint of the last published commit. After OpenTask: what is really there. A copy that lacks the changelog
// position of a logged store, as a new one does and one with in-memory stores after a restart, is Restoring. So is an unfinished one,
// which has no positions at all.
func (t *Task) Checkpoint() store.Checkpoint {
	v := t.pinned()
	if v == nil {
		return store.Checkpoint{}
	}
	defer v.unpin()
	return t.held(v)
}

// KeyValue is the writer's handle of a key-value store. *store.UnknownStoreError when the task does not have it,
// *store.WrongKindError when it is of another kind; so with Window, Session and Versioned.
func (t *Task) KeyValue(name store.Name) (store.KeyValue, error) {
	p, err := t.part(name)
	if err != nil {
		return nil, err
	}
	switch p.spec.Kind {
	case store.KindKeyValue, store.KindTimestampedKeyValue:
		return p, nil
	default:
		return nil, &store.WrongKindError{Store: name, Kind: p.spec.Kind, Query: "key-value access"}
	}
}

// Window is the writer's handle of a window store.
func (t *Task) Window(name store.Name) (store.Window, error) {
	p, err := t.part(name)
	if err != nil {
		return nil, err
	}
	switch p.spec.Kind {
	case store.KindWindow, store.KindTimestampedWindow:
		return &windowStore{part: p}, nil
	default:
		return nil, &store.WrongKindError{Store: name, Kind: p.spec.Kind, Query: "window access"}
	}
}

// Session is the writer's handle of a session store.
func (t *Task) Session(name store.Name) (store.Session, error) {
	p, err := t.part(name)
	if err != nil {
		return nil, err
	}
	if p.spec.Kind != store.KindSession {
		return nil, &store.WrongKindError{Store: name, Kind: p.spec.Kind, Query: "session access"}
	}
	return &sessionStore{part: p}, nil
}

// Versioned is the writer's handle of a versioned store.
func (t *Task) Versioned(name store.Name) (store.Versioned, error) {
	p, err := t.part(name)
	if err != nil {
		return nil, err
	}
	if p.spec.Kind != store.KindVersioned {
		return nil, &store.WrongKindError{Store: name, Kind: p.spec.Kind, Query: "versioned access"}
	}
	return &versionedStore{part: p}, nil
}

// Changes yields, per logged store and in no particular order, the last value of each key written since the last
// commit: what goes to the changelog. Of a versioned store it yields the puts, in an order that keeps the latest version
// of a key last. Writer only. The slices are valid until the next Commit or Rollback and must not
// be changed; later writes leave them alone. It may be called more than once before a commit; each call yields
// everything again. What came in by Restore is not yielded.
func (t *Task) Changes() iter.Seq2[store.Name, store.Change] {
	return func(yield func(store.Name, store.Change) bool) {
		t.marks.current++ // so that a later write makes a version of its own
		for _, p := range t.parts {
			if p.spec.NoChangelog {
				continue
			}
			if p.versions != nil {
				if !p.versions.changes(p.spec.Name, yield) {
					return
				}
				continue
			}
			for _, e := range p.written {
				v := e.head.Load()
				if v.silent {
					continue
				}
				c := store.Change{Key: e.key, Timestamp: v.timestamp}
				if v.live {
					c.Value = slices.Clip(v.data)
				}
				if !yield(p.spec.Name, c) {
					return
				}
			}
		}
	}
}

// Dirty reports whether anything was written since the last commit. Writer only.
func (t *Task) Dirty() bool {
	return slices.ContainsFunc(t.parts, func(p *part) bool { return len(p.written) > 0 })
}

// UncommittedBytes is the size of the overlay: keys, values and what they cost in memory. Writer only.
func (t *Task) UncommittedBytes() int64 { return t.uncommitted }

// Commit makes the overlay the newest recent commit and publishes it with cp to readers, all or nothing. It does no I/O.
// Call it only when Kafka has committed. cp.StoreTimes is what the stores have seen, whatever the caller set. Writer only.
// It does nothing to a task that is closed. An unfinished one has nothing to commit to: who restores has looked, so this is a defect,
// and reported to the log.
func (t *Task) Commit(cp store.Checkpoint) {
	dirty := t.Dirty()
	if !t.inCommit {
		if _, err := t.use(); err != nil {
			if !errors.Is(err, store.ErrClosed) {
				t.stores.cfg.Logger.Error("commit dropped", "task", t.id.String(), "sequence", int64(cp.Sequence), "error", err)
			}
			return
		}
	}
	defer t.end()
	cp.StoreTimes = t.storeTimes()
	for _, p := range t.parts {
		p.cache.settle()
	}
	if !dirty && reflect.DeepEqual(t.base.cp, cp) {
		return
	}
	cp = cp.Clone()
	share := t.stores.recent.share()
	full, depth := false, 0

	t.pub.Lock()
	v := t.successor()
	v.tick, v.cp = t.marks.current, cp
	for i, p := range t.parts {
		sv := &v.stores[i]
		sv.layers = slices.Clone(sv.layers)
		sv.layers[0].count = int(p.active.count.Load())
		sv.now = p.now
		if p.active.bytes.Load() >= share {
			full = true
		}
		depth = max(depth, len(sv.layers))
	}
	if full && depth <= maxFrozen {
		t.rotate(v)
	}
	v.retain()
	t.publish(v)
	t.show(nil)
	t.base.drop()
	t.base = nil
	t.prune()
	t.marks = marks{current: v.tick + 1, published: v.tick, oldest: t.oldest()}
	wake := t.dirtySince.IsZero() || full && !t.urgent
	if t.dirtySince.IsZero() {
		t.dirtySince = time.Now()
	}
	t.urgent = t.urgent || full
	t.pub.Unlock()

	t.forget()
	if wake {
		t.stores.wake()
	}
}

// Rollback drops the overlay: the task is at its last published commit again. Iterators of the writer that are open end
// with store.ErrClosed. Writer only.
func (t *Task) Rollback() {
	if !t.inCommit {
		return
	}
	t.pub.Lock()
	t.cutShown()
	for scan := range t.scans {
		if scan.tick > t.marks.published {
			scan.cut.Store(true)
		}
	}
	t.pub.Unlock()
	for _, p := range t.parts {
		p.cache.forget()
		for _, e := range p.written {
			e.rollback(t.marks.published)
		}
		p.now = t.base.stores[p.number].now
	}
	t.pub.Lock()
	t.show(nil)
	t.prune()
	t.pub.Unlock()
	t.marks.current++
	t.forget()
	t.end()
}

// Restore applies a batch of changelog records of one store, in log order. Nothing becomes visible to readers or durable
// before the Commit that carries the position after the batch. When it returns an error part of the batch may be in the
// overlay: Rollback. Writer only.
func (t *Task) Restore(name store.Name, batch []store.Change) error {
	p, err := t.part(name)
	if err != nil {
		return err
	}
	if err := t.begin(); err != nil {
		return err
	}
	for _, c := range batch {
		if err := p.restore(c); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}

// Snapshot pins the last published commit. It must be closed. A task whose checkpoint is Restoring has none:
// *store.NotReadyError. ErrClosed after Close.
func (t *Task) Snapshot() (*Snapshot, error) { return t.snapshot(t.pinned()) }

// SnapshotPartial is Snapshot also while the checkpoint is Restoring: of what was restored so far. Of an unfinished copy there is
// none either.
func (t *Task) SnapshotPartial() (*Snapshot, error) {
	before := t.Unfinished()
	v := t.pinned()
	switch {
	case v == nil:
		return nil, store.ErrClosed
	case before || t.Unfinished(): // when it was pinned, or by now
		v.unpin()
		return nil, t.unfinishedError()
	}
	return t.stores.newSnapshot(v), nil
}

// Close rolls back, moves what is recent to the engine within ctx, and releases the copy, which stays on disk. Open
// snapshots keep working until they are closed or the Stores are. An error says that recent commits were not moved; the
// changelog has them. Writer only; a second call does nothing.
func (t *Task) Close(ctx context.Context) error {
	if t.current.Load() == nil {
		return nil
	}
	t.Rollback()
	t.UseCache(nil)
	return t.stores.closeTask(ctx, t)
}

// snapshot is one of a pinned view.
func (t *Task) snapshot(v *view) (*Snapshot, error) {
	switch {
	case v == nil:
		return nil, store.ErrClosed
	case t.Unfinished():
		v.unpin()
		return nil, t.unfinishedError()
	case v.cp.Restoring:
		v.unpin()
		return nil, t.building("restoring")
	}
	return t.stores.newSnapshot(v), nil
}

// part returns the store of this name.
func (t *Task) part(name store.Name) (*part, error) {
	if p, ok := t.byName[name]; ok {
		return p, nil
	}
	known := make([]store.Name, 0, len(t.specs))
	for _, s := range t.specs {
		known = append(known, s.Name)
	}
	return nil, &store.UnknownStoreError{Store: name, Known: known}
}

// use takes the turn and pins what is published, unless the writer has it already. It reports whether the caller must
// end the use.
func (t *Task) use() (transient bool, err error) {
	if t.inCommit {
		return false, nil
	}
	if t.Unfinished() {
		return false, t.unfinishedError()
	}
	t.turn.Lock()
	if t.base = t.pinned(); t.base == nil {
		t.turn.Unlock()
		return false, store.ErrClosed
	}
	return true, nil
}

// begin is use that lasts until Commit or Rollback.
func (t *Task) begin() error {
	if t.inCommit {
		return nil
	}
	if err := t.stores.relieve(t); err != nil {
		return err
	}
	if _, err := t.use(); err != nil {
		return err
	}
	t.inCommit = true
	return nil
}

// end gives the turn back.
func (t *Task) end() {
	t.inCommit = false
	if t.base != nil {
		t.base.unpin()
		t.base = nil
	}
	t.turn.Unlock()
}

// storeTimes is where the times of the stores are in the overlay; nil when none has one.
func (t *Task) storeTimes() map[store.Name]int64 {
	var times map[store.Name]int64
	for _, p := range t.parts {
		if p.now.time == noTime {
			continue
		}
		if times == nil {
			times = make(map[store.Name]int64)
		}
		times[p.spec.Name] = p.now.time
	}
	return times
}

// forget empties the list of what the overlay holds.
func (t *Task) forget() {
	const keep = 1 << 14 // of room for the next commit
	for _, p := range t.parts {
		if cap(p.written) > keep {
			p.written = nil
		}
		clear(p.written) // an entry keeps its table in memory
		p.written = p.written[:0]
		if p.versions != nil {
			p.versions.forget()
		}
	}
	t.uncommitted, t.touched = 0, false
}

// pinScan keeps versions for an iterator that was opened now. One that sees nothing uncommitted survives a rollback.
func (t *Task) pinScan() *scanPin {
	pin := &scanPin{tick: t.marks.published}
	if t.Dirty() {
		pin.tick = t.marks.current
		t.marks.current++
	}
	t.pub.Lock()
	defer t.pub.Unlock()
	t.scans[pin] = struct{}{}
	return pin
}

func (t *Task) unpinScan(pin *scanPin) {
	t.pub.Lock()
	defer t.pub.Unlock()
	delete(t.scans, pin)
}

// maxFrozen is how many full tables may wait for a move; a longer chain would slow every read.
const maxFrozen = 3

// rotate gives every store of v that has written a new table for what comes. The caller holds turn and pub.
func (t *Task) rotate(v *view) {
	for i, p := range t.parts {
		sv := &v.stores[i]
		if sv.layers[0].count == 0 {
			continue
		}
		sv.layers[0].last = v.tick
		p.active = p.newTable()
		sv.layers = slices.Insert(sv.layers, 0, layer{table: p.active})
	}
}

// recentBytes is what the tables of the task cost.
func (t *Task) recentBytes() int64 {
	return t.current.Load().recentBytes()
}
