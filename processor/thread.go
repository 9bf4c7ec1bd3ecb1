package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/store"
)

// thread is one stream thread: one member of the group, one producer, the tasks the group gives it, and one goroutine,
// which runs them in turn (upstream's StreamThread). All fields but those marked belong to that goroutine.
type thread struct {
	rt    *Runtime
	index int
	log   *slog.Logger

	// attempt counts the memberships of this thread; it is part of the transactional id, so that a late fence of a lost
	// membership hits nobody.
	attempt         int
	transactionalID string
	said            string // the member id that the listener was told of
	member          *member
	age             *age
	out             *output
	env             taskEnv

	owned map[store.TaskID]*ownedTask
	// running are the restored tasks, in order of their ids.
	running []*ownedTask
	inputs  map[string]map[int32]*ownedInput
	inGroup bool // a session of the group has begun

	restores sync.WaitGroup
	doneMu   sync.Mutex
	done     []restored // guarded by doneMu

	fetchErrs []fetchErr
	sizes     sizes // of fetched records
	waiting   int64 // bytes of fetched records that wait, as the metric knows them

	// refusal is what the group's leader says against this process, nil for nothing; refusedSince is since when.
	refusal      error
	refusedSince time.Time

	// dirtySince is when the oldest uncommitted work was done; zero: there is none.
	dirtySince time.Time
	// aborted is why the last commit failed, nil when it did not.
	aborted error
	// stop is the failure that the thread ends with once everything before it is committed.
	stop     *TaskError
	failures int

	cancel  context.CancelFunc // makes it end; set before it begins
	joined  chan struct{}      // closed when the group knows it
	ended   chan struct{}      // closed when it has ended
	failure error              // what its removal has failed with; set before ended is closed

	dismissed atomic.Bool            // it is being removed
	settled   atomic.Bool            // every owned task runs
	current   atomic.Pointer[member] // for other goroutines
	inside    atomic.Bool            // a member may be in the group
}

// ownedTask is a task that the group has given to the thread.
type ownedTask struct {
	task   *task
	plan   *TaskPlan
	have   int             // inputs assigned so far
	ctx    context.Context //nolint:containedctx // of the restore
	cancel context.CancelFunc
	// gone: revoked while it was restored; what the restore brings is let go.
	gone bool
	// serves: it answers queries. restored is when its restore asked the brokers.
	serves   bool
	restored time.Time
}

// ownedInput leads from a fetched partition to its task.
type ownedInput struct {
	owner *ownedTask
	in    *input
	ready bool // restored, fetching
}

// transactional reports whether commits are transactions.
func (t *thread) transactional() bool { return t.rt.cfg.Guarantee == ExactlyOnce }

// run keeps a member in the group until ctx ends: then it commits, leaves and returns nil. hard ends everything at once.
func (t *thread) run(ctx, hard context.Context) error {
	lost := 0
	for {
		began := t.rt.now()
		err := t.runMember(ctx, hard)
		switch {
		case ctx.Err() != nil && (errors.Is(err, errLost) || errors.Is(err, context.Canceled)):
			return nil // nothing more can be committed, and leaving is what was asked
		case !errors.Is(err, errLost):
			return err
		}
		if t.rt.now().Sub(began) > time.Minute {
			lost = 0
		}
		lost++
		t.attempt++
		t.rt.metrics.memberships.Inc()
		t.log.WarnContext(ctx, "membership lost, joining anew", "error", err, "attempt", t.attempt)
		if sleep(ctx, min(time.Duration(lost)*50*time.Millisecond, 2*time.Second)) != nil {
			return nil //nolint:nilerr // to end is what was asked
		}
	}
}

// wake makes the thread look around. Safe for concurrent use.
func (t *thread) wake() {
	if m := t.current.Load(); m != nil {
		m.wake()
	}
}

// runMember is one membership, from its clients to their end.
func (t *thread) runMember(ctx, hard context.Context) (err error) {
	if err := t.open(ctx, hard); err != nil {
		return err
	}
	work, cancel := context.WithCancel(hard)
	defer func() {
		cancel()
		err = errors.Join(err, t.close(hard))
	}()
	for ctx.Err() == nil {
		if err := t.turn(ctx, work); err != nil {
			return err
		}
	}
	t.log.InfoContext(hard, "stopping")
	return t.commit(hard)
}

