package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// fetchErr is an error that came out of a poll instead of records.
type fetchErr struct {
	topic     string
	partition int32
	err       error
}

// fetchProblems deals with the errors of the last polls. None of them is silent (CF-10): what no retry cures ends the
// thread with an error that names the resource.
func (t *thread) fetchProblems(ctx context.Context) error {
	problems := t.fetchErrs
	t.fetchErrs = nil
	for _, p := range problems {
		if err := t.fetchProblem(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (t *thread) fetchProblem(ctx context.Context, p fetchErr) error {
	switch {
	case errors.Is(p.err, context.Canceled), errors.Is(p.err, context.DeadlineExceeded):
		return nil // the poll ended
	case errors.Is(p.err, kgo.ErrClientClosed):
		return errLost
	case errors.Is(p.err, kerr.GroupAuthorizationFailed):
		return &AuthorizationError{Resource: "group", Name: t.rt.cfg.ApplicationID, Operation: "READ", Err: p.err}
	case errors.Is(p.err, kerr.TopicAuthorizationFailed):
		return &AuthorizationError{Resource: "topic", Name: p.topic, Operation: "READ", Err: p.err}
	case errors.Is(p.err, kerr.OffsetOutOfRange):
		return t.outOfRange(ctx, p)
	case errors.Is(p.err, kerr.UnknownTopicOrPartition), errors.Is(p.err, kerr.UnknownTopicID):
		return fmt.Errorf("input topic %s: it was deleted, or created again, while it was read: %w", p.topic, p.err)
	}
	if e, ok := errors.AsType[*kgo.ErrDataLoss](p.err); ok {
		return t.truncated(ctx, e)
	}
	t.rt.metrics.fetchErrors.Inc()
	t.log.WarnContext(ctx, "fetch failed", "topic", p.topic, "partition", p.partition, "error", p.err)
	return nil
}

// outOfRange: the log no longer has the offset the fetcher wants.
func (t *thread) outOfRange(ctx context.Context, p fetchErr) error {
	oi := t.inputs[p.topic][p.partition]
	if oi == nil {
		return nil
	}
	in, id := oi.in, oi.owner.task.id
	if in.waiting() > 0 {
		return nil // what was fetched goes first; the fetcher reports again
	}
	tps := []store.TopicPartition{in.tp}
	first, err := t.rt.listOffsets(ctx, tps, listEarliest)
	if err != nil {
		return t.tolerate(ctx, err)
	}
	last, err := t.rt.listOffsets(ctx, tps, listLatest)
	if err != nil {
		return t.tolerate(ctx, err)
	}
	at := in.next
	if at > last[in.tp] {
		at = -1 // beyond the end: the log was cut or made anew; there is nothing to go on from
		t.log.ErrorContext(ctx, "input is shorter than what was processed of it", "task", id, "topic", p.topic,
			"partition", p.partition, "offset", in.next, "log_end", last[in.tp])
	}
	next, err := t.rt.resumeAt(ctx, id, in.tp, at, first[in.tp], last[in.tp])
	if err != nil {
		return &TaskError{Task: id, Err: err}
	}
	in.next = next
	t.touch()
	t.seek(oi.owner)
	return nil
}

// truncated: an unclean leader election has cut off records that were read.
func (t *thread) truncated(ctx context.Context, e *kgo.ErrDataLoss) error {
	oi := t.inputs[e.Topic][e.Partition]
	if oi == nil {
		return nil
	}
	t.log.ErrorContext(ctx, "input lost records that were processed", "task", oi.owner.task.id, "topic", e.Topic,
		"partition", e.Partition, "offset", e.ConsumedTo, "reset_to", e.ResetTo)
	t.rt.metrics.dataLoss.WithLabelValues(e.Topic).Add(float64(max(0, e.ConsumedTo-e.ResetTo)))
	oi.in.drop()
	oi.in.next = store.Offset(e.ResetTo)
	t.touch()
	return nil
}

// tolerate passes on only what no retry cures.
func (t *thread) tolerate(ctx context.Context, err error) error {
	if refused := t.refused(err); refused != nil {
		return refused
	}
	t.log.WarnContext(ctx, "offsets not listed", "error", err)
	return nil
}
