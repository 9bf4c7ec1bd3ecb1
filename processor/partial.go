package processor

import (
	"context"
	"errors"

	"github.com/statemesh/statemesh/store"
)

// mayBePartial reports whether a read that has failed so may be answered out of a copy that is being restored.
func mayBePartial(err error, opts *store.ReadOptions) bool {
	return opts.Partial && opts.AtLeast.Empty() && is[*store.NotReadyError](err) && !isUnproven(err)
}

// pinPartial pins what a copy of a task has so far that is being restored here, by a thread or by who follows it; otherwise is
// the error when there is none. It is old by the proof of what the copy was before, where there is one.
func (r *Runtime) pinPartial(ctx context.Context, name store.Name, id store.TaskID, opts store.ReadOptions, otherwise error) (*reading, error) {
	e := r.tasks.lookup(id)
	if e == nil || e.state == nil || e.serving || e.hidden || e.thread < 0 && (e.thread != followed || opts.OnlyActive) {
		return nil, otherwise
	}
	// Half a copy of another instance's is the state of no time: neither when it is pinned while it comes, nor when it is whole by
	// the time it is looked at.
	coming := e.read.from.Load() != nil
	snap, err := e.state.SnapshotPartial()
	switch {
	case errors.Is(err, store.ErrNotReady):
		return nil, otherwise
	case err != nil:
		return nil, r.notHere(name, id)
	}
	if coming || e.read.from.Load() != nil {
		snap.Close()
		return nil, otherwise
	}
	snap.For(store.UserOf(ctx))
	rd := &reading{
		name: name, partition: id.Partition, snap: snap, now: r.now, role: store.RoleActive, partial: &store.Partial{StreamTime: -1},
	}
	cp := snap.Checkpoint()
	if e.thread == followed {
		rd.role = store.RoleStandby
	}
	if e.replica != nil {
		rd.since, _ = e.replica.proof(&cp)
	}
	if opts.MaxAge > 0 && (rd.since.IsZero() || elapsed(rd.since, r.now()) > opts.MaxAge) {
		rd.Close()
		return nil, otherwise
	}
	rd.partial.Restored, rd.partial.Total, rd.partial.Left = e.progress()
	if t, ok := cp.StoreTimes[name]; ok {
		rd.partial.StreamTime = t
	}
	return rd, nil
}

// partialFacts are those of what a copy has so far. There is no token: nobody may be asked for at least this.
func (r *reading) partialFacts() store.Facts {
	cp := r.snap.Checkpoint()
	f := store.Facts{Role: r.role, Sequence: cp.Sequence, Position: cp.Position.Clone(), Age: -1, Partial: r.partial}
	if !r.since.IsZero() {
		f.Age = elapsed(r.since, r.now())
	}
	return f
}