// turn is one round of the loop: look at the group, poll, process, punctuate, commit.
func (t *thread) turn(ctx, work context.Context) error {
	if err := t.attend(work); err != nil {
		return err
	}
	if !t.uncommitted() {
		if err := t.env.cache.Resize(t.rt.share(max(0, t.rt.cfg.CacheMaxBytes))); err != nil {
			return err
		}
		t.member.letIn()
	}
	if t.supplied() {
		t.member.holdOff()
	} else {
		t.fetch(t.member.poll(ctx, t.patience(), t.pollLimit()))
	}
	if err := t.attend(work); err != nil {
		return err
	}
	if err := t.fillUp(ctx); err != nil {
		return err
	}
	if t.rt.paused.Load() {
		if t.uncommitted() {
			return t.commit(work)
		}
		return nil
	}
	err := t.work() //nolint:contextcheck // records outlive any context: see output.produce
	if err == nil {
		t.show()
		reason := t.due()
		if reason == notDue && t.member.rebalanceWaits() && t.uncommitted() {
			reason = dueForRebalance
		}
		if reason != notDue {
			t.rt.metrics.commitReasons.WithLabelValues(string(reason)).Inc()
			err = t.commit(work)
		}
	}
	if e, ok := errors.AsType[*TaskError](err); ok {
		return t.failed(work, e)
	}
	return err
}

// patience is how long a poll may wait.
func (t *thread) patience() time.Duration {
	const idle = 500 * time.Millisecond
	if t.rt.paused.Load() {
		return idle
	}
	wait := idle
	now := t.rt.now()
	if !t.dirtySince.IsZero() {
		wait = min(wait, t.dirtySince.Add(t.rt.cfg.CommitInterval).Sub(now))
	}
	for _, o := range t.running {
		tk := o.task
		if tk.idleSince.IsZero() && tk.waiting() {
			return 0
		}
		if next := tk.schedules.nextWall; next != math.MaxInt64 {
			wait = min(wait, time.UnixMilli(next).Sub(now))
		}
		if !tk.idleSince.IsZero() {
			wait = min(wait, tk.idleSince.Add(tk.idleLimit()).Sub(now))
		}
	}
	return max(wait, 0)
}

// work processes what is buffered, task by task, until nothing is left or a commit is due.
func (t *thread) work() error {
	const slice = 64
	for more := true; more; {
		more = false
		for _, o := range t.running {
			n, err := o.task.process(slice)
			t.rt.metrics.records.Add(float64(n))
			if n > 0 {
				t.touch()
			}
			if err != nil {
				return t.replayed(o, err)
			}
			more = more || n == slice
		}
		if more && (t.due() != notDue || t.member.rebalanceWaits()) {
			return nil
		}
	}
	now := t.rt.now().UnixMilli()
	for _, o := range t.running {
		if err := o.task.punctuate(now); err != nil {
			return err
		}
		if t.dirtySince.IsZero() && o.task.uncommitted() {
			t.touch()
		}
	}
	return nil
}

// touch notes that there is something to commit.
func (t *thread) touch() {
	if t.dirtySince.IsZero() {
		t.dirtySince = t.rt.now()
	}
}

func (t *thread) uncommitted() bool {
	if !t.dirtySince.IsZero() {
		return true
	}
	for _, o := range t.running {
		if o.task.uncommitted() {
			return true
		}
	}
	return false
}

// failed deals with the failure of a task. What its transaction has written must go, and with it the work of every task
// of the thread; then everything before the record that failed is processed and committed once more, so that the
// committed offset is that of the record (PL-13). A failure that moves is given three attempts.
func (t *thread) failed(ctx context.Context, e *TaskError) error {
	if errors.Is(e, errStopHere) {
		if err := t.commit(ctx); err != nil {
			return errors.Join(t.stop, err)
		}
		if t.aborted != nil {
			return nil //nolint:nilerr // the commit was undone: once more
		}
		return t.stop
	}
	t.rt.cfg.Listener.TaskError(e.Task, e)
	t.log.ErrorContext(ctx, "task failed", "task", e.Task, "error", e)
	if out, ok := errors.AsType[*outputError](e); ok {
		return t.settle(ctx, nil, out.err) // not the task's fault
	}
	t.failures++
	if e.Record == nil || t.failures > 3 {
		return e
	}
	t.stop = e
	if t.out.produced > 0 { // under any guarantee: the records are the producer's until it is closed
		if err := t.replaceProducer(ctx); err != nil {
			return errors.Join(e, err)
		}
	}
	if err := t.rewind(); err != nil {
		return errors.Join(e, err)
	}
	t.dirtySince = time.Time{}
	t.owned[e.Task].task.stopAt = e.Record
	return nil
}

