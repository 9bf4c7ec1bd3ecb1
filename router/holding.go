package router

import (
	"time"

	"github.com/statemesh/statemesh/store"
)

// HoldingRole says what an instance has a task's state for.
type HoldingRole uint8

const (
	// HeldUnknown is a role that this version does not know.
	HeldUnknown HoldingRole = iota
	// HeldAsOwner says: the instance runs the task.
	HeldAsOwner
	// HeldAsStandby says: the task's changelogs are followed, to answer and to take over.
	HeldAsStandby
	// HeldAsWarmup says: the task is to run here, and does once the copy has caught up.
	HeldAsWarmup
	// HeldAsRetained says: what is left of a task that ran here, and answers until its new owner does.
	HeldAsRetained
)

// String is the role as tables have it.
func (r HoldingRole) String() string {
	switch r {
	case HeldAsOwner:
		return "owner"
	case HeldAsStandby:
		return "standby"
	case HeldAsWarmup:
		return "warm-up"
	case HeldAsRetained:
		return "retained"
	default:
		return "unknown"
	}
}

// HoldingState says how far a copy is.
type HoldingState uint8

const (
	// HoldingUnknown is a state that this version does not know.
	HoldingUnknown HoldingState = iota
	// HoldingStarting says: it is being opened, or what there is to read is not known yet.
	HoldingStarting
	// HoldingRestoring says: it reads the changelogs, and is no state that ever was until it has.
	HoldingRestoring
	// HoldingServing says: the owner's, and whole.
	HoldingServing
	// HoldingFollowing says: whole, and followed; it answers reads within their bound.
	HoldingFollowing
	// HoldingResting says: whole, and nobody follows any more; it answers reads within their bound while it is young enough.
	HoldingResting
	// HoldingCopying says: it takes the rows of another instance's copy, and is no state until it has all of them.
	HoldingCopying
)

// String is the state as tables have it.
func (s HoldingState) String() string {
	switch s {
	case HoldingStarting:
		return "starting"
	case HoldingRestoring:
		return "restoring"
	case HoldingServing:
		return "serving"
	case HoldingFollowing:
		return "following"
	case HoldingResting:
		return "resting"
	case HoldingCopying:
		return "copying"
	default:
		return "unknown"
	}
}

// Holding is one task's state on one instance, as that instance has it. It is no part of a [Snapshot]: it changes all the time,
// and nobody is routed by it, because a copy proves what it is worth when it answers.
type Holding struct {
	Task  store.TaskID
	Role  HoldingRole
	State HoldingState
	// Restored of Total changelog offsets of a restore, or rows of a copy that is taken; both 0 when unknown.
	Restored, Total int64
	// From is the instance whose copy is taken, and Bytes is how much has come of its keys and values; "" and 0 otherwise.
	From  string
	Bytes int64
	// Left estimates how long the rest of a restore takes; 0 when unknown.
	Left time.Duration
	// Lag counts changelog offsets that are known and not applied; -1 when the ends are unknown, and while a copy is taken. 0 for an
	// owner that serves; what is left of Total for one that restores.
	Lag int64
	// Age is the proven upper limit of how old the copy is; -1 when nothing is proven.
	Age time.Duration
}
