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
// threads is handed over open. An entry has at most one holder, the thread that runs the task; a second one waits until
// the first lets go. Safe for concurrent use.
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
	serving         bool
	restored, total *atomic.Int64
	// hidden: taken away from the thread, which has still to let go.
	hidden bool
	// mark wakes who waits for the task to come further, or to leave.
	mark  *watermark
	free  chan struct{} // closed when the holder has let go
	since time.Time     // of the last release
}

func (e *entryTask) reason() string {
	if e.state == nil {
		return reasonStarting
	}
	return reasonRestoring
}

// Reasons of a NotReadyError of an owner whose copy is not open, or not complete, yet.
const (
	reasonStarting  = "starting"
	reasonRestoring = "restoring"
)

func newRegistry(now func() time.Time) *registry {
	return &registry{now: now, entries: make(map[store.TaskID]*entryTask)}
}

// lookup returns the entry of a task that a thread holds, nil when none does. The result is a snapshot.
func (g *registry) lookup(id store.TaskID) *entryTask {
	g.mu.RLock()
	defer g.mu.RUnlock()
	e := g.entries[id]
	if e == nil || e.thread < 0 {
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
		info := TaskInfo{ID: e.id, Thread: e.thread, Serving: e.serving, Restored: e.restored.Load(), Total: e.total.Load()}
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
	for {
		g.mu.Lock()
		e := g.entries[id]
		if e == nil {
			e = &entryTask{id: id, thread: -1, restored: new(atomic.Int64), total: new(atomic.Int64), mark: new(watermark)}
			g.entries[id] = e
		}
		if e.thread == -1 {
			e.thread, e.age, e.serving, e.hidden, e.free = thread, a, false, false, make(chan struct{})
			e.restored.Store(0)
			e.total.Store(0)
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
		free := e.free
		g.mu.Unlock()
		select {
		case <-free:
		case <-ctx.Done():
			return nil, fmt.Errorf("task %s: wait for its former thread: %w", id, context.Cause(ctx))
		}
	}
}

// progress notes how far a restore is.
func (g *registry) progress(id store.TaskID, restored, total int64) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		e.restored.Store(restored)
		e.total.Store(total)
	}
}

// serve opens a restored task to queries.
func (g *registry) serve(id store.TaskID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil && e.thread >= 0 && !e.hidden {
		e.serving = true
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

// hide ends the answering of a task that thread holds; the hold goes on.
func (g *registry) hide(id store.TaskID, thread int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.entries[id]; e != nil && e.thread == thread {
		e.serving, e.hidden = false, true
		e.mark.raise()
	}
}

// release ends the hold of a thread; the state stays open for the next one until closeFree.
func (g *registry) release(id store.TaskID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[id]
	if e == nil || e.thread < 0 {
		return
	}
	e.thread, e.age, e.serving, e.since = -1, nil, false, g.now()
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
	e := &entryTask{id: id, thread: barred, restored: new(atomic.Int64), total: new(atomic.Int64), mark: new(watermark), free: make(chan struct{})}
	g.entries[id] = e
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.entries, id)
		close(e.free)
	}, true
}

// barred is the thread of an entry that nobody may claim until it is gone.
const barred = -2

// closeFree closes the states that nobody has held for as long as idle. They stay on disk as held copies.
func (g *registry) closeFree(ctx context.Context, idle time.Duration) error {
	g.mu.Lock()
	now := g.now()
	var free []*entryTask
	for _, e := range g.entries {
		if e.thread == -1 && e.state != nil && now.Sub(e.since) >= idle {
			e.thread, e.free = barred, make(chan struct{}) // claims wait
			free = append(free, e)
		}
	}
	g.mu.Unlock()
	var errs []error
	for _, e := range free {
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
