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
	// Rack and Tags say where the process is, for copies to be placed apart (see [Options.RackAwareTags]); actives take no
	// notice. One member of a process saying it is enough.
	Rack string
	Tags map[string]string
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
	// HeldPartial says that copies were left out of Held.
	HeldPartial bool
	// Standby, Warmup and Retained are the tasks that the member's process follows now, as the last placement had them or
	// as it kept them when it let go of them. One member of a process reporting them is enough.
	Standby, Warmup, Retained []store.TaskID
	// CannotFollow keeps copies away from the member's process: its version does not follow changelogs.
	CannotFollow bool
	// Draining: the member's process gives everything away. It gets nothing new; what it has goes elsewhere as soon as others
	// are ready for it, and what nobody else could have stays. One member of a process saying so is enough. When all processes
	// drain, each keeps what it has.
	Draining bool
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
	// Processes that follow something, sorted.
	Processes []Copies
	// Missing counts the standbys that could not be placed, because there are fewer processes than replicas.
	Missing int
	// Waiting counts the tasks whose active is not where it should be yet, for want of a copy there that has caught up.
	Waiting int
	// Retained counts copies beyond the number asked for that stay until those that replace them are ready: a placement
	// made after that lets go of them. Nothing announces that moment.
	Retained int
}

// Placement is what one member runs. Tasks are sorted.
type Placement struct {
	Member string
	Active []store.TaskID
}

// Copies is what one process follows. Tasks are sorted; no task is in two lists but in Awaited.
type Copies struct {
	Process string
	// Standby copies are those asked for; in a process that drains, those that no other process could have. Warmup copies are extra ones at the process where the active should be. Retained
	// ones have caught up and stay, also extra, until what replaces them has too.
	Standby, Warmup, Retained []store.TaskID
	// Awaited are those, all of Warmup and some of Standby, that become active here once they have caught up.
	Awaited []store.TaskID
}
