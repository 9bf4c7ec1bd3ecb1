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
)

// The states of a copy.
const (
	HeldUnknown = assignor.HeldUnknown
	HeldOffset  = assignor.HeldOffset
	HeldActive  = assignor.HeldActive
)

// Member is what a stream thread tells the leader at each join. The application fills in the first block; the
// [Balancer] overwrites the second.
type Member struct {
	// ProcessID is stable over restarts with the same state directory; members of one process share their state.
	ProcessID string
	// Incarnation is one start of the process.
	Incarnation string
	// Endpoint is "host:port" as peers and clients dial it; empty: it answers no peer.
	Endpoint string
	Rack     string
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

	// Epoch is the highest the process has seen.
	Epoch router.Epoch
	// Last is the epoch of the thread's last assignment, 0 before the first, and Incoming what it promised.
	Last     router.Epoch
	Incoming []store.TaskID
	// ShapeHash is that of the process's [Shape].
	ShapeHash uint64
}

// Assignment is what the leader tells one member.
type Assignment struct {
	// Epoch of the placement; equal for all members of a generation. 0: the leader's data could not be read, Active was
	// derived from the partitions.
	Epoch router.Epoch
	// Active and Standby are the tasks the member runs from now on.
	Active, Standby []store.TaskID
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
