package processor

import (
	"context"
	"errors"
	"time"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
)

// replica proves what a copy is worth that no owner answers for: a standby's, or that of an owner of a moment ago. It is
// immutable; what it asks may change.
type replica struct {
	// since is a time at which the copy was whole, whatever has been applied after it; zero: none is known.
	since time.Time
	// owned is the same of what is in no log: only who owned the task has had that. zero: nobody here has.
	owned time.Time
	// watched proves more of the stores with a changelog, by how far they have followed it; nil: nobody follows.
	watched *restore.Watched
	// follower knows what a token of the copy is; nil: it is the position.
	follower *restore.Standby
}

// provenState is what is known of a commit beside its checkpoint, which a follower does not change.
type provenState struct {
	position store.Position
	sequence store.Sequence
	follower *restore.Standby
}

// proof is until when everything that was committed is in a state of the copy, and what that is.
func (p *replica) proof(cp *store.Checkpoint) (time.Time, provenState) {
	if p.watched == nil {
		return p.since, provenState{}
	}
	if proof, ok := p.watched.Proof(cp.Changelogs); ok && proof.At.After(p.since) {
		return proof.At, provenState{position: proof.Position, sequence: proof.Sequence}
	}
	return p.since, provenState{}
}

// goOn is what a copy is worth that is followed from here on, with a state of the checkpoint; p is what it was worth before, nil:
// nothing is known.
func (p *replica) goOn(cp *store.Checkpoint, watched *restore.Watched) replica {
	next := replica{watched: watched}
	if p != nil {
		next.since, _ = p.proof(cp)
		next.owned = p.owned
	}
	return next
}

// roundPatience is how long a reader waits for a proof that is asked for on its behalf.
const roundPatience = 300 * time.Millisecond

// pinReplica pins the last commit of a copy that has no owner here.
func (r *Runtime) pinReplica(ctx context.Context, name store.Name, e *entryTask, opts store.ReadOptions, after time.Time) (*reading, error) {
	switch {
	case e.hidden && (e.replica == nil || opts.OnlyActive), e.thread < 0 && opts.OnlyActive:
		return nil, r.notHere(name, e.id)
	case e.replica == nil || e.state == nil || opts.OnlyActive:
		return nil, r.notReady(name, e, e.reason())
	}
	rd, err := r.readReplica(ctx, name, e, opts, after)
	w := e.replica.watched
	if !isUnproven(err) || w == nil || opts.Hasty {
		return rd, err
	}
	// A round that is sent now proves more than the last one.
	changed := w.Changed()
	w.Ask()
	wait, cancel := context.WithTimeout(ctx, roundPatience)
	defer cancel()
	await(wait, changed, 0)
	if ctx.Err() != nil {
		return nil, r.ageError(ctx, name, e.id, ctx.Err())
	}
	return r.readReplica(ctx, name, e, opts, after)
}

// readReplica pins what the copy has now, if that is proven to be young enough.
func (r *Runtime) readReplica(ctx context.Context, name store.Name, e *entryTask, opts store.ReadOptions, after time.Time) (*reading, error) {
	snap, err := e.state.Snapshot()
	switch {
	case errors.Is(err, store.ErrClosed):
		return nil, r.notHere(name, e.id)
	case errors.Is(err, store.ErrNotReady):
		return nil, r.notReady(name, e, reasonRestoring)
	case err != nil:
		return nil, err
	}
	snap.For(store.UserOf(ctx))
	cp := snap.Checkpoint()
	// The proof is made for what was pinned: what is applied meanwhile changes nothing. What is in no log nobody can follow.
	since, proven := e.replica.owned, provenState{}
	if _, logged := cp.Changelogs[name]; logged {
		since, proven = e.replica.proof(&cp)
		proven.follower = e.replica.follower
	}
	if since.IsZero() || opts.MaxAge > 0 && elapsed(since, r.now()) > opts.MaxAge || since.Before(after) {
		snap.Close()
		return nil, r.notReady(name, e, reasonUnproven)
	}
	return &reading{
		name: name, partition: e.id.Partition, snap: snap, since: since, now: r.now, role: store.RoleStandby, proven: proven,
		forsaken: e.hidden || e.thread == free,
	}, nil
}

func (r *Runtime) notReady(name store.Name, e *entryTask, reason string) error {
	err := &store.NotReadyError{Store: name, Partition: e.id.Partition, Reason: reason, Building: reason == reasonRestoring, RetryAfter: retryRestoring}
	switch reason {
	case reasonUnproven:
		err.RetryAfter = probeInterval
	case reasonRestoring:
		err.Restored, err.Total, err.Left = e.progress()
		if from := e.read.from.Load(); from != nil {
			err.Reason = reasonCopying + *from
		}
	}
	return err
}

func isUnproven(err error) bool {
	e, ok := errors.AsType[*store.NotReadyError](err)
	return ok && e.Reason == reasonUnproven
}
