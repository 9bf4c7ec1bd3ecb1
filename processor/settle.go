package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/store"
)

// settle finds out how a commit ended that failed with cause, and brings the thread to where Kafka is: published when
// it was committed, at the last commit when it was not. parts is nil when no commit was tried.
//
// First the transactional id is initialised anew, again until it succeeds: that finishes a commit the coordinator had
// begun, ends an open transaction, and bars everything of the old producer that may still be on its way. Only then are
// the committed offsets the last word.
func (t *thread) settle(ctx context.Context, parts []commitPart, cause error) error {
	t.aborted = cause
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.log.WarnContext(ctx, "commit failed", "error", cause, "tasks", len(parts))
	if err := t.refused(cause); err != nil {
		return err
	}
	if errors.Is(cause, errLost) {
		return cause
	}
	if !t.out.begun {
		return t.settleOffsets(ctx, cause)
	}
	if err := t.replaceProducer(ctx); err != nil {
		return err
	}
	outcome, err := t.outcomes(ctx, parts)
	if err != nil {
		return err
	}
	foreign := false
	for i, p := range parts {
		switch outcome[i] {
		case wasCommitted:
			p.cp.WallTime = t.rt.now().UnixMilli()
			p.task.becomeCommitted(p.cp)
			t.aborted = nil
		case wasForeign:
			foreign = true
		case wasAborted: // rewound below
		}
	}
	t.published()
	t.log.InfoContext(ctx, "commit settled", "committed", t.aborted == nil, "foreign", foreign)
	if foreign || fenced(cause) {
		// Somebody else commits for our tasks, or has ended our transaction believing that we are gone.
		return errors.Join(errLost, cause)
	}
	return t.rewind()
}

// settleOffsets deals with offsets that were committed without a transaction. Whether they were is not known after a
// broken connection, and asking does not help: the request may take effect later. Under exactly once only the end of
// the membership bars it. Under at_least_once the offsets may be committed twice.
func (t *thread) settleOffsets(ctx context.Context, cause error) error {
	if t.transactional() && !notNow(cause) {
		return errors.Join(errLost, cause)
	}
	if err := t.replaceProducer(ctx); err != nil {
		return err
	}
	t.published()
	return t.rewind()
}

// fenced reports that another producer has taken the transactional id, or the broker has ended the transaction.
func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// refused turns answers that no retry will change into errors that name the resource.
func (t *thread) refused(err error) error {
	for code, e := range map[error]AuthorizationError{
		kerr.GroupAuthorizationFailed:           {Resource: "group", Name: t.rt.cfg.ApplicationID, Operation: "READ"},
		kerr.TransactionalIDAuthorizationFailed: {Resource: "transactional id", Name: t.transactionalID, Operation: "WRITE"},
		kerr.ClusterAuthorizationFailed:         {Resource: "cluster", Name: "kafka-cluster", Operation: "IDEMPOTENT_WRITE"},
		kerr.TopicAuthorizationFailed:           {Resource: "topic", Name: topicOf(err), Operation: "WRITE"},
	} {
		if errors.Is(err, code) {
			e.Err = err
			return &e
		}
	}
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.OffsetMetadataTooLarge) {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// outcome of a task's part in a commit.
type outcome uint8

const (
	wasAborted outcome = iota
	wasCommitted
	wasForeign // another owner has committed
)

// outcomes asks the group for the last commit of each task.
func (t *thread) outcomes(ctx context.Context, parts []commitPart) ([]outcome, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	var tps []store.TopicPartition
	for _, p := range parts {
		for _, in := range p.task.inputs {
			tps = append(tps, in.tp)
		}
	}
	// The own transaction is over, so the offsets are decided as soon as its markers are written. If they never are, an
	// error that says so is better than to wait for ever.
	ctx, cancel := context.WithTimeout(ctx, t.rt.cfg.TaskTimeout)
	defer cancel()
	all, err := t.rt.coord.committed(ctx, tps, decided)
	if err != nil {
		return nil, fmt.Errorf("settle a commit: %w", err)
	}
	out := make([]outcome, len(parts))
	for i, p := range parts {
		var last committedOffset
		for _, in := range p.task.inputs {
			if c := all[in.tp]; c.meta.Sequence > last.meta.Sequence {
				last = c
			}
		}
		out[i] = decideOutcome(last.meta.Sequence, last.meta.TransactionalID, p.task.sequence, t.transactionalID)
	}
	return out, nil
}

// decideOutcome compares a task's last commit, as the group has it, with the one that was tried after commit before.
func decideOutcome(sequence store.Sequence, by string, before store.Sequence, own string) outcome {
	switch {
	case sequence == before:
		return wasAborted
	case sequence == before+1 && by == own:
		return wasCommitted
	default:
		return wasForeign
	}
}

// replaceProducer gives the producer up and makes a new one with the same transactional id, initialised: what the old
// one may have open is ended by that.
func (t *thread) replaceProducer(ctx context.Context) error {
	t.out.close()
	return t.startProducer(ctx, ctx)
}

// rewind brings every task that is not at its last commit back to it, and the fetcher with them.
func (t *thread) rewind() error {
	var back []*ownedTask
	for _, o := range t.running {
		if !o.task.uncommitted() {
			continue
		}
		if err := o.task.rollback(); err != nil {
			return err
		}
		back = append(back, o)
	}
	t.seek(back...)
	t.out.reset()
	t.rt.metrics.aborts.Inc()
	return nil
}
