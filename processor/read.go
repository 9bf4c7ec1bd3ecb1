package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// Read pins one partition of a store at its last commit, for queries, or at opts.Isolation ReadUncommitted at what the
// stream thread had done at the end of its last batch. The reading must be closed. It is safe for concurrent use. It
// never waits for the stream thread, unless it is the first to read the task uncommitted for a while: then it waits for
// the end of the batch in hand, for up to a quarter of a second. It may wait a round trip to the group's coordinator when the
// instance cannot prove otherwise that it still owned the task within opts.MaxAge, or that it has what opts.AtLeast asks
// for. Beyond that it waits only for opts.AtLeast, as long as opts.Wait says.
//
// When the instance is not the owner but has a copy of the task, be it a standby or that of an owner of a moment ago, the
// reading is of the last whole commit that the copy has, and its Facts say so: role and age. opts.OnlyActive refuses it. With
// opts.Partial a copy that is being restored answers with what it has so far, and its Facts say that too.
//
// Errors: [*store.UnknownStoreError]; [*store.InvalidRequestError] for a partition that does not exist, and for a token
// that this store can never meet; [*store.MovedError] when the task is not on this instance; [*store.NotReadyError] while
// it restores, or when its age cannot be proven; [*store.BehindError] when it has not come to opts.AtLeast in time;
// store.ErrShuttingDown.
func (r *Runtime) Read(ctx context.Context, name store.Name, p store.Partition, opts store.ReadOptions) (store.Reading, error) {
	bs, ok := r.built.stores[name]
	if !ok {
		return nil, &store.UnknownStoreError{Store: name, Known: r.storeNames()}
	}
	if r.state.get().final() {
		return nil, store.ErrShuttingDown
	}
	if bs.sub.global {
		return r.readGlobal(ctx, r.globals[name], p, opts)
	}
	if n := r.partitions(bs.sub.id); p < 0 || n > 0 && p >= n {
		return nil, &store.InvalidRequestError{Field: "partition", Reason: fmt.Sprintf("%d: store %s has %d", p, name, n)}
	}
	id := store.TaskID{Subtopology: bs.sub.id, Partition: p}
	var rd *reading
	var err error
	if opts.AtLeast.Empty() {
		rd, err = r.pin(ctx, name, id, opts, time.Time{})
	} else {
		rd, err = r.readAtLeast(ctx, bs, id, opts)
	}
	if mayBePartial(err, &opts) {
		rd, err = r.pinPartial(ctx, name, id, opts, err)
	}
	if err != nil {
		return nil, err
	}
	return rd, nil
}

// pin pins the last commit of a task on this instance that was whole at a time within opts.MaxAge and not before after: that
// of the owner, or what a replica has of it.
func (r *Runtime) pin(ctx context.Context, name store.Name, id store.TaskID, opts store.ReadOptions, after time.Time) (*reading, error) {
	e := r.tasks.lookup(id)
	switch {
	case e == nil:
		return nil, r.notHere(name, id)
	case !e.serving:
		return r.pinReplica(ctx, name, e, opts, after)
	}
	// The proof is read before the snapshot is pinned: a commit that ends in between is in the snapshot, and one that is
	// on its way has lowered the proof already.
	since, err := e.age.prove(ctx, opts.MaxAge, after)
	if err != nil {
		return nil, r.ageError(ctx, name, id, err)
	}
	snap, err := r.snapshot(ctx, name, e, opts.Isolation)
	if errors.Is(err, store.ErrClosed) {
		return nil, r.notHere(name, id)
	} else if err != nil {
		return nil, err
	}
	// A proof is worth nothing for a task that was revoked while it was made: the member lives on, the task has moved.
	if again := r.tasks.lookup(id); again == nil || !again.serving || again.age != e.age {
		snap.Close()
		return nil, r.notHere(name, id)
	}
	return &reading{name: name, partition: id.Partition, snap: snap, since: since, now: r.now, role: store.RoleActive}, nil
}

// retryRestoring is the hint after which a caller may ask a restoring task again.
const retryRestoring = 250 * time.Millisecond

// reasonUnproven is the reason of a NotReadyError of an owner that the coordinator has not confirmed in time.
const reasonUnproven = "age not proven"

func (r *Runtime) ageError(ctx context.Context, name store.Name, id store.TaskID, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read %s partition %d: %w", name, id.Partition, context.Cause(ctx))
	}
	if errors.Is(err, errNotMember) {
		return r.notHere(name, id)
	}
	return &store.NotReadyError{Store: name, Partition: id.Partition, Reason: reasonUnproven, RetryAfter: probeInterval}
}

// notHere says who has the task, as far as the published map knows.
func (r *Runtime) notHere(name store.Name, id store.TaskID) error {
	if s := r.state.get(); s == PendingShutdown {
		return store.ErrShuttingDown
	}
	snap := r.table.Load()
	if snap != nil {
		if owner, ok := snap.Active(name, id.Partition); ok && owner.Instance != r.cfg.ProcessID {
			return &store.MovedError{
				Store: name, Partition: id.Partition, Instance: owner.Instance, Endpoint: owner.Endpoint,
				Epoch: int64(snap.Epoch()),
			}
		}
	}
	reason := "rebalancing"
	if snap == nil {
		reason = reasonStarting
	}
	return &store.NotReadyError{Store: name, Partition: id.Partition, Reason: reason, RetryAfter: retryRestoring}
}

func (r *Runtime) storeNames() []store.Name {
	names := make([]store.Name, 0, len(r.built.stores))
	for n := range r.built.stores {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// reading is one store of a pinned commit.
type reading struct {
	name      store.Name
	partition store.Partition
	snap      *layered.Snapshot
	since     time.Time // the state was whole at this time
	now       func() time.Time
	role      store.Role
	// proven is what a replica knows of the commit that it shows; forsaken says that nobody writes to its copy.
	proven   provenState
	forsaken bool
	once     sync.Once
	// partial: the copy is being restored, and this is what it has.
	partial *store.Partial
}

// KeyValue implements store.Reading.
func (r *reading) KeyValue() (store.KeyValueReader, error) { return r.snap.KeyValue(r.name) }

// Windows implements store.Reading.
func (r *reading) Windows() (store.WindowReader, error) { return r.snap.Windows(r.name) }

// Sessions implements store.Reading.
func (r *reading) Sessions() (store.SessionReader, error) { return r.snap.Sessions(r.name) }

// Versions implements store.Reading.
func (r *reading) Versions() (store.VersionedReader, error) { return r.snap.Versions(r.name) }

// Facts implements store.Reading.
func (r *reading) Facts() store.Facts {
	if r.partial != nil {
		return r.partialFacts()
	}
	cp := r.snap.Checkpoint()
	return store.Facts{
		Role: r.role, Sequence: max(cp.Sequence, r.proven.sequence), Position: r.position().Clone(), Token: r.token(&cp),
		Age: elapsed(r.since, r.now()), Isolation: r.isolation(),
	}
}

// Close implements store.Reading.
func (r *reading) Close() { r.once.Do(r.snap.Close) }
