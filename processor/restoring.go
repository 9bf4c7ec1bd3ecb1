package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/layered"
)

// restored is what a restore hands to the stream thread: the hold of the task, and where it stands.
type restored struct {
	owner  *ownedTask
	state  *layered.Task
	result restore.Result
	// start is where each input goes on, and ends how far its log reached then.
	start, ends map[store.TopicPartition]store.Offset
	// began is before the brokers were asked: all that had been committed by then is in the state.
	began time.Time
	err   error
}

// startRestore brings a task to its last commit, beside the thread and beside other restores.
func (t *thread) startRestore(o *ownedTask) {
	a, m := t.age, t.member
	t.restores.Go(func() {
		r, held := t.rt.restore(o.ctx, o, t.index, a)
		if o.ctx.Err() != nil || errors.Is(r.err, context.Canceled) {
			if held {
				t.rt.tasks.release(o.task.id)
			}
			return
		}
		t.doneMu.Lock()
		t.done = append(t.done, r)
		t.doneMu.Unlock()
		m.wake()
	})
}

func (t *thread) takeDone() []restored {
	t.doneMu.Lock()
	defer t.doneMu.Unlock()
	done := t.done
	t.done = nil
	return done
}

// restore claims the task's state and reads its changelogs. held says that the claim was made and is the caller's.
func (r *Runtime) restore(ctx context.Context, o *ownedTask, thread int, a *age) (out restored, held bool) {
	out.owner = o
	id := o.task.id
	out.state, out.err = r.openState(ctx, id, thread, a)
	if out.err != nil {
		return out, false
	}
	logs, closeReplays, err := r.logs(id, o.task.sub, o.plan.Inputs, out.state)
	if err != nil {
		out.err = err
		return out, true
	}
	began := r.now()
	info := RestoreInfo{Task: id, Attempt: r.attempts.Add(1)}
	r.cfg.Listener.RestoreStart(info)
	r.metrics.restoring.Inc()
	defer r.metrics.restoring.Dec()
	fence := r.fences.list()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		out.began = r.now()
		out.result, out.err = r.restorer.Restore(ctx, restore.Request{
			Task: out.state, Inputs: o.plan.Inputs, Changelogs: logs, Fence: fence,
			Seed: r.seed(id, out.state, &r.seeds.owner, func(from string, rows, total int64) {
				info.Peer, info.Restored, info.Total = from, rows, total
				r.cfg.Listener.RestoreBatch(info)
			}),
			Dropping: func() { r.tasks.replicate(id, nil) },
			Progress: func(p restore.Progress) {
				r.tasks.progress(id, p.Done, p.Total, p.Left)
				r.metrics.restore(id.String(), p.Total-p.Done, p.Left)
				info.Restored, info.Total = p.Done, p.Total
				if p.Phase == restore.Restoring {
					r.cfg.Listener.RestoreBatch(info)
				}
			},
		})
		if out.err == nil {
			out.start, out.ends, out.err = r.startOffsets(ctx, id, o.plan.Inputs, out.result.Inputs)
		}
		if out.err == nil || ctx.Err() != nil || !r.mayRetry(out.err) || r.now().Sub(began) > r.cfg.TaskTimeout {
			break
		}
		r.cfg.Logger.WarnContext(ctx, "restore failed, trying again", "task", id, "error", out.err)
		if sleep(ctx, wait) != nil {
			break
		}
	}
	out.err = errors.Join(out.err, closeReplays())
	if out.err == nil {
		r.fences.remove(fence)
	}
	r.metrics.restored(id.String())
	info.Took, info.Err = r.now().Sub(began), out.err
	r.cfg.Listener.RestoreEnd(info)
	return out, true
}

// openState claims the state of a task, and opens it if it is closed: again while the disk takes no writes, for up to TaskTimeout, for
// that may pass, and does not hurt what is open.
func (r *Runtime) openState(ctx context.Context, id store.TaskID, thread int, a *age) (*layered.Task, error) {
	began := r.now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		state, err := r.tasks.claim(ctx, id, thread, a, func(ctx context.Context) (*layered.Task, error) {
			return r.stores.OpenTask(ctx, id, r.built.StoreSpecs(id.Subtopology))
		})
		if err == nil || !ofDisk(err) || r.now().Sub(began) > r.cfg.TaskTimeout {
			return state, err
		}
		r.cfg.Logger.WarnContext(ctx, "the disk takes no new copy, trying again", "task", id, "error", err)
		if sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}

// ofDisk reports whether the machine refused to write.
func ofDisk(err error) bool {
	_, refused := errors.AsType[syscall.Errno](err)
	return refused || errors.Is(err, engine.ErrReadOnly)
}

// mayRetry reports whether a restore that failed may succeed without anybody's help.
func (r *Runtime) mayRetry(err error) bool {
	if _, ok := errors.AsType[*AuthorizationError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*OffsetGapError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*restore.FenceError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*restore.UnstableError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*kerr.Error](err); ok {
		return retriable(err)
	}
	return ofDisk(err) // which may pass; what it has left unfinished the next restore drops
}

