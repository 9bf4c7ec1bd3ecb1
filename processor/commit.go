package processor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// errLost ends a membership: the group has given the member up, or its transactional id was fenced.
var errLost = errors.New("membership lost")

// dueReason says why it is time to commit; a metric label.
type dueReason string

const (
	notDue          dueReason = ""
	dueByInterval   dueReason = "interval"
	dueByRequest    dueReason = "request"
	dueByBytes      dueReason = "uncommitted bytes"
	dueForRebalance dueReason = "rebalance"
	dueByFailure    dueReason = "produce failed"
)

// due says why it is time to commit, if it is.
func (t *thread) due() dueReason {
	switch {
	case t.dirtySince.IsZero():
		return notDue
	case t.out.err() != nil:
		return dueByFailure
	case t.rt.now().Sub(t.dirtySince) >= t.rt.cfg.CommitInterval:
		return dueByInterval
	}
	bytes := t.out.size
	for _, o := range t.running {
		if o.task.commitRequested {
			return dueByRequest
		}
		bytes += o.task.state.UncommittedBytes()
	}
	if limit := t.rt.cfg.UncommittedMaxBytes; limit > 0 && bytes >= t.rt.share(limit) {
		return dueByBytes
	}
	return notDue
}

// commitPart is what one task puts into a commit.
type commitPart struct {
	task *task
	cp   store.Checkpoint
}

// tasks are those that run, in the order of their ids.
func (t *thread) tasks() iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for _, o := range t.running {
			if !yield(o.task) {
				return
			}
		}
	}
}

// collect gathers the tasks that have something to commit, and their offsets. Every task that takes part commits at
// least one offset, also when none moved: only an offset that is committed under the member's id and generation makes
// the broker check that the member still owns the task.
func collect(tasks iter.Seq[*task], transactionalID string) (parts []commitPart, offsets []offsetToCommit, records int) {
	for tk := range tasks {
		if !tk.uncommitted() {
			continue
		}
		p := commitPart{task: tk, cp: tk.checkpoint()}
		parts = append(parts, p)
		records += tk.processed
		meta := commitmeta.Meta{
			Sequence: p.cp.Sequence, StreamTime: p.cp.StreamTime, TransactionalID: transactionalID, Observed: tk.observed.encode(p.cp.StreamTime),
		}.Encode()
		before := len(offsets)
		for _, in := range tk.inputs {
			if in.moved() {
				offsets = append(offsets, offsetToCommit{tp: in.tp, next: in.next, leaderEpoch: in.leaderEpoch, meta: meta})
			}
		}
		if len(offsets) == before {
			in := tk.inputs[0]
			offsets = append(offsets, offsetToCommit{tp: in.tp, next: in.next, leaderEpoch: in.leaderEpoch, meta: meta})
		}
	}
	return parts, offsets, records
}

// commit makes everything since the last commit durable and visible, or nothing of it. It returns nil when the thread
// can go on, also after an abort, which it has dealt with: the tasks are at their last commit then. errLost: the member
// is none any more; the tasks are still to be rolled back. Anything else is fatal.
func (t *thread) commit(ctx context.Context) error {
	t.dirtySince, t.aborted = time.Time{}, nil
	began := t.rt.now()
	for tk := range t.tasks() {
		if err := tk.flush(); err != nil {
			if out, ok := errors.AsType[*outputError](err); ok {
				return t.settle(ctx, nil, out.err) // not the task's fault
			}
			return err
		}
	}
	t.showAll()
	err := produceChanges(t.out, t.tasks()) //nolint:contextcheck // records outlive any context: see output.produce
	if err == nil && t.out.produced > 0 {
		err = t.out.flush(ctx)
	}
	parts, offsets, records := collect(t.tasks(), t.transactionalID) // after the flush, which tells the changelogs' offsets
	if len(parts) == 0 && err == nil {
		return nil
	}
	if err == nil {
		err = t.commitOffsets(ctx, offsets)
	}
	if err == nil {
		for _, p := range parts {
			p.cp.WallTime = t.rt.now().UnixMilli()
			p.task.becomeCommitted(p.cp)
		}
		t.published()
		t.out.reset()
		t.committed(offsets)
	} else {
		err = t.settle(ctx, parts, err)
	}
	t.reportCommit(parts, records, began, err)
	return err
}

