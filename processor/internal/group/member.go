package group

import (
	"slices"

	"github.com/statemesh/statemesh/processor/internal/assignor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Protocol is the name under which members agree on this package's balancer.
const Protocol = "statemesh-v1"

type (
	// Shape is what there is to place.
	Shape = assignor.Shape
	// TaskShape is one task.
	TaskShape = assignor.TaskShape
	// Held is one copy of a task's state in a process.
	Held = assignor.Held
	// Options of a placement.
	Options = assignor.Options
)

// The states of a copy.
const (
	HeldUnknown = assignor.HeldUnknown
	HeldOffset  = assignor.HeldOffset
	HeldActive  = assignor.HeldActive
)

// Member is what a stream thread tells the leader at each join. The application fills in the first block; the
// [Balancer] completes the second and overwrites the third.
type Member struct {
	// ProcessID is stable over restarts with the same state directory; members of one process share their state.
	ProcessID string
	// Incarnation is one start of the process.
	Incarnation string
	// Endpoint is "host:port" as peers and clients dial it; empty: it answers no peer.
	Endpoint string
	// Rack and Tags say where the process is (upstream's client.rack and client.tag.*); of Tags up to five, those that the
	// group's Options name are enough. One thread of a process reporting Tags and Host is enough.
	Rack string
	Tags map[string]string
	// Host says which process this is on its machine, for a survivor there that wants to prove it dead. Zero: unknown.
	Host HostID
	// TransactionalID that the thread writes with; empty under at_least_once.
	TransactionalID string
	// Thread numbers the threads of the process from 0.
	Thread int
	// Capacity is the share of this thread relative to others; 0 counts as 1. A process has the sum of its threads.
	Capacity int
	// Held is what the process has on disk. Only one thread (by habit 0) needs to report it. What does not fit the
	// group's budget is left out, the copies that are furthest behind first.
	Held []Held
	// Fencing are the transactional ids of earlier assignments that are not fenced yet.
	Fencing []string

	// Standby, Warmup and Retained are the tasks that the process follows; the application needs to fill in Standby only,
	// on one thread, for the time before the thread's first assignment. After that the assignment is what counts.
	Standby, Warmup, Retained []store.TaskID

	// Draining says that the process gives everything away: it gets nothing new, and what it has goes as soon as others are
	// ready for it. One thread of a process saying so is enough. A leader that knows what that means answers with Drains.
	Draining bool

	// HeldPartial says that copies did not fit into Held.
	HeldPartial bool
	// Epoch is the highest the process has seen.
	Epoch router.Epoch
	// Last is the epoch of the thread's last assignment, 0 before the first, and Incoming what it promised.
	Last     router.Epoch
	Incoming []store.TaskID
	// ShapeHash is that of the process's [Shape].
	ShapeHash uint64
	// Version of the user data that a member was read from; 0 in one that was not read.
	Version int
}

// follows reports whether the member's version keeps copies that follow the changelogs.
func (m *Member) follows() bool { return m.Version >= versionCopies }

// HostID is a process as its machine knows it. Two processes are on one machine, and see each other's PIDs, when BootID
// and PIDNamespace are equal and not empty.
type HostID struct {
	// BootID is one start of the machine's kernel, best as a UUID.
	BootID string
	// PIDNamespace is that of the process, by habit the inode number.
	PIDNamespace string
	PID          int
	// StartTime of the process in the kernel's own unit: it tells a process from a later one with its PID.
	StartTime uint64
}

// Assignment is what the leader tells one member.
type Assignment struct {
	// Epoch of the placement; equal for all members of a generation. 0: the leader's data could not be read, Active was
	// derived from the partitions.
	Epoch router.Epoch
	// Active are the tasks the member runs from now on.
	Active []store.TaskID
	// Copies says that Standby, Warmup and Retained are all that the process is to follow, beside what its threads keep of what they
	// let go of (Release.Keep). One thread of a process is told, that with the lowest number. False: of copies nothing is
	// said, and the process goes on with those it has, or was told of at another thread under this epoch.
	Copies bool
	// Standby, Warmup and Retained are tasks whose changelogs the process follows, without running them: the replicas that
	// were asked for; extra ones that are to become active here; and extra ones that have caught up and stay until those
	// that replace them have. In the map all are standbys. A task on its way here (Incoming) stays among them until it comes.
	Standby, Warmup, Retained []store.TaskID
	// Awaited are those of Standby and Warmup, all of Warmup among them, that become active here as soon as they have caught
	// up: the process asks for a rebalance when one that had not has come within ReadyLag offsets of the ends (last stable,
	// summed over its changelogs). ReadyLag is less than what the leader accepts, for the ends move on meanwhile.
	Awaited  []store.TaskID
	ReadyLag int64
	// FollowUp asks this member for one more rebalance when things are calm, in some 30 seconds: the leader could not find
	// out about lags, or copies are to be let go of once others are ready. The next assignment repeats or ends it.
	FollowUp bool
	// Again asks this member to join once more at once: tasks are on their way between members, and the next generation, in
	// which they arrive, begins when all have joined. Their owners join when they have let go.
	Again bool
	// Drains says that the leader knows that this member's process is draining.
	Drains bool
	// Releasing are tasks the member must let go of now. It stays their owner in the map until the next generation.
	Releasing []Release
	// Incoming are tasks that will come to this member once their owner has let go.
	Incoming []store.TaskID
	// Fence are the transactional ids of owners that vanished: no restore bound may be taken before each is fenced
	// (InitProducerId).
	Fence []string
	// Problems the leader has with this member.
	Problems []Problem

	// Tasks is how many tasks the placement has in all; HeldBudget the bytes a member may spend on Held.
	Tasks, HeldBudget int
}

// Release is a task on its way to another process, or to another thread of the same one.
type Release struct {
	Task store.TaskID
	To   string // process id
	// Keep says that the process stays with the task as a standby in place: it goes on from its last commit. In the next
	// generation the task is among its Standby or Retained.
	Keep bool
}

// Refused reports whether the leader gives this member no tasks, and why.
func (a *Assignment) Refused() (Problem, bool) {
	for _, p := range a.Problems {
		if p.Kind.Refuses() {
			return p, true
		}
	}
	return Problem{}, false
}

func (a *Assignment) clone() Assignment {
	c := *a
	c.Active, c.Standby = slices.Clone(a.Active), slices.Clone(a.Standby)
	c.Warmup, c.Retained, c.Awaited = slices.Clone(a.Warmup), slices.Clone(a.Retained), slices.Clone(a.Awaited)
	c.Releasing, c.Incoming = slices.Clone(a.Releasing), slices.Clone(a.Incoming)
	c.Fence, c.Problems = slices.Clone(a.Fence), slices.Clone(a.Problems)
	return c
}

// Problem is what a leader has against a member.
type Problem struct {
	Kind ProblemKind
	// Detail names the culprit: the other process, the hashes, the endpoint.
	Detail string
}

func (p Problem) String() string {
	if p.Detail == "" {
		return p.Kind.String()
	}
	return p.Kind.String() + ": " + p.Detail
}

// ProblemKind is on the wire and must not change.
type ProblemKind uint8

// The problems. All but the duplicate endpoint mean that the member gets no tasks.
const (
	// UnreadableMember sent metadata that the leader could not read.
	UnreadableMember ProblemKind = 1
	// OtherTopology has tasks that are not the leader's.
	OtherTopology ProblemKind = 2
	// DuplicateProcess uses the process id of another live process: a copied state directory.
	DuplicateProcess ProblemKind = 3
	// BadEndpoint advertises what nobody can dial.
	BadEndpoint ProblemKind = 4
	// DuplicateEndpoint advertises the address of another process: queries for one of them reach the other.
	DuplicateEndpoint ProblemKind = 5
)

// Refuses reports whether a member with the problem gets no tasks.
func (k ProblemKind) Refuses() bool { return k != DuplicateEndpoint }

func (k ProblemKind) String() string {
	switch k {
	case UnreadableMember:
		return "unreadable member metadata"
	case OtherTopology:
		return "other topology"
	case DuplicateProcess:
		return "duplicate process id"
	case BadEndpoint:
		return "bad endpoint"
	case DuplicateEndpoint:
		return "duplicate endpoint"
	default:
		return "unknown problem"
	}
}