// logs of a task's stores: their changelogs, and the source topics that take the place of one. What is behind the committed
// offset of a source topic was decided about before, so a record that could not be read then is passed over.
func (r *Runtime) logs(id store.TaskID, sub *subtopology, inputs []store.TopicPartition, state *layered.Task) (
	logs map[store.Name]restore.Changelog, done func() error, err error,
) {
	logs = make(map[store.Name]restore.Changelog)
	var replays []*replay
	done = func() error {
		var errs []error
		for _, p := range replays {
			errs = append(errs, p.close())
		}
		return errors.Join(errs...)
	}
	env := &taskEnv{application: r.cfg.ApplicationID, now: r.now, onDrop: func(*task, string, destination) {}}
	for _, s := range sub.stores {
		topic, info := r.logOf(s)
		if topic == "" {
			continue
		}
		log := restore.Changelog{Topic: topic, ID: info.ID, Retention: info.DeleteRetention}
		if s.source != "" {
			if !slices.Contains(inputs, store.TopicPartition{Topic: s.source, Partition: id.Partition}) {
				continue // the topic has fewer partitions than the task's number
			}
			p, err := newReplay(id, s, env, state, r.passOver)
			if err != nil {
				return nil, nil, errors.Join(err, done())
			}
			replays = append(replays, p)
			log.Replay = p.apply
		}
		logs[s.spec.Name] = log
	}
	return logs, done, nil
}

// passOver decides about a record that was processed before, and fails when it is processed again.
func (r *Runtime) passOver(t *task, err error) error {
	if is[*DeserializationError](err) || r.cfg.ProcessingHandler != Fail {
		r.cfg.Logger.Debug("restore passes over a record", "task", t.id, "topic", t.current.Topic, "partition", t.current.Partition,
			"offset", t.current.Offset, "error", err)
		return nil
	}
	return t.fail(err)
}

// startOffsets says where each input goes on: at its committed offset; where there is none, or where the log no longer
// has it, by the reset policy of its source (CR-14). ends are the last stable offsets.
func (r *Runtime) startOffsets(ctx context.Context, id store.TaskID, inputs []store.TopicPartition,
	committed map[store.TopicPartition]restore.Committed,
) (start, ends map[store.TopicPartition]store.Offset, err error) {
	first, err := r.listOffsets(ctx, inputs, listEarliest)
	if err != nil {
		return nil, nil, err
	}
	ends, err = r.listOffsets(ctx, inputs, listLatest)
	if err != nil {
		return nil, nil, err
	}
	start = make(map[store.TopicPartition]store.Offset, len(inputs))
	for _, tp := range inputs {
		at := store.Offset(-1)
		if c := committed[tp]; c.Exists {
			at = c.Next
		}
		if start[tp], err = r.resumeAt(ctx, id, tp, at, first[tp], ends[tp]); err != nil {
			return nil, nil, err
		}
	}
	return start, ends, nil
}

// resumeAt decides where to go on with an input that was committed at offset at (-1: never), when the log has the
// offsets from first up to last.
func (r *Runtime) resumeAt(ctx context.Context, id store.TaskID, tp store.TopicPartition, at, first, last store.Offset) (store.Offset, error) {
	if at >= first {
		return at, nil // one beyond the end is the fetcher's to report: the end of a moment ago proves nothing
	}
	policy := r.built.OffsetReset(tp.Topic)
	if policy == ResetDefault {
		policy = r.cfg.OffsetReset
	}
	next := first
	switch policy {
	case ResetNone:
		return 0, &OffsetGapError{Input: tp, Committed: at, LogStart: first, LogEnd: last}
	case ResetLatest:
		next = last
	case ResetEarliest, ResetDefault:
	}
	if at >= 0 {
		r.cfg.Logger.ErrorContext(ctx, "input records were deleted before they were processed", "task", id, "topic", tp.Topic,
			"partition", tp.Partition, "committed", at, "log_start", first, "resumed", next)
		r.metrics.dataLoss.WithLabelValues(tp.Topic).Add(float64(next - at))
		r.cfg.Listener.DataLoss(DataLossInfo{Task: id, Input: tp, Committed: at, LogStart: first, Resumed: next})
	}
	return next, nil
}

const (
	listEarliest int64 = -2
	listLatest   int64 = -1
)

// listOffsets asks for the first offsets of logs, or for the last stable ones.
func (r *Runtime) listOffsets(ctx context.Context, tps []store.TopicPartition, at int64) (map[store.TopicPartition]store.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	for _, tp := range tps {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = tp.Topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = int32(tp.Partition), at, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	offsets := make(map[store.TopicPartition]store.Offset, len(tps))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				if errors.Is(err, kerr.TopicAuthorizationFailed) {
					return nil, &AuthorizationError{Resource: "topic", Name: t.Topic, Operation: "DESCRIBE", Err: err}
				}
				return nil, fmt.Errorf("list offsets of %s-%d: %w", t.Topic, p.Partition, err)
			}
			offsets[store.TopicPartition{Topic: t.Topic, Partition: store.Partition(p.Partition)}] = store.Offset(p.Offset)
		}
	}
	for _, tp := range tps {
		if _, ok := offsets[tp]; !ok {
			return nil, fmt.Errorf("list offsets of %s: not in the answer", tp)
		}
	}
	return offsets, nil
}
