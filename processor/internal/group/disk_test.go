package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
)

// simEnd is the end of every changelog of a test with copies.
const simEnd = 1000

// disk is what a process of a test has of the tasks' state: whatever it runs or follows, all of it.
type disk struct {
	mu     sync.Mutex
	copies map[store.TaskID]bool
	active map[int][]store.TaskID // by thread
}

// withCopies makes a process place n standbys when it leads, know lags, and keep what it is told to.
func withCopies(n int) processOpt {
	return func(p *process) {
		p.options = Options{Standbys: n, MaxWarmups: 2}
		p.disk = &disk{copies: make(map[store.TaskID]bool), active: make(map[int][]store.TaskID)}
		p.ends = func(_ context.Context, tasks []store.TaskID) (map[store.TaskID]int64, error) {
			ends := make(map[store.TaskID]int64)
			for _, id := range tasks {
				ends[id] = simEnd
			}
			return ends, nil
		}
	}
}

func (d *disk) heed(thread int, a Assignment) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active[thread] = a.Active
	for _, id := range slices.Concat(a.Active, a.Standby, a.Warmup, a.Retained) {
		d.copies[id] = true
	}
}

func (d *disk) list() []Held {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var held []Held
	for id := range d.copies {
		h := Held{Task: id, State: HeldOffset, Offset: simEnd}
		for _, ids := range d.active {
			if slices.Contains(ids, id) {
				h = Held{Task: id, State: HeldActive}
			}
		}
		held = append(held, h)
	}
	return held
}

// ask wants another rebalance when the assignment says so. Called with th.mu held.
func (th *thread) ask(a Assignment) {
	if th.p.disk == nil {
		return
	}
	again := func(after time.Duration) {
		time.AfterFunc(after, func() {
			th.mu.Lock()
			cl := th.cl
			th.mu.Unlock()
			cl.ForceRebalance()
		})
	}
	if len(a.Awaited) > 0 {
		again(300 * time.Millisecond)
	}
	if a.FollowUp {
		again(3 * time.Second)
	}
}
