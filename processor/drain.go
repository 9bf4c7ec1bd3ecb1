package processor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// draining is the part of the runtime that gives everything away. It lives as long as the process.
type draining struct {
	on       atomic.Bool
	unheeded atomic.Bool // an answer to a join that said so took no notice

	mu     sync.Mutex
	undone chan struct{} // closed by the end of the drain; nil while there is none
}

// Draining reports whether this instance gives everything away.
func (r *Runtime) Draining() bool { return r.drains.on.Load() }

// Drain gives away everything that this instance has: the group places nothing new here, and each task goes to another instance
// as soon as there is a copy of it that has caught up; until then it is processed and answered here. Drain returns when the
// goal is reached, or with [router.ErrNobodyTakes], [router.ErrDrainUnsupported], [router.ErrDrainUndone], [store.ErrNotReady]
// before the instance is in the group, or the cause of ctx's end. The instance goes on draining after that, until [Runtime.Undrain] or the end of the process, and calling Drain again goes on watching: any number
// of callers may. report, if not nil, hears of every change, by the caller's goroutine.
func (r *Runtime) Drain(ctx context.Context, goal router.DrainGoal, report func(router.DrainStatus)) error {
	if !r.failover.ready.Load() {
		return errStarting()
	}
	w := drainWatch{r: r, goal: goal, had: make(map[store.TaskID]bool), asked: make(map[string]answer)}
	if !r.Draining() && !r.othersTake() { // nothing is asked of anybody
		if !r.placed() {
			return errStarting()
		}
		status := w.look(ctx)
		if report != nil {
			report(status)
		}
		return fmt.Errorf("drain: %d tasks stay: %w", len(status.Tasks), router.ErrNobodyTakes)
	}
	undone := r.beginDrain()
	var last *router.DrainStatus
	for {
		_, changed := r.table.Watch()
		status := w.look(ctx)
		if report != nil && (last == nil || !status.Equal(last)) {
			report(status)
		}
		last = &status
		if done, err := w.end(&status, goal); done || err != nil {
			return err
		}
		next := time.NewTimer(drainLook)
		select {
		case <-next.C:
		case <-changed:
		case <-undone:
			next.Stop()
			return router.ErrDrainUndone
		case <-ctx.Done():
			next.Stop()
			return fmt.Errorf("drain: %d tasks and %d copies left: %w", len(status.Tasks), len(status.Copies), context.Cause(ctx))
		}
		next.Stop()
	}
}

// errStarting is the end of a drain of an instance that knows nothing of the group yet.
func errStarting() error {
	return fmt.Errorf("drain: %w", &store.NotReadyError{Reason: reasonStarting, RetryAfter: retryRestoring})
}

// beginDrain makes the group take notice.
func (r *Runtime) beginDrain() (undone <-chan struct{}) {
	d := &r.drains
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.undone == nil {
		d.undone = make(chan struct{})
		d.unheeded.Store(false)
		d.on.Store(true)
		r.rejoin()
	}
	return d.undone
}

// Undrain lets the group place tasks and copies here again. It does nothing when the instance is not draining.
func (r *Runtime) Undrain() {
	d := &r.drains
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.undone == nil {
		return
	}
	d.on.Store(false)
	close(d.undone)
	d.undone = nil
	r.rejoin()
}

// heard takes in what a leader answered to a join that said that this instance drains.
func (d *draining) heard(a *group.Assignment) {
	if a.Epoch > 0 {
		d.unheeded.Store(!a.Drains)
	}
}

// The times of a drain.
const (
	// drainLook is how often it is looked at what is left.
	drainLook = 25 * time.Millisecond
	// urgeInterval is how often the group is asked to let go of copies: each time all members join.
	urgeInterval = 5 * time.Second
	// holdingsLook is how often another instance is asked how far it is.
	holdingsLook = 100 * time.Millisecond
	// holdingsPatience is how long it is asked. Then it is taken to serve what the map says that it has.
	holdingsPatience = 2 * time.Second
)

// drainWatch is one look after another at a drain.
type drainWatch struct {
	r    *Runtime
	goal router.DrainGoal
	// had are the tasks that were here and that no other instance was seen to serve since.
	had   map[store.TaskID]bool
	asked map[string]answer // by instance
	// urged is the epoch in which the group was asked to let go of copies, urgedAt the time: its leader may think less of what is to
	// replace them.
	urged   router.Epoch
	urgedAt time.Time
}

// answer is what an instance has said last.
type answer struct {
	at, since time.Time // of the last question, of the first that was not answered
	held      map[store.TaskID]router.Holding
	silent    bool
}

