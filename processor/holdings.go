package processor

import (
	"math"
	"slices"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Holdings lists what this instance has of tasks, its own and copies of others', in order, and how far each is. It asks
// nobody.
func (r *Runtime) Holdings() []router.Holding {
	entries := r.tasks.held()
	held := make([]router.Holding, 0, len(entries))
	for _, e := range entries {
		held = append(held, r.holding(e))
	}
	slices.SortFunc(held, func(a, b router.Holding) int { return a.Task.Compare(b.Task) })
	return held
}

// holding describes one entry.
func (r *Runtime) holding(e *entryTask) router.Holding {
	h := router.Holding{Task: e.id, Role: router.HeldAsRetained, Lag: -1, Age: -1}
	if e.replica != nil && e.state != nil {
		cp := e.state.Checkpoint()
		if since, _ := e.replica.proof(&cp); !since.IsZero() {
			h.Age = elapsed(since, r.now())
		}
	}
	switch {
	case e.hidden || e.thread == free:
		h.State = router.HoldingResting
		return h
	case e.thread == followed:
		h.Role = r.standbys.role(e.id)
		if !e.copying(&h) {
			e.following(&h)
		}
	default:
		h.Role = router.HeldAsOwner
		if e.serving {
			h.State, h.Lag = router.HoldingServing, 0
			if since := e.leftBehind().since; !since.IsZero() { // what it would be worth from now on
				h.Age = elapsed(since, r.now())
			}
			return h
		}
		if e.copying(&h) {
			return h
		}
		h.State = router.HoldingStarting
		if h.Restored, h.Total, h.Left = e.progress(); h.Total > 0 {
			h.State, h.Lag = router.HoldingRestoring, h.Total-h.Restored
		}
	}
	return h
}

// copying describes an entry that takes the copy of another instance; false when it does not.
func (e *entryTask) copying(h *router.Holding) bool {
	from := e.read.from.Load()
	if from == nil {
		return false
	}
	h.State, h.From, h.Bytes = router.HoldingCopying, *from, e.read.bytes.Load()
	h.Restored, h.Total, h.Left = e.read.get()
	return true
}

// following describes an entry whose changelogs are followed.
func (e *entryTask) following(h *router.Holding) {
	h.State = router.HoldingStarting
	if e.replica == nil || e.replica.follower == nil {
		return
	}
	f := e.replica.follower
	if lag := f.Lag(); lag != math.MaxInt64 {
		h.Lag = lag
	}
	if f.Exact() {
		h.State = router.HoldingFollowing
		return
	}
	if h.Restored, h.Total, h.Left = f.Progress(); h.Lag >= 0 {
		h.State = router.HoldingRestoring
	}
}

// held are the entries that hold something, as they are now.
func (g *registry) held() []*entryTask {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var held []*entryTask
	for _, e := range g.entries {
		if e.thread == barred || e.thread == free && (e.replica == nil || e.state == nil) {
			continue
		}
		c := *e
		held = append(held, &c)
	}
	return held
}

// role is what a followed copy is for. What the group has not named is what a thread here has let go of.
func (s *standbys) role(id store.TaskID) router.HoldingRole {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case slices.Contains(s.told.Warmup, id):
		return router.HeldAsWarmup
	case slices.Contains(s.told.Standby, id):
		return router.HeldAsStandby
	default:
		return router.HeldAsRetained
	}
}