// produceChanges hands the changes of the tasks' states to the producer, each to its task's own partition.
func produceChanges(out *output, tasks iter.Seq[*task]) error {
	for tk := range tasks {
		if !tk.state.Dirty() {
			continue
		}
		for name, change := range tk.state.Changes() {
			log := tk.logs[name]
			if log == nil {
				return fmt.Errorf("task %s: change of store %s, which has no changelog", tk.id, name)
			}
			if log.source != nil {
				continue // its topic has it
			}
			if err := out.change(log, tk.id.Partition, change); err != nil {
				return err
			}
		}
	}
	return nil
}

// commitOffsets ends the commit: the transaction with the offsets in it, or, where nothing was produced or under
// at_least_once, the offsets alone, which are one atomic write at the coordinator. On success the coordinator has
// accepted the member.
func (t *thread) commitOffsets(ctx context.Context, offsets []offsetToCommit) error {
	if !t.out.begun {
		return t.underMembership(ctx, func(ctx context.Context, id identity) error {
			t.age.commitEnding(t.rt.now())
			return t.rt.coord.commit(ctx, id, offsets)
		})
	}
	pid, epoch, err := t.out.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	producer := identity{transactionalID: t.transactionalID, producer: pid, epoch: epoch}
	if err := t.rt.coord.addGroup(ctx, producer); err != nil {
		return err
	}
	err = t.underMembership(ctx, func(ctx context.Context, id identity) error {
		id.transactionalID, id.producer, id.epoch = producer.transactionalID, producer.producer, producer.epoch
		return t.rt.coord.commitInTransaction(ctx, id, offsets)
	})
	if err != nil {
		return err
	}
	// From here on others may see the commit before our readers do.
	t.age.commitEnding(t.rt.now())
	return t.out.client.EndTransaction(ctx, kgo.TryCommit)
}

// underMembership sends a commit under the member id and generation, again while the coordinator says "not now".
//
// The generation is the one of the moment, which may be newer than the assignment the thread knows: the client learns
// it when the join is answered. That is safe. The member claimed its tasks in that join, and under the cooperative
// protocol nobody else gets a claimed task before its owner has joined once more; the client does not before the
// thread, which has a commit open, lets it. A member that was not there for the join is unknown, and refused; the client
// would join as another one then, which member.identity tells.
func (t *thread) underMembership(ctx context.Context, send func(context.Context, identity) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.rt.cfg.TransactionTimeout)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		id, same := t.member.identity()
		if !same || t.member.isLost() {
			return errLost
		}
		sent := t.rt.now()
		err := send(ctx, id)
		switch {
		case err == nil:
			t.age.confirm(sent)
			return nil
		case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
			return errors.Join(errLost, err)
		case notNow(err):
			// The coordinator moves, or a join is being answered: the client will know the new generation soon.
		default:
			return err
		}
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

// notNow reports answers after which the same commit may be sent again: it certainly had no effect.
func notNow(err error) bool {
	for _, e := range []error{
		errUnsent, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NotCoordinator,
		kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// published tells readers that no commit is on its way any more: what it made of the tasks is there to be read.
func (t *thread) published() {
	t.age.commitPublished()
	for _, o := range t.running {
		t.serve(o)
		t.rt.tasks.raise(o.task.id)
	}
}

// serve opens a running task to queries, as soon as its stores are a state that ever was.
func (t *thread) serve(o *ownedTask) {
	if o.serves {
		return
	}
	if o.task.inexact() {
		done, total := o.task.toExact()
		t.rt.tasks.progress(o.task.id, done, total, 0)
		return
	}
	o.serves = true
	t.rt.tasks.serve(o.task.id, o.restored)
}

// committed tells those who follow commits.
func (t *thread) committed(offsets []offsetToCommit) {
	for _, o := range offsets {
		t.rt.purge(o.tp, o.next)
	}
}

func (t *thread) reportCommit(parts []commitPart, records int, began time.Time, err error) {
	took := t.rt.now().Sub(began)
	info := CommitInfo{Thread: t.index, Records: records, Took: took, Err: err}
	if err == nil && t.aborted != nil {
		info.Err = t.aborted
	}
	t.rt.metrics.commit(took, info.Err)
	for _, p := range parts {
		info.Tasks = append(info.Tasks, p.task.id)
	}
	t.rt.cfg.Listener.Commit(info)
}
