package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// fence ends the open transaction of each id, if it has one, and shuts its producer out. Restores that name the same
// id at the same time share one fence: it is enough that it ends before any of them reads an offset.
func (r *Restorer) fence(ctx context.Context, ids []string) error {
	for _, id := range ids {
		r.mu.Lock()
		f := r.fences[id]
		if f == nil {
			f = &fencing{done: make(chan struct{})}
			r.fences[id] = f
			r.mu.Unlock()
			f.err = r.fenceOne(ctx, id)
			r.mu.Lock()
			delete(r.fences, id)
			r.mu.Unlock()
			close(f.done)
		} else {
			r.mu.Unlock()
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := f.err
		if err != nil && ctx.Err() == nil && isContext(err) {
			err = r.fenceOne(ctx, id) // who fenced for us was called off
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fencing is one fence on its way. err is set before done is closed.
type fencing struct {
	done chan struct{}
	err  error
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// fenceOne repeats InitProducerId until it succeeds. An answer means more than "fenced": the coordinator gives it only
// when a transaction that was open is ended, its markers written to every partition.
func (r *Restorer) fenceOne(ctx context.Context, id string) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &id
	req.TransactionTimeoutMillis = 60_000 // of a producer that never produces
	start := time.Now()
	for wait := newBackoff(5 * time.Millisecond); ; {
		resp, err := req.RequestWith(ctx, r.cfg.Client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		waited := time.Since(start)
		switch {
		case err == nil:
			r.log.InfoContext(ctx, "fenced a vanished owner", "transactional_id", id, "took", waited)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case fenceRefused(err), waited >= r.cfg.FenceTimeout:
			return &FenceError{TransactionalID: id, Waited: waited, Err: err}
		}
		if err := wait.sleep(ctx); err != nil {
			return err
		}
	}
}

// fenceRefused reports whether repeating cannot help. All else may pass: CONCURRENT_TRANSACTIONS while the markers of
// the ended transaction are written, epochs that another fence raises at the same time.
func fenceRefused(err error) bool {
	for _, final := range []error{
		kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.InvalidTransactionTimeout,
		kerr.InvalidRequest, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// refused reports whether an answer is final: a broker's error that says so. What never reached a broker may yet, and
// so may what it cannot explain.
func refused(err error) bool {
	ke, ok := errors.AsType[*kerr.Error](err)
	return ok && !ke.Retriable && !errors.Is(err, kerr.UnknownServerError)
}

// committed reads the group's offsets of all inputs, stable ones only.
func (r *Restorer) committed(ctx context.Context, inputs []store.TopicPartition) (map[store.TopicPartition]Committed, error) {
	have := make(map[store.TopicPartition]Committed, len(inputs))
	todo := slices.Clone(inputs)
	start := time.Now()
	for wait := newBackoff(10 * time.Millisecond); len(todo) > 0; {
		unstable, err := fetchOffsets(ctx, r.cfg.Client, r.cfg.Group, todo, have)
		waited := time.Since(start)
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && (refused(err) || waited >= r.cfg.StableTimeout):
			return nil, fmt.Errorf("group %s: read committed offsets: %w", r.cfg.Group, err)
		case err == nil && len(unstable) > 0 && waited >= r.cfg.StableTimeout:
			return nil, &UnstableError{Group: r.cfg.Group, Inputs: unstable, Waited: waited}
		case err == nil:
			todo = unstable
		}
		if len(todo) > 0 {
			if err := wait.sleep(ctx); err != nil {
				return nil, err
			}
		}
	}
	return have, nil
}

// fetchOffsets asks once. Inputs whose offset is undecided come back, the others are in have.
func fetchOffsets(ctx context.Context, client *kgo.Client, group string, inputs []store.TopicPartition,
	have map[store.TopicPartition]Committed,
) (unstable []store.TopicPartition, err error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	req.RequireStable = true
	at := map[string]int{}
	for _, tp := range inputs {
		i, ok := at[tp.Topic]
		if !ok {
			i = len(req.Topics)
			at[tp.Topic] = i
			t := kmsg.NewOffsetFetchRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, int32(tp.Partition))
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	err = kerr.ErrorForCode(resp.ErrorCode)
	if errors.Is(err, kerr.GroupIDNotFound) { // a group that never was has committed nothing
		for _, tp := range inputs {
			have[tp] = committedAs(-1, nil)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	answered := map[store.TopicPartition]bool{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := store.TopicPartition{Topic: t.Topic, Partition: store.Partition(p.Partition)}
			answered[tp] = true
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnstableOffsetCommit):
				unstable = append(unstable, tp)
			case err != nil:
				return nil, fmt.Errorf("%s: %w", tp, err)
			default:
				have[tp] = committedAs(p.Offset, p.Metadata)
			}
		}
	}
	for _, tp := range inputs {
		if !answered[tp] {
			return nil, fmt.Errorf("%s: not in the answer", tp)
		}
	}
	return unstable, nil
}

func committedAs(offset int64, metadata *string) Committed {
	c := Committed{Next: store.Offset(offset), Exists: offset >= 0, Meta: commitmeta.Meta{StreamTime: -1}}
	if c.Exists && metadata != nil {
		c.Meta, _ = commitmeta.Decode(*metadata)
	}
	return c
}

// backoff doubles from its first wait to a second.
type backoff struct{ next time.Duration }

func newBackoff(first time.Duration) *backoff { return &backoff{next: first} }

func (b *backoff) sleep(ctx context.Context) error {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, time.Second)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
