package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// BalancerConfig configures the [Balancer] of one stream thread. All but Logger and Now are needed.
type BalancerConfig struct {
	// Shape is what there is to place. All instances must have the same; the leader gives no tasks to others.
	Shape Shape
	// Member says what to tell the leader. It is called at each join, by the client's group goroutine: it must not
	// block. Its second block is overwritten.
	Member func() Member
	// Options of the placements that this member makes when it leads. Ends in it is overwritten.
	Options Options
	// Ends finds how far the changelogs of stateful tasks go: for each the sum of the last stable offsets (of a source
	// topic that is read as a changelog: the group's committed offset), to compare with Held.Offset. The leader calls it
	// within a placement, by the client's group goroutine; ctx ends after two seconds. What is left out of the answer is
	// unknown, and after an error nothing is known: see Options.Ends. nil: placements take no notice of lags.
	Ends func(ctx context.Context, tasks []store.TaskID) (map[store.TaskID]int64, error)
	// OnAssignment hears of each generation, by the client's group goroutine, before the client's callbacks for what is
	// revoked and assigned: it must not block. It is called also when nothing changed but the epoch. The assignment
	// belongs to it.
	OnAssignment func(Assignment)
	// Observer of the process: it makes epochs and is told of each.
	Observer *Observer
	// Now is the clock for epochs. Default time.Now.
	Now func() time.Time
	// Logger, nil: discard.
	Logger *slog.Logger
}

// Balancer is a kgo.GroupBalancer for stream threads, one for each group client. It speaks the classic cooperative
// protocol: partitions change hands only after their owner has let go of them, all inputs of a task together.
//
// It follows upstream's StreamsPartitionAssignor in what it carries; the formats differ.
type Balancer struct {
	cfg  BalancerConfig
	ix   *index
	log  *slog.Logger
	ends func() (map[store.TaskID]int64, error) // nil: placements take no notice of lags

	mu   sync.Mutex
	last Assignment // the newest one parsed
	told bool       // there was one
}

var _ kgo.GroupBalancer = (*Balancer)(nil)

