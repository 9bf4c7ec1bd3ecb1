package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/processor/internal/kafka"
	"github.com/statemesh/statemesh/store"
)

// kafkaThread are the settings of the thread's clients.
func (t *thread) kafkaThread() kafka.Thread {
	cfg := &t.rt.cfg
	return kafka.Thread{
		Group: cfg.ApplicationID, Topics: t.rt.inputTopics, TransactionalID: t.transactionalID,
		ManualPartition: t.rt.manualPartition,
		SessionTimeout:  cfg.SessionTimeout, RebalanceTimeout: cfg.RebalanceTimeout, HeartbeatInterval: cfg.HeartbeatInterval,
		TransactionTimeout: cfg.TransactionTimeout,
	}
}

// open makes the clients of a new membership, which live as long as hard. ctx ends the wait for brokers.
func (t *thread) open(ctx, hard context.Context) error {
	t.transactionalID = t.newTransactionalID()
	t.owned, t.running = make(map[store.TaskID]*ownedTask), nil
	t.inputs = make(map[string]map[int32]*ownedInput)
	t.inGroup, t.dirtySince, t.aborted = false, time.Time{}, nil
	m := newMember(hard)
	t.member = m
	t.current.Store(m)
	t.age = newAge(t.rt.now, t.rt.cfg.SessionTimeout, func(ctx context.Context) error {
		id, same := m.identity()
		if !same {
			return errNotMember
		}
		return t.rt.coord.heartbeat(ctx, id)
	})
	m.onLost = t.age.becomeLost
	m.onRevoked = func(partitions map[string][]int32) {
		for topic, ps := range partitions {
			for _, p := range ps {
				if id, ok := t.rt.taskOf(topic, p); ok {
					t.rt.tasks.hide(id, t.index)
				}
			}
		}
	}
	// The producer first: its id is initialised before the member is, and whoever held it before is barred.
	if err := t.startProducer(ctx, hard); err != nil {
		return err
	}
	balancer, err := group.NewBalancer(hard, group.BalancerConfig{
		Shape: t.rt.shape, Member: t.joining(m), Observer: t.rt.observer, Now: t.rt.now, Logger: t.log,
		Options: t.rt.placement(), Ends: t.rt.changelogEnds,
		OnAssignment: func(a group.Assignment) {
			if m.joined() {
				t.rt.drains.heard(&a)
			}
			m.note(memberEvent{kind: eventAssignment, assignment: a})
		},
	})
	if err != nil {
		return errors.Join(err, t.closeOutput(hard))
	}
	cfg := t.kafkaThread()
	cfg.Balancer = balancer
	opts, err := t.rt.cfg.Kafka.Member(cfg)
	if err == nil {
		opts = append(append(opts, m.options()...), kgo.WithContext(hard))
		t.inside.Store(true)
		m.client, err = kgo.NewClient(opts...)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("group client: %w", err), t.closeOutput(hard))
	}
	return nil
}

// joining is what the thread says when it joins, and takes note of that.
func (t *thread) joining(m *member) func() group.Member {
	info := t.memberInfo(t.transactionalID)
	return func() group.Member {
		m.joinsNow()
		t.rt.joining()
		said := info()
		m.says(said.Draining)
		return said
	}
}