// look says what is left.
func (w *drainWatch) look(ctx context.Context) router.DrainStatus {
	r := w.r
	here := r.standbys.here()
	for _, info := range r.tasks.list() {
		if _, ok := here.tasks[info.ID]; !ok {
			here.tasks[info.ID] = ""
		}
	}
	for id := range here.tasks {
		w.had[id] = true
	}
	status := router.DrainStatus{Heeded: here.heeded, Copies: here.copies, Kept: here.kept}
	at := w.whereabouts()
	for _, id := range slices.SortedFunc(maps.Keys(w.had), store.TaskID.Compare) {
		to, mine := here.tasks[id]
		t := router.DrainTask{Task: id, Stage: router.DrainMoving, To: to, Lag: -1}
		owner, waiting := at.owner[id], at.awaiting[id]
		switch {
		case mine && to != "":
		case mine && waiting.ID == "":
			t.Stage = router.DrainWaiting
		case mine:
			t.Stage, t.To, t.Lag = router.DrainWarming, waiting.ID, w.holding(ctx, waiting, id).Lag
		case owner.ID == "" || owner.ID == r.cfg.ProcessID: // the map follows
		case w.serves(ctx, owner, id):
			delete(w.had, id)
			continue
		default:
			t.Stage, t.To = router.DrainStarting, owner.ID
		}
		status.Tasks = append(status.Tasks, t)
	}
	// Whoever waits for tasks alone leaves next, which takes the copies away, too, by the same placement.
	copies := w.goal == router.CopiesReplaced && len(status.Tasks) == 0
	if copies && w.urged < r.Epoch() && r.now().Sub(w.urgedAt) >= urgeInterval && w.replaced(ctx, status.Copies, &at) {
		w.urged, w.urgedAt = r.Epoch(), r.now()
		r.rejoin()
	}
	return status
}

// end reports whether the drain is over.
func (w *drainWatch) end(s *router.DrainStatus, goal router.DrainGoal) (done bool, err error) {
	switch {
	case s.Heeded && len(s.Tasks) == 0 && (goal == router.TasksServed || len(s.Copies) == 0):
		return true, nil
	case w.r.drains.unheeded.Load():
		err = router.ErrDrainUnsupported
	case !w.r.othersTake():
		err = router.ErrNobodyTakes
	default:
		return false, nil
	}
	return false, fmt.Errorf("drain: %d tasks and %d copies stay: %w", len(s.Tasks), len(s.Copies), err)
}

// placed reports whether the group is known as it is with this instance in it. Before that nothing says who else is there.
func (r *Runtime) placed() bool {
	return slices.ContainsFunc(r.observer.View().Members, func(m group.ViewMember) bool {
		return m.Member.ProcessID == r.cfg.ProcessID && m.Member.Incarnation == r.cfg.Incarnation
	})
}

// othersTake reports whether there is an instance that could take over tasks of this one.
func (r *Runtime) othersTake() bool {
	takes := make(map[string]bool) // by process
	for _, m := range r.observer.View().Members {
		id := m.Member.ProcessID
		if _, refused := m.Assignment.Refused(); refused || id == "" || id == r.cfg.ProcessID {
			continue
		}
		before, known := takes[id]
		takes[id] = !m.Member.Draining && (before || !known)
	}
	return slices.Contains(slices.Collect(maps.Values(takes)), true)
}

// whereabouts say where tasks are, by the newest map.
type whereabouts struct {
	owner, awaiting map[store.TaskID]router.Instance
	standbys        map[store.TaskID][]router.Instance // without this instance
}

func (w *drainWatch) whereabouts() whereabouts {
	at := whereabouts{
		owner: make(map[store.TaskID]router.Instance), awaiting: make(map[store.TaskID]router.Instance),
		standbys: make(map[store.TaskID][]router.Instance),
	}
	snap := w.r.table.Load()
	if snap == nil {
		return at
	}
	for _, in := range snap.Instances() {
		for _, id := range in.Active {
			at.owner[id] = in
		}
		for _, id := range in.Standby {
			if in.ID != w.r.cfg.ProcessID {
				at.standbys[id] = append(at.standbys[id], in)
			}
		}
	}
	for _, m := range w.r.observer.View().Members {
		if in, ok := snap.Instance(m.Member.ProcessID); ok {
			for _, id := range m.Assignment.Awaited {
				at.awaiting[id] = in
			}
		}
	}
	return at
}

// replaced reports whether there are copies, and what is to replace each has caught up: the group lets go of them when it is asked.
func (w *drainWatch) replaced(ctx context.Context, copies []store.TaskID, at *whereabouts) bool {
	for _, id := range copies {
		for _, in := range at.standbys[id] {
			if h := w.holding(ctx, in, id); h.State != router.HoldingFollowing {
				return false
			}
		}
		if owner := at.owner[id]; owner.ID == "" || !w.serves(ctx, owner, id) {
			return false
		}
	}
	return len(copies) > 0
}

// serves reports whether an instance serves a task that it owns by the map. One that has not answered for holdingsPatience is taken
// to: it may be of a version that cannot be asked.
func (w *drainWatch) serves(ctx context.Context, owner router.Instance, id store.TaskID) bool {
	h := w.holding(ctx, owner, id)
	a := w.asked[owner.ID]
	return h.Role == router.HeldAsOwner && h.State == router.HoldingServing || a.silent && w.r.now().Sub(a.since) > holdingsPatience
}

// holding is what an instance said last of a task; it is asked again when that was a while ago.
func (w *drainWatch) holding(ctx context.Context, of router.Instance, id store.TaskID) router.Holding {
	a, known := w.asked[of.ID]
	now := w.r.now()
	if !known || now.Sub(a.at) >= holdingsLook {
		list, err := w.r.cfg.Peers.Holdings(ctx, of)
		switch a.at = now; {
		case err == nil:
			a.silent, a.held = false, make(map[store.TaskID]router.Holding, len(list))
			for _, h := range list {
				a.held[h.Task] = h
			}
		case !a.silent:
			a.silent, a.since = true, now
		}
		w.asked[of.ID] = a
	}
	if h, ok := a.held[id]; ok {
		return h
	}
	return router.Holding{Task: id, Lag: -1, Age: -1}
}
