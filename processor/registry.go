package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// registry holds the open tasks of the instance. State belongs to the instance, not to a thread: a task that changes
// threads, becomes a standby or ceases to be one is handed over open. An entry has at most one holder, the thread that runs
// the task or the follower that keeps it as a standby; a second one waits until the first lets go, and a thread tells a
// follower to. Safe for concurrent use.
type registry struct {
	now     func() time.Time
	mu      sync.RWMutex
	entries map[store.TaskID]*entryTask
}

// entryTask is one open task. What queries read is immutable or atomic; a change of the rest makes a new serving view.
type entryTask struct {
	id     store.TaskID
	thread int
	state  *layered.Task
	age    *age
	// serving: restored and answering. Guarded by registry.mu through views: lookup returns a copy.
	serving bool
	// read is how far a restore is.
	read *readSoFar
	// hidden: taken away from the thread, which has still to let go.
	hidden bool
	// replica proves what the copy is worth while no thread answers for it; nil: nothing is known.
	replica *replica
	// whole is when the restore began that the thread's stay began with: a time at which the state was whole.
	whole time.Time
	// preempt tells the follower to let go.
	preempt context.CancelFunc
	// mark wakes who waits for the task to come further, or to leave.
	mark  *watermark
	free  chan struct{} // closed when the holder has let go
	since time.Time     // of the last release
}

// readSoFar is how far a restore of a task is: offsets of its changelogs, or rows of another instance's copy while that is taken,
// and how long the rest will take, 0 when unknown.
type readSoFar struct {
	restored, total, left atomic.Int64
	// from is the instance whose copy is being taken, and bytes is what has come of it; nil: the changelogs are read.
	from  atomic.Pointer[string]
	bytes atomic.Int64
}

func (s *readSoFar) set(restored, total int64, left time.Duration) {
	s.restored.Store(restored)
	s.total.Store(total)
	s.left.Store(int64(left))
}

func (s *readSoFar) get() (restored, total int64, left time.Duration) {
	return s.restored.Load(), s.total.Load(), time.Duration(s.left.Load())
}

func (e *entryTask) reason() string {
	if e.state == nil {
		return reasonStarting
	}
	return reasonRestoring
}

// progress is how far the copy is that is being built: by a thread that restores it, or by who follows it.
func (e *entryTask) progress() (restored, total int64, left time.Duration) {
	if e.read.from.Load() == nil && e.thread == followed && e.replica != nil && e.replica.follower != nil {
		return e.replica.follower.Progress()
	}
	return e.read.get()
}

// Holders of an entry that are no threads.
const (
	// free: nobody holds it.
	free = -1
	// barred: nobody may claim it until it is gone.
	barred = -2
	// followed: a follower keeps it as a standby.
	followed = -3
)

// Reasons of a NotReadyError of an owner whose copy is not open, or not complete, yet.
const (
	reasonStarting  = "starting"
	reasonRestoring = "restoring"
)

func newRegistry(now func() time.Time) *registry {
	return &registry{now: now, entries: make(map[store.TaskID]*entryTask)}
}

// lookup returns the entry of a task that a thread or a follower holds, or of which a copy is open that proves its worth;
// nil when there is none. The result is a snapshot.
func (g *registry) lookup(id store.TaskID) *entryTask {
	g.mu.RLock()
	defer g.mu.RUnlock()
	e := g.entries[id]
	if e == nil || e.thread == barred || e.thread == free && (e.replica == nil || e.state == nil) {
		return nil
	}
	c := *e
	return &c
}

func (g *registry) list() []TaskInfo {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var infos []TaskInfo
	for _, e := range g.entries {
		if e.thread < 0 {
			continue
		}
		info := TaskInfo{ID: e.id, Thread: e.thread, Serving: e.serving}
		info.Restored, info.Total, info.Left = e.read.get()
		if e.state != nil {
			info.Checkpoint = e.state.Checkpoint().Clone()
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b TaskInfo) int { return a.ID.Compare(b.ID) })
	return infos
}

// claim makes thread the holder of a task, waiting for another holder to let go, and opens its state if need be.
func (g *registry) claim(ctx context.Context, id store.TaskID, thread int, a *age,
	open func(context.Context) (*layered.Task, error),
) (*layered.Task, error) {
	return g.hold(ctx, id, thread, a, nil, open)
}

// follow makes a follower the holder of a task, as claim does with a thread. preempt is called when a thread wants it: the
// follower then releases it soon.
func (g *registry) follow(ctx context.Context, id store.TaskID, preempt context.CancelFunc,
	open func(context.Context) (*layered.Task, error),
) (*layered.Task, error) {
	return g.hold(ctx, id, followed, nil, preempt, open)
}