// startProducer makes a producer and initialises its id, again while brokers are away, for up to Config.TaskTimeout.
func (t *thread) startProducer(ctx, hard context.Context) error {
	began := t.rt.now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		out, err := t.newProducer(hard)
		if err == nil {
			t.out, t.env.out = out, out
			return nil
		}
		if refused := t.refused(err); refused != nil {
			return refused
		}
		if t.rt.now().Sub(began) > t.rt.cfg.TaskTimeout {
			return fmt.Errorf("producer %s: not initialised in %s: %w", t.transactionalID, t.rt.cfg.TaskTimeout, err)
		}
		t.log.WarnContext(ctx, "producer not initialised", "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// newProducer makes a producer; a transactional one is initialised.
func (t *thread) newProducer(ctx context.Context) (*output, error) {
	opts, err := t.rt.cfg.Kafka.Producer(t.kafkaThread())
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append(opts, kgo.WithContext(ctx))...)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	if t.transactional() {
		if _, _, err := client.ProducerID(ctx); err != nil {
			client.Close()
			return nil, err
		}
	}
	out := newOutput(client, t.transactional(), t.rt.chosenPartitions)
	out.client = client
	return out, nil
}

// closeOutput ends the producer. A transaction that is open is aborted if the broker is there to hear it; else it ends
// with its timeout, or with the fence of the next owner.
func (t *thread) closeOutput(ctx context.Context) error {
	if t.out == nil {
		return nil
	}
	if t.out.begun && ctx.Err() == nil {
		abort, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if t.out.client.AbortBufferedRecords(abort) == nil {
			if err := t.out.client.EndTransaction(abort, kgo.TryAbort); err != nil {
				t.log.WarnContext(ctx, "transaction not aborted", "error", err)
			}
		}
	}
	t.out.close()
	t.out = nil
	return nil
}

// close ends a membership: tasks closed at their last commit, group left, clients closed. It is bounded in time.
func (t *thread) close(ctx context.Context) error {
	t.age.becomeLost()
	var errs []error
	for _, o := range t.owned {
		o.cancel()
	}
	for _, o := range t.running {
		errs = append(errs, o.task.close())
		t.rt.tasks.release(o.task.id)
	}
	t.restores.Wait()
	for _, r := range t.takeDone() {
		t.rt.tasks.release(r.owner.task.id)
	}
	t.owned, t.running, t.inputs = nil, nil, nil
	t.rt.metrics.inputBytes.Sub(float64(t.waiting))
	t.waiting = 0
	errs = append(errs, t.closeOutput(ctx))
	t.settled.Store(false)
	t.rt.reviewState()
	t.leave(ctx)
	return errors.Join(errs...)
}

// leave leaves the group and closes its client.
func (t *thread) leave(ctx context.Context) {
	leave, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t.member.client.AllowRebalance()
	switch err := t.member.client.LeaveGroupContext(leave); {
	case err == nil, errors.Is(err, kerr.UnknownMemberID): // the latter is out already
		t.inside.Store(false)
	default:
		t.log.WarnContext(ctx, "group not left, the session times out", "error", err)
	}
	t.member.client.CloseAllowingRebalance()
	// Closing drains what is buffered, which counts as a poll and may block, for good, the client's own second leaving.
	t.member.client.AllowRebalance()
}

// attend acts on what the group and the restores have brought since the last look.
func (t *thread) attend(ctx context.Context) error {
	events, lost := t.member.take()
	if lost {
		return t.whyLost(ctx)
	}
	for _, e := range events {
		switch e.kind {
		case eventAssignment:
			t.rt.fences.add(e.assignment.Fence)
			t.rt.standbys.heed(t.index, e.assignment)
			if err := t.heed(e.assignment); err != nil {
				return err
			}
			if e.assignment.Again && !t.member.joinedSince(&e) {
				t.member.client.ForceRebalance()
			}
		case eventAssigned:
			t.assign(ctx, e.partitions)
		case eventRevoked:
			if err := t.revoke(e.partitions); err != nil {
				return err
			}
		case eventSession:
			t.inGroup = true
			t.hasJoined()
			t.sayMember()
		case eventRejoin:
			if !t.member.joinedSince(&e) {
				t.member.client.ForceRebalance()
			}
		case eventNudge:
			if !t.member.isJoining() && !t.member.joinedSince(&e) {
				t.member.client.ForceRebalance()
			}
		}
	}
	if err := t.refusalLasts(); err != nil {
		return err
	}
	if err := t.takeRestored(ctx); err != nil {
		return err
	}
	settled := t.inGroup && len(t.running) == len(t.owned)
	if t.settled.Swap(settled) != settled || len(events) > 0 {
		t.rt.reviewState()
	}
	return nil
}

// hasJoined tells who waits that the group knows the thread, once.
func (t *thread) hasJoined() {
	select {
	case <-t.joined:
	default:
		close(t.joined)
	}
}

// heed ends the thread when the group's leader refuses it. Another process with the same id may be the former incarnation
// of this one, killed in a join that it is still part of: it goes with its session, which makes another assignment. One
// that is still there after that lives.
func (t *thread) heed(a group.Assignment) error {
	problem, refused := a.Refused()
	if !refused {
		t.refusal, t.refusedSince = nil, time.Time{}
		return nil
	}
	t.refusal = &RefusedError{Group: t.rt.cfg.ApplicationID, Problem: problem.Kind.String(), Detail: problem.Detail}
	if problem.Kind != group.DuplicateProcess {
		return t.refusal
	}
	if t.refusedSince.IsZero() {
		t.refusedSince = t.rt.now()
	}
	return nil
}

// refusalLasts returns the refusal that has outlived any former incarnation.
func (t *thread) refusalLasts() error {
	if t.refusal == nil || t.rt.now().Sub(t.refusedSince) <= t.rt.cfg.SessionTimeout+t.rt.cfg.RebalanceTimeout {
		return nil
	}
	return t.refusal
}

// whyLost ends a membership that the client has given up. The client puts the reason into the next poll: it may be one
// that no new membership cures.
func (t *thread) whyLost(ctx context.Context) error {
	t.fetch(t.member.poll(ctx, 0, t.rt.cfg.MaxPollRecords))
	if err := t.fetchProblems(ctx); is[*AuthorizationError](err) {
		return err
	}
	return errLost
}

// assign begins each task of which all inputs have come.
func (t *thread) assign(ctx context.Context, partitions map[string][]int32) {
	for _, topic := range slices.Sorted(maps.Keys(partitions)) {
		for _, p := range partitions[topic] {
			id, ok := t.rt.taskOf(topic, p)
			if !ok {
				t.log.ErrorContext(ctx, "assigned a partition of no task", "topic", topic, "partition", p)
				continue
			}
			o := t.owned[id]
			if o == nil {
				plan := t.rt.taskPlans[id]
				taskCtx, cancel := context.WithCancel(ctx)
				o = &ownedTask{task: newTask(id, t.rt.built.subs[id.Subtopology], &t.env, plan.Inputs), plan: plan, cancel: cancel, ctx: taskCtx}
				t.owned[id] = o
			}
			o.have++
			if o.have == len(o.plan.Inputs) {
				t.log.InfoContext(ctx, "task assigned", "task", id)
				t.startRestore(o)
			}
		}
	}
}

// revoke ends the tasks of the partitions. Their last commit is behind them: rebalances run only then.
func (t *thread) revoke(partitions map[string][]int32) error {
	var errs []error
	for topic, ps := range partitions {
		for _, p := range ps {
			id, ok := t.rt.taskOf(topic, p)
			o := t.owned[id]
			if !ok || o == nil {
				continue
			}
			errs = append(errs, t.end(o))
		}
	}
	return errors.Join(errs...)
}

// end closes a task. Its state stays with the instance, for another thread or as a held copy.
func (t *thread) end(o *ownedTask) error {
	id := o.task.id
	o.cancel()
	o.gone = true
	delete(t.owned, id)
	for _, in := range o.task.inputs {
		if byPartition := t.inputs[in.tp.Topic]; byPartition != nil && byPartition[int32(in.tp.Partition)] != nil &&
			byPartition[int32(in.tp.Partition)].owner == o {
			delete(byPartition, int32(in.tp.Partition))
		}
	}
	i := slices.Index(t.running, o)
	if i < 0 {
		return nil // its restore, which was told to stop, lets go
	}
	t.running = slices.Delete(t.running, i, i+1)
	err := o.task.close()
	t.rt.tasks.release(id)
	t.log.Info("task closed", "task", id)
	return err
}

// takeRestored starts the tasks whose restore is done.
func (t *thread) takeRestored(ctx context.Context) error {
	var begun []*ownedTask
	for _, r := range t.takeDone() {
		o := r.owner
		id := o.task.id
		if o.gone {
			t.rt.tasks.release(id)
			continue
		}
		if r.err != nil {
			t.rt.tasks.release(id)
			return &TaskError{Task: id, Err: r.err}
		}
		o.restored = r.began
		t.running = append(t.running, o)
		if err := o.task.begin(r.state, r.result, r.start); err != nil {
			return err
		}
		for _, in := range o.task.inputs {
			in.reaches(r.ends[in.tp])
		}
		begun = append(begun, o)
		t.serve(o) // before the others begin: who asks waits for this one alone
		t.log.InfoContext(ctx, "task running", "task", id, "sequence", o.task.sequence)
	}
	if len(begun) > 0 {
		slices.SortFunc(t.running, func(a, b *ownedTask) int { return a.task.id.Compare(b.task.id) })
		t.fetchFor(begun)
	}
	return nil
}

// fetchFor makes the client fetch the inputs of tasks that have begun: for all at once, since it begins anew with all partitions each time.
func (t *thread) fetchFor(begun []*ownedTask) {
	t.seek(begun...)
	resume := make(map[string][]int32)
	for _, o := range begun {
		for _, in := range o.task.inputs {
			topic, partition := in.tp.Topic, int32(in.tp.Partition)
			if t.inputs[topic] == nil {
				t.inputs[topic] = make(map[int32]*ownedInput)
			}
			t.inputs[topic][partition] = &ownedInput{owner: o, in: in, ready: true}
			resume[topic] = append(resume[topic], partition)
		}
	}
	t.member.client.ResumeFetchPartitions(resume)
}
