package processor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/group"
)

// member is one membership of the group. The client's callbacks only note what they are told; the stream thread takes
// the notes between two polls and acts on them. The callbacks run while no transaction is open, since the thread lets
// rebalances in only then: what is revoked has its last commit behind it.
type member struct {
	client *kgo.Client
	// onRevoked and onLost run in the client's callbacks: from then on another member may own what is named.
	onRevoked func(partitions map[string][]int32)
	onLost    func()
	// ended is a context that has ended.
	ended context.Context //nolint:containedctx // a constant

	mu sync.Mutex
	// id is the member id of the first session, "" before it: the tasks are held under it and no other.
	id     string
	events []memberEvent
	lost   bool
	cancel context.CancelFunc // of the poll that waits
	// waiting says that a rebalance waits for the thread to let it in.
	waiting bool
	// poked says that somebody wants the thread to look around before it waits.
	poked bool
	// joins counts those that the client has begun.
	joins int
	// joining: the client joins the group, and has not been told its tasks yet. said: it has told the leader that the instance
	// drains.
	joining, said bool
}

type memberEventKind uint8

const (
	// eventAssignment carries what the leader said, before the partitions of it are revoked and assigned.
	eventAssignment memberEventKind = iota
	eventAssigned
	eventRevoked
	eventSession // a session of the group began: the assignment is complete
	eventRejoin  // the instance wants another placement
	eventNudge   // somebody else does, or the group has changed
)

type memberEvent struct {
	kind       memberEventKind
	partitions map[string][]int32
	assignment group.Assignment
	// joins is how many joins had begun when it was noted.
	joins int
}

func newMember(ctx context.Context) *member {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return &member{ended: ended}
}

func (m *member) note(e memberEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.joins = m.joins
	m.events = append(m.events, e)
	m.wakeLocked()
}

// wake ends the poll that waits, or lets the next one not wait.
func (m *member) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wakeLocked()
}

func (m *member) wakeLocked() {
	m.poked = true
	if m.cancel != nil {
		m.cancel()
	}
}

// take returns what was noted since the last call, and whether the membership is lost.
func (m *member) take() ([]memberEvent, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events, m.lost
}

func (m *member) isLost() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost
}

// rebalanceWaits reports whether a rebalance waits for the thread.
func (m *member) rebalanceWaits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting
}

// options are the callbacks of the group client.
func (m *member) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, added map[string][]int32) {
			// Fetching starts when the task is restored; the pause survives rebalances.
			cl.PauseFetchPartitions(added)
			if id, _ := cl.GroupMetadata(); !m.begin(id) {
				m.becomeLost()
				return
			}
			if len(added) > 0 {
				m.note(memberEvent{kind: eventAssigned, partitions: clonePartitions(added)})
			}
			m.note(memberEvent{kind: eventSession})
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
			if len(revoked) > 0 {
				m.onRevoked(revoked)
				m.note(memberEvent{kind: eventRevoked, partitions: clonePartitions(revoked)})
			}
		}),
		kgo.OnPartitionsLost(func(context.Context, *kgo.Client, map[string][]int32) {
			m.becomeLost()
		}),
		kgo.OnPartitionsCallbackBlocked(func(context.Context, *kgo.Client) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.waiting = true
			m.wakeLocked()
		}),
	}
}

// begin notes that a session began under a member id. It reports whether it is that of the sessions before.
func (m *member) begin(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.id == "" {
		m.id = id
	}
	return m.id == id
}

// joinsNow notes that the client joins the group. What it says is read afterwards: all that was noted before is in it.
func (m *member) joinsNow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining = true
	m.joins++
}

// says notes what the client tells the leader in the join.
func (m *member) says(draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = draining
}

// joinedSince reports whether the client has begun a join since the event was noted. It needs no other then: every join makes all
// members of the group join, and costs each of them a generation.
func (m *member) joinedSince(e *memberEvent) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joins > e.joins
}

// joined notes that the client was told its tasks. It reports what it had said.
func (m *member) joined() (draining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joining = false
	return m.said
}

// isJoining reports whether the client waits for its tasks: what changes in the group meanwhile it hears with them.
func (m *member) isJoining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joining
}

// identity is under which name the group knows the member. It is false when that is not the name under which the tasks
// are held: a client that is told in a join that it is unknown joins as another member at once, and goes on with its
// partitions as if nothing had happened. The coordinator accepts all that comes under the new name, while the tasks may
// have had other owners since.
func (m *member) identity() (identity, bool) {
	id, generation := m.client.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	return identity{member: id, generation: generation}, m.id == "" || m.id == id
}

// becomeLost: the group has given the member up. It is final; the thread makes a new member.
func (m *member) becomeLost() {
	m.onLost()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = true
	m.wakeLocked()
}

// letIn lets a waiting rebalance run. Nothing uncommitted may exist.
func (m *member) letIn() {
	m.mu.Lock()
	m.waiting = false
	m.mu.Unlock()
	m.client.AllowRebalance()
}

// poll waits up to wait for records, takes up to limit of them, and leaves rebalances blocked.
func (m *member) poll(ctx context.Context, wait time.Duration, limit int) kgo.Fetches {
	var fetches kgo.Fetches
	if wait <= 0 {
		fetches = m.client.PollRecords(nil, limit) //nolint:staticcheck,contextcheck // the client's way of saying: do not wait
	} else {
		fetches = m.pollWaiting(ctx, wait, limit)
	}
	if len(fetches) == 0 {
		m.holdOff() // an empty poll counts for nothing
	}
	return fetches
}

// holdOff blocks rebalances, as a poll does, and takes no records: the poll's context has ended.
func (m *member) holdOff() { m.client.PollRecords(m.ended, 1) }

func (m *member) pollWaiting(ctx context.Context, wait time.Duration, limit int) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m.mu.Lock()
	if m.poked {
		m.poked = false
		m.mu.Unlock()
		return m.client.PollRecords(nil, limit) //nolint:staticcheck,contextcheck // as above
	}
	m.cancel = cancel
	m.mu.Unlock()
	fetches := m.client.PollRecords(ctx, limit)
	m.mu.Lock()
	m.cancel, m.poked = nil, false
	m.mu.Unlock()
	if broughtNothing(fetches) {
		m.nudge()
	}
	return fetches
}

// broughtNothing reports that a poll ended without a record. One that ended with its context is not empty: the client says so in a
// fetch.
func broughtNothing(fetches kgo.Fetches) bool { return fetches.NumRecords() == 0 }

// nudge makes the client look whether it should fetch. It may have missed to: a fetch loop that starts while offsets are set twice
// takes the wake-up of the second session for its own, finds its own session over, and ends (franz-go v1.22.3, source.loopFetch).
// Nothing wakes it then, and the member would hold its partitions and read none of them.
func (m *member) nudge() { m.client.ResumeFetchPartitions(nil) }

func clonePartitions(m map[string][]int32) map[string][]int32 {
	c := make(map[string][]int32, len(m))
	for t, ps := range m {
		c[t] = slices.Clone(ps)
	}
	return c
}