// NewBalancer checks the shape. ctx is that of the membership: its end ends a call of cfg.Ends.
func NewBalancer(ctx context.Context, cfg BalancerConfig) (*Balancer, error) {
	if cfg.Member == nil || cfg.OnAssignment == nil || cfg.Observer == nil {
		return nil, errors.New("group: balancer without member, assignment or observer")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	ix := newIndex(cfg.Shape)
	if err := ix.check(); err != nil {
		return nil, fmt.Errorf("group: shape: %w", err)
	}
	b := &Balancer{cfg: cfg, ix: ix, log: cfg.Logger}
	if cfg.Ends != nil {
		stateful := ix.stateful()
		b.ends = func() (map[store.TaskID]int64, error) {
			ctx, cancel := context.WithTimeout(ctx, endsTimeout)
			defer cancel()
			return cfg.Ends(ctx, stateful)
		}
	}
	return b, nil
}

// endsTimeout bounds what a placement waits for the ends of changelogs; all members wait with it.
const endsTimeout = 2 * time.Second

// ProtocolName is [Protocol].
func (b *Balancer) ProtocolName() string { return Protocol }

// IsCooperative is true.
func (b *Balancer) IsCooperative() bool { return true }

// reportCopies completes what a member reports that its process follows: once the process was told, that is what counts;
// what is let go of and kept follows from then on, and gets a role with the next placement.
func (a *Assignment) reportCopies(m *Member) {
	if a.Copies {
		m.Standby, m.Warmup, m.Retained = slices.Clone(a.Standby), slices.Clone(a.Warmup), slices.Clone(a.Retained)
	}
	for _, rel := range a.Releasing {
		if rel.Keep {
			m.Retained = append(slices.Clip(m.Retained), rel.Task)
		}
	}
}

// JoinGroupMetadata says what this thread is, has and was promised. What changes by itself, such as offsets, makes each
// join a rebalance on the broker; kgo joins only when there is one, or ought to be.
func (b *Balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	m := b.cfg.Member()
	b.mu.Lock()
	m.Last, m.Incoming = b.last.Epoch, b.last.Incoming
	b.last.reportCopies(&m)
	awaited := b.last.Awaited
	budget := firstHeldBudget
	if b.told {
		budget = b.last.HeldBudget
	}
	b.mu.Unlock()
	m.Epoch = max(b.cfg.Observer.Highest(), m.Last)
	m.ShapeHash = b.ix.hash
	var left int
	m.Held, left = trimHeld(m.Held, budget, awaited)
	if m.HeldPartial = left > 0; m.HeldPartial {
		b.log.Warn("held state left out of the join", "copies", left, "budget_bytes", budget)
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = topics
	meta.Generation = generation
	meta.UserData = m.AppendTo(nil)
	if m.Rack != "" {
		meta.Rack = &m.Rack
	}
	names := make([]string, 0, len(current))
	for topic := range current {
		names = append(names, topic)
	}
	slices.Sort(names)
	for _, topic := range names {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, current[topic]
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
	}
	return meta.AppendTo(nil)
}

// ParseSyncAssignment takes the leader's decision. What cannot be read does not fail the rebalance: of unreadable user
// data the tasks are derived from the partitions, and the map stays at the last one that could be read.
func (b *Balancer) ParseSyncAssignment(data []byte) (map[string][]int32, error) {
	a, partitions := b.parse(data)
	b.mu.Lock()
	problems := b.last.Problems
	b.last, b.told = a.clone(), true
	b.mu.Unlock()
	if !slices.Equal(problems, a.Problems) {
		for _, p := range a.Problems {
			b.log.Error("the group's leader objects", "problem", p.Kind.String(), "detail", p.Detail, "tasks_refused", p.Kind.Refuses())
		}
	}
	if a.Epoch > 0 {
		b.cfg.Observer.Expect(a.Epoch)
	}
	b.cfg.OnAssignment(a)
	return partitions, nil
}

// MemberBalancer makes this thread the leader of one generation.
func (b *Balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	topics := make(map[string]struct{}, len(b.ix.topics))
	for _, t := range b.ix.topics {
		topics[t] = struct{}{}
	}
	return &leader{b: b, members: readMembers(members, b.ix)}, topics, nil
}

func (b *Balancer) parse(data []byte) (Assignment, map[string][]int32) {
	var wire kmsg.ConsumerMemberAssignment
	if len(data) > 0 { // a leader that left this member out sends nothing
		if err := wire.ReadFrom(data); err != nil {
			b.log.Error("assignment unreadable", "error", err)
			wire = kmsg.NewConsumerMemberAssignment()
		}
	}
	given := make(map[string][]int32, len(wire.Topics))
	for _, t := range wire.Topics {
		given[t.Topic] = append(given[t.Topic], t.Partitions...)
	}
	whole := b.ix.whole(given)
	a, err := DecodeAssignment(wire.UserData)
	if err != nil {
		if len(wire.UserData) > 0 || len(given) > 0 {
			b.log.Warn("assignment's user data unreadable: tasks derived from partitions", "error", err)
		}
		a = Assignment{Active: whole, HeldBudget: firstHeldBudget}
	}
	// Only tasks whose inputs all came are runnable; without disagreement this drops nothing.
	named := len(a.Active)
	a.Active = slices.DeleteFunc(a.Active, func(id store.TaskID) bool {
		_, ok := slices.BinarySearchFunc(whole, id, store.TaskID.Compare)
		return !ok
	})
	if len(a.Active) != named || len(a.Active) != len(whole) {
		b.log.Warn("tasks and partitions of the assignment disagree", "tasks", named, "whole", len(whole), "kept", len(a.Active))
	}
	return a, b.ix.partitions(a.Active)
}
