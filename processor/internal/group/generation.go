package group

import (
	"log/slog"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// leader places the tasks of one generation.
type leader struct {
	b       *Balancer
	members []joined
	info    kgo.BalanceInfo
}

var (
	_ kgo.GroupMemberBalancerOrError = (*leader)(nil)
	_ kgo.GroupMemberBalancerInfo    = (*leader)(nil)
)

// SetBalanceInfo keeps the generation for the log.
func (l *leader) SetBalanceInfo(info kgo.BalanceInfo) { l.info = info }

// Balance is what kgo would call if it did not know BalanceOrError.
func (l *leader) Balance(topics map[string]int32) kgo.IntoSyncAssignment {
	plan, err := l.BalanceOrError(topics)
	if err != nil {
		return nil
	}
	return plan
}

// BalanceOrError makes the plan. The only error is *SizeError: the broker could not store the group.
func (l *leader) BalanceOrError(topics map[string]int32) (kgo.IntoSyncAssignment, error) {
	b := l.b
	log := b.log.With("generation", l.info.Generation)
	l.checkTopics(log, topics)
	reported := router.Epoch(0)
	for i := range l.members {
		m := &l.members[i]
		reported = max(reported, m.member.Epoch)
		for _, p := range m.problems {
			log.Error("objection to a member", "member", m.id, "process", m.member.ProcessID,
				"endpoint", m.member.Endpoint, "problem", p.Kind.String(), "detail", p.Detail, "tasks_refused", p.Kind.Refuses())
		}
	}
	epoch := b.cfg.Observer.next(b.cfg.Now(), reported)
	opts, known := l.options(log)
	assignments, placed := decide(b.ix, l.members, epoch, b.cfg.Observer.known(), opts)
	if !known || placed.Retained > 0 {
		l.followUp(assignments)
	}
	_, bare := l.encode(assignments)
	budget := l.heldBudget(bare)
	for m := range assignments {
		assignments[m].HeldBudget = budget
	}
	plan, size := l.encode(assignments)
	for _, leaveOut := range leaveOuts {
		if size.Total() <= leaveOut.above {
			break
		}
		log.Error("group metadata too big", "left_out", leaveOut.what, "bytes", size.Total(), "bytes_limit", leaveOut.above)
		for m := range assignments {
			leaveOut.from(&assignments[m])
		}
		plan, size = l.encode(assignments)
	}
	b.cfg.Observer.met.bytes.Set(float64(size.Total()))
	log.Info("tasks placed", "epoch", epoch, "members", size.Members, "tasks", size.Tasks, "bytes", size.Total(),
		"bytes_limit", SizeLimit, "members_possible", size.MembersPossible(),
		"standbys_missing", placed.Missing, "tasks_waiting", placed.Waiting, "copies_retained", placed.Retained)
	switch {
	case size.Total() > SizeMax:
		err := &SizeError{Members: size.Members, Tasks: size.Tasks, Bytes: size.Total(), Max: SizeMax}
		log.Error("tasks not placed", "error", err)
		return nil, err
	case size.Total() > SizeLimit:
		log.Error("group metadata near the broker's limit: start fewer threads",
			"bytes", size.Total(), "bytes_limit", SizeLimit, "bytes_max", SizeMax)
	}
	b.cfg.Observer.plan(l.view(assignments, epoch))
	return plan, nil
}

// options are those of the placement, with the ends of the changelogs. It reports whether all is known that was asked for.
func (l *leader) options(log *slog.Logger) (Options, bool) {
	opts := l.b.cfg.Options
	opts.Ends = nil
	if l.b.ends == nil {
		return opts, true
	}
	ends, err := l.b.ends()
	if err != nil {
		log.Warn("ends of changelogs unknown, tasks stay where they are", "error", err, "known", len(ends))
	}
	opts.Ends = ends
	if opts.Ends == nil {
		opts.Ends = make(map[store.TaskID]int64)
	}
	return opts, err == nil
}

// followUp asks this thread for another rebalance later.
func (l *leader) followUp(assignments []Assignment) {
	for m := range l.members {
		if l.members[m].id == l.info.LeaderID {
			assignments[m].FollowUp = true
		}
	}
}

// checkTopics says when the cluster's topics are not what the shape was made of: partitions that grew since are read by
// nobody until the instances restart.
func (l *leader) checkTopics(log *slog.Logger, topics map[string]int32) {
	want := make(map[string]int32)
	for in := range l.b.ix.byPartition {
		want[in.Topic] = max(want[in.Topic], int32(in.Partition)+1)
	}
	for topic, n := range topics {
		if want[topic] != n {
			log.Error("partition count differs from the topology's", "topic", topic, "have", n, "want", want[topic])
		}
	}
}

// encode makes the plan as it goes to the broker, and measures it.
func (l *leader) encode(assignments []Assignment) (syncPlan, Size) {
	ix := l.b.ix
	size := Size{Members: len(l.members), Tasks: len(ix.shape.Tasks)}
	for t := range ix.shape.Tasks {
		size.perTask += taskBytes(len(ix.inputs(int32(t))))
	}
	plan := make(syncPlan, 0, len(l.members))
	for m := range l.members {
		wire := kmsg.NewConsumerMemberAssignment()
		partitions := ix.partitions(assignments[m].Active)
		for _, topic := range ix.topics { // sorted
			if ps, ok := partitions[topic]; ok {
				t := kmsg.NewConsumerMemberAssignmentTopic()
				t.Topic, t.Partitions = topic, ps
				wire.Topics = append(wire.Topics, t)
			}
		}
		wire.UserData = assignments[m].AppendTo(nil)
		sync := kmsg.NewSyncGroupRequestGroupAssignment()
		sync.MemberID = l.members[m].id
		sync.MemberAssignment = wire.AppendTo(nil)
		plan = append(plan, sync)
		size.Metadata += l.members[m].bytes
		size.Assignments += len(sync.MemberAssignment)
		size.Overhead += memberOverhead(sync.MemberID)
	}
	return plan, size
}

// heldBudget is what each process may spend on held state at its next join: half of what the limit leaves, shared, or
// the least.
func (l *leader) heldBudget(size Size) int {
	processes := make(map[string]bool)
	held := 0
	for m := range l.members {
		processes[l.members[m].member.ProcessID] = true
		for _, h := range l.members[m].member.Held {
			held += heldBytes(h)
		}
	}
	return min(max((SizeLimit-size.Total()+held)/2/max(len(processes), 1), minHeldBudget), maxHeldBudget)
}

// leaveOuts is what a group too big can do without, in this order. Held state is what comes first, but what members sent
// cannot be taken back: heldBudget has them send less from the next join on.
var leaveOuts = [...]struct {
	above int // bytes
	what  string
	from  func(*Assignment)
}{
	// Processes go on with the copies they have, but the map does not know them.
	{sizeCopies, "warm-ups and standbys", func(a *Assignment) {
		a.Copies, a.Standby, a.Warmup, a.Retained, a.Awaited = false, nil, nil, nil, nil
	}},
	// The next phase of a move may differ from this one.
	{sizePromises, "promises and words", func(a *Assignment) {
		a.Incoming = nil
		for i := range a.Problems {
			a.Problems[i].Detail = ""
		}
	}},
}

// view is the plan as a map.
func (l *leader) view(assignments []Assignment, epoch router.Epoch) View {
	v := View{Epoch: epoch, Members: make([]ViewMember, len(l.members))}
	for m := range l.members {
		v.Members[m] = ViewMember{ID: l.members[m].id, Member: l.members[m].member, Assignment: assignments[m].clone()}
	}
	return v
}

// syncPlan is a kgo.IntoSyncAssignment, sorted by member.
type syncPlan []kmsg.SyncGroupRequestGroupAssignment

// IntoSyncAssignment returns what the leader sends.
func (p syncPlan) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment { return slices.Clone(p) }