func (g *registry) hold(ctx context.Context, id store.TaskID, holder int, a *age, preempt context.CancelFunc,
	open func(context.Context) (*layered.Task, error),
) (*layered.Task, error) {
	for {
		g.mu.Lock()
		e := g.entries[id]
		if e == nil {
			e = &entryTask{id: id, thread: free, read: new(readSoFar), mark: new(watermark)}
			g.entries[id] = e
		}
		if e.thread == free {
			e.thread, e.age, e.preempt, e.serving, e.hidden, e.free = holder, a, preempt, false, false, make(chan struct{})
			e.read.set(0, 0, 0)
			state := e.state
			g.mu.Unlock()
			if state != nil {
				return state, nil
			}
			state, err := open(ctx)
			if err != nil {
				g.release(id)
				return nil, fmt.Errorf("task %s: open state: %w", id, err)
			}
			g.mu.Lock()
			e.state = state
			g.mu.Unlock()
			return state, nil
		}
		if e.thread == followed && holder >= 0 {
			e.preempt()
		}
		letGo := e.free
		g.mu.Unlock()
		select {
		case <-letGo:
		case <-ctx.Done():
			return nil, fmt.Errorf("task %s: wait for its former holder: %w", id, context.Cause(ctx))
		}
	}
}

// replicate sets what proves the worth of a copy that no thread answers for.
func (g *registry) replicate(id store.TaskID, p *replica) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil {
		e.replica = p
		e.mark.raise()
	}
}

// replica returns what proves the worth of a copy, nil when nothing does.
func (g *registry) replica(id store.TaskID) *replica {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		return e.replica
	}
	return nil
}

// progress notes how far a restore is.
func (g *registry) progress(id store.TaskID, restored, total int64, left time.Duration) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		e.read.set(restored, total, left)
	}
}

// copied notes how far the copy of another instance has come.
func (g *registry) copied(id store.TaskID, rows, total, bytes int64, left time.Duration) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		e.read.set(rows, total, left)
		e.read.bytes.Store(bytes)
	}
}

// serve opens a task to queries that was restored from what the brokers had at a time.
func (g *registry) serve(id store.TaskID, whole time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil && e.thread >= 0 && !e.hidden {
		e.serving, e.whole, e.replica = true, whole, nil
		e.mark.raise()
	}
}

// raise tells those who wait that a commit of the task was published.
func (g *registry) raise(id store.TaskID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		e.mark.raise()
	}
}

// leftBehind is what the copy is worth of an owner that is none any more: as old as its last proof, or as its restore.
func (e *entryTask) leftBehind() *replica {
	since := e.age.last()
	if e.whole.After(since) {
		since = e.whole
	}
	return &replica{since: since, owned: since}
}

// hide ends the answering of a task that thread holds as its owner; the hold goes on. What the owner had last can still be
// read as the copy of a replica, as old as its last proof.
func (g *registry) hide(id store.TaskID, thread int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil && e.thread == thread {
		if e.serving {
			e.replica = e.leftBehind()
		}
		e.serving, e.hidden = false, true
		e.mark.raise()
	}
}

// release ends the hold of a thread or a follower; the state stays open for the next one until closeFree.
func (g *registry) release(id store.TaskID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[id]
	if e == nil || e.thread == free || e.thread == barred {
		return
	}
	if e.serving { // the membership was lost
		e.replica = e.leftBehind()
	}
	e.thread, e.age, e.preempt, e.serving, e.since = free, nil, nil, false, g.now()
	close(e.free)
	e.mark.raise()
	if e.state == nil {
		delete(g.entries, id)
	}
}

// serving counts the tasks that answer queries.
func (g *registry) serving() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	n := 0
	for _, e := range g.entries {
		if e.serving {
			n++
		}
	}
	return n
}

// has reports whether the task has an entry: a thread runs or opens it, its state is handed over, or it is being closed.
func (g *registry) has(id store.TaskID) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.entries[id] != nil
}

// bar lets claims of a task that has no entry wait until done is called.
func (g *registry) bar(id store.TaskID) (done func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.entries[id] != nil {
		return nil, false
	}
	e := &entryTask{id: id, thread: barred, read: new(readSoFar), mark: new(watermark), free: make(chan struct{})}
	g.entries[id] = e
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.entries, id)
		close(e.free)
	}, true
}

// closeFree closes the states that nobody has held for as long as idle. They stay on disk as held copies.
func (g *registry) closeFree(ctx context.Context, idle time.Duration) error {
	g.mu.Lock()
	now := g.now()
	var idlers []*entryTask
	for _, e := range g.entries {
		if e.thread == free && e.state != nil && now.Sub(e.since) >= idle {
			e.thread, e.free = barred, make(chan struct{}) // claims wait
			idlers = append(idlers, e)
		}
	}
	g.mu.Unlock()
	var errs []error
	for _, e := range idlers {
		if err := e.state.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("task %s: close state: %w", e.id, err))
		}
		g.mu.Lock()
		delete(g.entries, e.id)
		close(e.free)
		g.mu.Unlock()
	}
	return errors.Join(errs...)
}