// replayed passes on what processing returned.
func (t *thread) replayed(o *ownedTask, err error) error {
	if errors.Is(err, errStopHere) {
		return &TaskError{Task: o.task.id, Err: errStopHere}
	}
	return err
}

// fetch puts polled records where they belong. Those of partitions that are not ours at this moment are dropped: they
// were on their way when the partition was taken (RB-03).
func (t *thread) fetch(fetches kgo.Fetches) {
	for i := range fetches {
		for j := range fetches[i].Topics {
			topic := &fetches[i].Topics[j]
			byPartition := t.inputs[topic.Topic]
			for k := range topic.Partitions {
				p := &topic.Partitions[k]
				oi := byPartition[p.Partition]
				if p.Err != nil {
					t.fetchErrs = append(t.fetchErrs, fetchErr{topic.Topic, p.Partition, p.Err})
				}
				if oi == nil || !oi.ready {
					continue
				}
				oi.in.reaches(store.Offset(p.LastStableOffset))
				if len(p.Records) == 0 {
					continue
				}
				before := oi.in.bytes
				oi.in.push(p.Records)
				t.sizes.add(len(p.Records), oi.in.bytes-before)
				if oi.in.waiting() >= t.rt.cfg.BufferedRecordsPerPartition+t.rt.cfg.MaxPollRecords {
					t.pause(oi.in)
				}
			}
		}
	}
}

// supplied reports whether what waits is enough for a turn: a commit cut the last one short. Polling on would only fill
// the queues until partitions are paused, and the client throws away what it holds of a paused partition and fetches it
// again: on a slow machine, more with every commit.
func (t *thread) supplied() bool {
	n, bytes := t.buffered()
	return (n >= t.rt.cfg.MaxPollRecords || bytes >= t.inputShare()) && !t.rt.paused.Load() && !t.hungry()
}

// fillUp polls on without waiting while a task with several inputs lacks records of one that the client may have: the
// choice by timestamp needs them all. It also resumes what has room again.
func (t *thread) fillUp(ctx context.Context) error {
	for range 8 {
		if !t.hungry() || t.member.client.BufferedFetchRecords() == 0 {
			break
		}
		t.holdBack()
		t.fetch(t.member.poll(ctx, 0, t.pollLimit()))
	}
	t.holdBack()
	t.resume()
	return t.fetchProblems(ctx)
}

// hungry reports whether a task has records of one input and none of another.
func (t *thread) hungry() bool {
	for _, o := range t.running {
		if len(o.task.inputs) < 2 {
			continue
		}
		some, none := false, false
		for _, in := range o.task.inputs {
			if in.waiting() > 0 {
				some = true
			} else {
				none = true
			}
		}
		if some && none {
			return true
		}
	}
	return false
}

// seek makes the client fetch each input of tasks from its next offset. It drops what it has fetched and begins anew, for all
// partitions: once for all tasks.
func (t *thread) seek(owned ...*ownedTask) {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	for _, o := range owned {
		for _, in := range o.task.inputs {
			if offsets[in.tp.Topic] == nil {
				offsets[in.tp.Topic] = make(map[int32]kgo.EpochOffset)
			}
			offsets[in.tp.Topic][int32(in.tp.Partition)] = kgo.EpochOffset{Epoch: -1, Offset: int64(in.next)}
		}
	}
	t.member.client.SetOffsets(offsets)
}

// memberInfo is what the thread tells the group's leader. It is called by the client's goroutine.
func (t *thread) memberInfo(transactionalID string) func() group.Member {
	return func() group.Member {
		m := group.Member{
			ProcessID: t.rt.cfg.ProcessID, Incarnation: t.rt.cfg.Incarnation, Endpoint: t.rt.cfg.Endpoint, Rack: t.rt.cfg.Rack,
			TransactionalID: transactionalID, Thread: t.index, Capacity: 1, Fencing: t.rt.fences.list(), Draining: t.rt.Draining(),
		}
		if t.index == 0 {
			m.Tags, m.Host = t.rt.cfg.ClientTags, t.rt.cfg.Host
			m.Standby, m.Warmup = t.rt.standbys.report()
			m.Held = t.rt.held()
		}
		return m
	}
}

func (t *thread) newTransactionalID() string {
	if !t.transactional() {
		return ""
	}
	return fmt.Sprintf("%s-%s-%s-%d-%d", t.rt.cfg.ApplicationID, t.rt.cfg.ProcessID, t.rt.cfg.Incarnation, t.index, t.attempt)
}
