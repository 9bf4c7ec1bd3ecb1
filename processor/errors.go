package processor

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// DeserializationError is what a processor returns from Process for a record it cannot decode. The deserialization
// exception handler decides: fail the task (default, as upstream), continue (drop, counted by Reason), or send the
// original record to the dead letter queue.
type DeserializationError struct {
	// Reason is a short constant, a metric label: "invalid json", "missing column".
	Reason string
	Err    error
}

func (e *DeserializationError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

func (e *DeserializationError) Unwrap() error { return e.Err }

// Labelled is an error of Process that says why a record is dropped, where the processing exception handler goes on without it:
// a short constant, a metric label.
type Labelled interface {
	error
	DropReason() string
}

// processingReason labels an error of Process.
func processingReason(err error) string {
	if e, ok := errors.AsType[Labelled](err); ok {
		return e.DropReason()
	}
	return "processing error"
}

// errStopHere reports that a task has come to the record it failed at before.
var errStopHere = errors.New("stop here")

// asDeserialization makes an error of a timestamp extractor one of deserialization, but for that of a serde that lacks something for the
// moment.
func asDeserialization(err error) error {
	if is[*DeserializationError](err) || errors.Is(err, serde.ErrUnavailable) {
		return err
	}
	return &DeserializationError{Reason: "timestamp", Err: err}
}

// TaskError says which task failed, and at which record if it was at one. Everything before the record is committed,
// nothing of it or after it is.
type TaskError struct {
	Task store.TaskID
	// Record is nil when the task failed elsewhere: in Init, Close or a punctuation.
	Record *RecordMetadata
	Err    error
}

func (e *TaskError) Error() string {
	if e.Record == nil {
		return fmt.Sprintf("task %s: %v", e.Task, e.Err)
	}
	return fmt.Sprintf("task %s: %s-%d offset %d: %v", e.Task, e.Record.Topic, e.Record.Partition, e.Record.Offset, e.Err)
}

func (e *TaskError) Unwrap() error { return e.Err }

// AuthorizationError says what Kafka does not allow the application (upstream's AuthorizationException).
type AuthorizationError struct {
	// Resource is "group", "topic", "transactional id" or "cluster"; Name is its name, empty when it is not known.
	Resource, Name string
	// Operation that was refused, as Kafka's ACLs name it: "READ", "WRITE", "DESCRIBE".
	Operation string
	Err       error
}

func (e *AuthorizationError) Error() string {
	return fmt.Sprintf("kafka refuses %s on %s %q: %v", e.Operation, e.Resource, e.Name, e.Err)
}

func (e *AuthorizationError) Unwrap() error { return e.Err }

// OffsetGapError reports that the broker deleted records of an input before they were processed, and that the reset
// policy of the source forbids to go on.
type OffsetGapError struct {
	Input store.TopicPartition
	// Committed is where the application wanted to go on; -1 when it never committed.
	Committed store.Offset
	// LogStart and LogEnd are what the broker has.
	LogStart, LogEnd store.Offset
}

func (e *OffsetGapError) Error() string {
	if e.Committed < 0 {
		return fmt.Sprintf("input %s: no committed offset, and auto.offset.reset is none; the log has %d to %d", e.Input, e.LogStart, e.LogEnd)
	}
	return fmt.Sprintf("input %s: committed offset %d is not in the log (%d to %d), and auto.offset.reset is none",
		e.Input, e.Committed, e.LogStart, e.LogEnd)
}

// ConfigError is one thing that is wrong with a [Config].
type ConfigError struct {
	// Field is the path of the field, such as "CommitInterval" or "Kafka.Brokers".
	Field  string
	Reason string
}

func (e *ConfigError) Error() string { return "config " + e.Field + ": " + e.Reason }

// RefusedError reports that the group's leader gives this instance no tasks.
type RefusedError struct {
	Group string
	// Problem is what the leader objects to, such as "duplicate process id" or "other topology"; Detail names the
	// culprit.
	Problem, Detail string
}

func (e *RefusedError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("group %s: the leader gives this instance no tasks: %s", e.Group, e.Problem)
	}
	return fmt.Sprintf("group %s: the leader gives this instance no tasks: %s: %s", e.Group, e.Problem, e.Detail)
}

// RecordTooLargeError reports a record for a sink that is too large to be produced. Sizes are in bytes.
type RecordTooLargeError struct {
	Topic       string
	Size, Limit int64
	// Setting that sets the limit.
	Setting string
}

func (e *RecordTooLargeError) Error() string {
	return fmt.Sprintf("sink topic %s: record of %d bytes is above %d (%s)", e.Topic, e.Size, e.Limit, e.Setting)
}

// Is matches store.ErrTooLarge.
func (e *RecordTooLargeError) Is(target error) bool { return target == store.ErrTooLarge }
