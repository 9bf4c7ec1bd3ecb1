package processor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/store"
)

// cleanup remembers since when copies on disk have not been needed (upstream's state.cleanup.delay.ms). What is needed, and
// whether that is known for sure, others say.
type cleanup struct {
	delay time.Duration
	idle  map[store.TaskID]time.Time
}

// review returns the copies that nobody has needed for the delay, in order. held are those on disk.
func (c *cleanup) review(now time.Time, held []store.TaskID, needed func(store.TaskID) bool) []store.TaskID {
	idle := make(map[store.TaskID]time.Time, len(held))
	var due []store.TaskID
	for _, id := range held {
		if needed(id) {
			continue
		}
		since, ok := c.idle[id]
		if !ok {
			since = now
		}
		idle[id] = since
		if now.Sub(since) >= c.delay {
			due = append(due, id)
		}
	}
	c.idle = idle
	slices.SortFunc(due, store.TaskID.Compare)
	return due
}

// interval is how often to look.
func (c *cleanup) interval() time.Duration { return min(max(c.delay/10, time.Second), time.Minute) }

// cleanUp drops the copies of tasks that have long moved away.
func (r *Runtime) cleanUp(ctx context.Context) error {
	if r.cfg.StateCleanupDelay < 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	c := cleanup{delay: r.cfg.StateCleanupDelay}
	tick := time.NewTicker(c.interval())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		needed, known := r.neededCopies()
		if !known {
			continue // the time goes on, but nothing is dropped and nothing begins to wait
		}
		var held []store.TaskID
		for _, h := range r.stores.Held() {
			if !h.Open {
				held = append(held, h.ID)
			}
		}
		for _, id := range c.review(r.now(), held, needed) {
			r.dropCopy(ctx, id, c.delay)
		}
	}
}

// neededCopies says of which tasks this instance needs its copy: those it runs, hands over or is promised. It is not known
// while the group changes: then the map that is read back is older than what the members were told.
func (r *Runtime) neededCopies() (needed func(store.TaskID) bool, known bool) {
	view := r.observer.View()
	if r.state.get() != Running || view.Epoch == 0 || view.Epoch != r.observer.Highest() {
		return nil, false
	}
	ours, member := promised(&view, r.cfg.ProcessID)
	return func(id store.TaskID) bool { return ours[id] || r.tasks.has(id) }, member
}

// promised lists the tasks that the map gives to a process, lets it keep, or has on the way to it. member reports whether
// the process is in the map at all.
func promised(view *group.View, process string) (tasks map[store.TaskID]bool, member bool) {
	tasks = make(map[store.TaskID]bool)
	for i := range view.Members {
		m := &view.Members[i]
		mine := m.Member.ProcessID == process
		member = member || mine
		for _, release := range m.Assignment.Releasing {
			if mine || release.To == process {
				tasks[release.Task] = true
			}
		}
		if !mine {
			continue
		}
		for _, id := range slices.Concat(m.Assignment.Active, m.Assignment.Standby, m.Assignment.Warmup, m.Assignment.Retained, m.Assignment.Incoming) {
			tasks[id] = true
		}
	}
	return tasks, member
}

// dropCopy drops one copy, unless it has come to be needed. Who is given the task meanwhile waits.
func (r *Runtime) dropCopy(ctx context.Context, id store.TaskID, delay time.Duration) {
	done, ok := r.tasks.bar(id)
	if !ok {
		return
	}
	defer done()
	// Barred, so the task has no thread; what the group has decided in between is looked at once more.
	if view := r.observer.View(); view.Epoch != r.observer.Highest() {
		return
	} else if ours, _ := promised(&view, r.cfg.ProcessID); ours[id] {
		return
	}
	switch err := r.stores.DropTask(ctx, id); {
	case err == nil:
		r.metrics.copiesDropped.Inc()
		r.cfg.Logger.InfoContext(ctx, "copy dropped: its task has run elsewhere", "task", id, "for", delay)
	case errors.Is(err, store.ErrTaskOpen), ctx.Err() != nil:
	default:
		r.cfg.Logger.ErrorContext(ctx, "copy not dropped", "task", id, "error", err)
	}
}
