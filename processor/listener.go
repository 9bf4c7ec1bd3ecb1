package processor

import (
	"time"

	"github.com/statemesh/statemesh/store"
)

// HandlerAction is the answer of an exception handler (upstream's *ExceptionHandler responses).
type HandlerAction uint8

// The answers. Fail is the default.
const (
	// Fail stops the runtime with the error; the committed offset stays at the record.
	Fail HandlerAction = iota
	// Continue drops the record, counts it by reason and goes on.
	Continue
	// DeadLetter sends the original record to Config.DeadLetterTopic, in the same transaction, and goes on.
	DeadLetter
)

// String is lower case, as in configuration files.
func (a HandlerAction) String() string {
	switch a {
	case Fail:
		return "fail"
	case Continue:
		return "continue"
	case DeadLetter:
		return "dead-letter"
	default:
		return "unknown"
	}
}

// Listener is told of what happens in a runtime. Functions are called from the runtime's goroutines, must not block and
// must not call back into the runtime. Nil functions are skipped.
type Listener struct {
	// StateChange fires after each change of the runtime's state.
	StateChange func(from, to State)
	// RestoreStart fires when a task begins to read its changelogs; Batch while it reads; End when it is done, failed
	// or was taken away. The three carry the same task and attempt.
	RestoreStart func(RestoreInfo)
	RestoreBatch func(RestoreInfo)
	RestoreEnd   func(RestoreInfo)
	// Member fires when a thread has joined the group under a new name: what to remember for a successor, see Config.Predecessors.
	Member func(MemberInfo)
	// Dropped fires for each record that is skipped or dead-lettered.
	Dropped func(DroppedInfo)
	// Commit fires after each commit of a thread, successful or not.
	Commit func(CommitInfo)
	// TaskError fires when a task fails, before the runtime decides what follows.
	TaskError func(task store.TaskID, err error)
	// ThreadReplaced fires when a thread has failed and is begun again (ReplaceThread).
	ThreadReplaced func(thread int, err error)
	// DataLoss fires when input records were deleted before they were processed (a committed offset below the start of
	// the log) and the reset policy lets the task go on.
	DataLoss func(DataLossInfo)
}

// RestoreInfo describes a restore.
type RestoreInfo struct {
	Task    store.TaskID
	Attempt int64
	// Restored and Total are changelog offsets, over all stores of the task; rows while a copy is being taken.
	Restored, Total int64
	// Peer is the instance whose copy is being taken, or was; empty when there is none.
	Peer string
	// Took is set at the end.
	Took time.Duration
	// Err is set at the end of a restore that did not finish.
	Err error
}

// DroppedInfo describes a record that was not processed.
type DroppedInfo struct {
	Task   store.TaskID
	Record RecordMetadata
	Reason string
	// DeadLettered says that the record went to the dead letter topic.
	DeadLettered bool
}

// CommitInfo describes one commit of a thread.
type CommitInfo struct {
	Thread int
	Tasks  []store.TaskID
	// Records processed since the commit before.
	Records int
	Took    time.Duration
	// Err is nil when Kafka has committed.
	Err error
}

// DataLossInfo names both offsets of a gap that retention tore.
type DataLossInfo struct {
	Task      store.TaskID
	Input     store.TopicPartition
	Committed store.Offset
	LogStart  store.Offset
	Resumed   store.Offset
}

func (l Listener) withDefaults() Listener {
	if l.StateChange == nil {
		l.StateChange = func(State, State) {}
	}
	for _, f := range []*func(RestoreInfo){&l.RestoreStart, &l.RestoreBatch, &l.RestoreEnd} {
		if *f == nil {
			*f = func(RestoreInfo) {}
		}
	}
	if l.Member == nil {
		l.Member = func(MemberInfo) {}
	}
	if l.Dropped == nil {
		l.Dropped = func(DroppedInfo) {}
	}
	if l.Commit == nil {
		l.Commit = func(CommitInfo) {}
	}
	if l.TaskError == nil {
		l.TaskError = func(store.TaskID, error) {}
	}
	if l.ThreadReplaced == nil {
		l.ThreadReplaced = func(int, error) {}
	}
	if l.DataLoss == nil {
		l.DataLoss = func(DataLossInfo) {}
	}
	return l
}
