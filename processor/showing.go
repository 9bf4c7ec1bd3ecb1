package processor

import (
	"context"
	"errors"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// show lets readers at READ_UNCOMMITTED see what the batch that has ended made of the states.
func (t *thread) show() {
	for _, o := range t.running {
		o.task.state.Show(o.task.processedPosition)
	}
}

// showAll is show before a commit, which may take long: a reader who comes then must not wait for it.
func (t *thread) showAll() {
	for _, o := range t.running {
		o.task.state.ShowNow(o.task.processedPosition)
	}
}

// processedPosition is how far the inputs are processed; what was skipped for good counts.
func (t *task) processedPosition() store.Position {
	p := t.position.Clone()
	if p == nil {
		p = make(store.Position)
	}
	for _, in := range t.inputs {
		if in.next > 0 {
			p.Set(in.tp.Topic, in.tp.Partition, in.next-1)
		}
	}
	return p
}

// snapshot pins what a reader at this isolation sees of a task.
func (r *Runtime) snapshot(ctx context.Context, name store.Name, e *entryTask, isolation store.Isolation) (*layered.Snapshot, error) {
	if isolation != store.ReadUncommitted {
		snap, err := e.state.Snapshot()
		if err == nil {
			snap.For(store.UserOf(ctx))
		}
		return snap, err
	}
	snap, err := e.state.SnapshotUncommitted(ctx, r.waker(e.thread))
	if e, ok := errors.AsType[*store.NotReadyError](err); ok {
		e.Store = name
	}
	return snap, err
}

// waker wakes the thread that has a number, if there still is one: what a thread that has ended had is committed.
func (r *Runtime) waker(index int) func() {
	for _, t := range r.streamThreads() {
		if t.index == index {
			return t.wake
		}
	}
	return func() {}
}

// position is that of the inputs in what the reading shows.
func (r *reading) position() store.Position {
	if p, ok := r.snap.Uncommitted(); ok {
		return p
	}
	if r.proven.position != nil {
		return r.proven.position
	}
	return r.snap.Checkpoint().Position
}

// isolation is what the reading shows: a commit when there is nothing beyond it.
func (r *reading) isolation() store.Isolation {
	if _, ok := r.snap.Uncommitted(); ok {
		return store.ReadUncommitted
	}
	return store.ReadCommitted
}
