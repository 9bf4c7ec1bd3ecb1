package router

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/store"
)

var (
	// ErrLastThread refuses to remove the last stream thread of an instance. Without one it would be no member of the group: nobody
	// would find what it holds, and it could hold nothing. Drain the instance and stop it instead.
	ErrLastThread = errors.New("it is the last one: drain the instance, or stop it")
	// ErrThreadLingers reports that a stream thread has ended and the brokers were not there to hear that it leaves: its tasks wait for
	// the end of its session.
	ErrThreadLingers = errors.New("the group was not told that it has left: its tasks wait for the end of its session")
)

// ThreadLimitError refuses one more stream thread.
type ThreadLimitError struct {
	// Threads there are, and how many there may be.
	Threads, Limit int
	// MemoryLimit is what memory.limit must be, in bytes, for an instance that starts with room for one thread more; 0 when memory is
	// not what limits them.
	MemoryLimit int64
}

func (e *ThreadLimitError) Error() string {
	text := fmt.Sprintf("%d stream threads, at most %d: restart with max.stream.threads %d", e.Threads, e.Limit, e.Limit+1)
	if e.MemoryLimit > 0 {
		text += fmt.Sprintf(", for which memory.limit must be %d bytes or more", e.MemoryLimit)
	}
	return text
}

// ThreadState is what a stream thread does.
type ThreadState uint8

// The states.
const (
	// ThreadUnknown is a state that this version does not know.
	ThreadUnknown ThreadState = iota
	// ThreadStarting says that the group does not know it yet.
	ThreadStarting
	// ThreadRebalancing says that it joins the group anew, or that tasks of it are not restored yet.
	ThreadRebalancing
	// ThreadRunning says that every task it has processes.
	ThreadRunning
	// ThreadLeaving says that it is being removed.
	ThreadLeaving
)

// String is the state as it is shown.
func (s ThreadState) String() string {
	switch s {
	case ThreadStarting:
		return "starting"
	case ThreadRebalancing:
		return "rebalancing"
	case ThreadRunning:
		return "running"
	case ThreadLeaving:
		return "leaving"
	default:
		return "unknown"
	}
}

// Thread is a stream thread of an instance.
type Thread struct {
	Name  string
	State ThreadState
	// Tasks that it has, ascending.
	Tasks []store.TaskID
}
