package router

import (
	"errors"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// How a drain ends that does not end with everything gone.
var (
	// ErrNobodyTakes reports that there is no other instance, or that all others drain too: what is here stays.
	ErrNobodyTakes = errors.New("no other instance takes tasks")
	// ErrDrainUnsupported reports that the group is led by an instance of a version that takes no notice of drains. It is an
	// [errors.ErrUnsupported].
	ErrDrainUnsupported = fmt.Errorf("drains: %w by the version of the group's leader", errors.ErrUnsupported)
	// ErrDrainUndone reports that somebody has ended the drain.
	ErrDrainUndone = errors.New("the drain was undone")
)

// DrainGoal says how far a drain is to get.
type DrainGoal uint8

const (
	// TasksServed is reached when every task is served by another instance.
	TasksServed DrainGoal = iota + 1
	// CopiesReplaced is reached when, beside that, the copies that were here have been replaced by others, as far as there is somebody to have
	// them.
	CopiesReplaced
)

// DrainStage is where a task of an instance that drains is on its way.
type DrainStage uint8

const (
	// DrainUnknown is a stage that this version does not know.
	DrainUnknown DrainStage = iota
	// DrainWaiting says that nobody is getting ready for it yet. Warm-ups are few at a time.
	DrainWaiting
	// DrainWarming says that a copy is catching up where it is to go.
	DrainWarming
	// DrainMoving says that it is being handed over.
	DrainMoving
	// DrainStarting says that its new owner has it and does not serve it yet.
	DrainStarting
)

// String is the stage as progress shows it.
func (s DrainStage) String() string {
	switch s {
	case DrainWaiting:
		return "waiting"
	case DrainWarming:
		return "warming up"
	case DrainMoving:
		return "moving"
	case DrainStarting:
		return "starting"
	default:
		return "unknown"
	}
}

// DrainTask is a task that another instance does not serve yet.
type DrainTask struct {
	Task  store.TaskID
	Stage DrainStage
	// To is the id of the instance it goes to, "" while that is not known.
	To string
	// Lag is how many changelog offsets the copy there is behind; -1 when that is not known.
	Lag int64
}

// DrainStatus is how far a drain is.
type DrainStatus struct {
	// Heeded: the group places nothing here any more.
	Heeded bool
	// Tasks that are left, in order.
	Tasks []DrainTask
	// Copies of other instances' tasks that are left, in order: each stays until what replaces it has caught up.
	Copies []store.TaskID
	// Kept counts copies that stay because no other instance could have them.
	Kept int
}

// Equal reports whether two statuses say the same.
func (s *DrainStatus) Equal(o *DrainStatus) bool {
	return s.Heeded == o.Heeded && s.Kept == o.Kept && slices.Equal(s.Tasks, o.Tasks) && slices.Equal(s.Copies, o.Copies)
}
