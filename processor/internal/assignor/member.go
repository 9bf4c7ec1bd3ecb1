package assignor

import (
	"cmp"

	"github.com/statemesh/statemesh/store"
)

// Member is one stream thread, as the leader knows it.
type Member struct {
	// ID orders members where nothing else decides. Unique.
	ID string
	// Process groups the members that share one state directory: where in it a task runs does not matter for its state.
	Process string
	// Rack of the process. Placement of actives takes no notice of it; standbys will.
	Rack string
	// Capacity is the member's share relative to others; 0 and less count as 1. A process has the sum of its members.
	Capacity int
	// Owned are the tasks the member runs now. When several claim one task, the first by ID is believed: the caller
	// knows the generations and should have settled it.
	Owned []store.TaskID
	// Expected are tasks that an earlier plan has promised to this member and that it has not got yet, because their
	// owner must let go of them first.
	Expected []store.TaskID
	// Held is what the member's process has on disk. One member of a process reporting it is enough.
	Held []Held
}

// HeldState says what is known about a copy of a task's state.
type HeldState uint8

// The states of a copy. They never collide with an offset (upstream's UNKNOWN_OFFSET_SUM and LATEST_OFFSET did, KAFKA-10287).
const (
	// HeldUnknown is a copy of which nobody knows how far it is.
	HeldUnknown HeldState = iota
	// HeldOffset is a copy that has applied the changelogs up to Held.Offset.
	HeldOffset
	// HeldActive is the copy of the task's active owner: nothing can be further on.
	HeldActive
)

// Held is one copy of a task's state in a process.
type Held struct {
	Task  store.TaskID
	State HeldState
	// Offset is the sum of the changelog offsets applied, >= 0. Only with HeldOffset.
	Offset int64
}

// Compare orders copies by how far they are: active, then offsets, then unknown.
func (h Held) Compare(o Held) int {
	if c := cmp.Compare(h.State, o.State); c != 0 {
		return c
	}
	if h.State != HeldOffset {
		return 0
	}
	return cmp.Compare(h.Offset, o.Offset)
}

// Plan is a placement. Every task of the shape is active once in it, if there is a member.
type Plan struct {
	// Members are in the order of the members asked about.
	Members []Placement
}

// Placement is what one member runs. Tasks are sorted.
type Placement struct {
	Member string
	Active []store.TaskID
	// Standby and Warmup copies follow the changelog; a warm-up becomes active once it has caught up. [Assign] places
	// none.
	Standby, Warmup []store.TaskID
}
