package restore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
)

// ErrStopped reports a restore asked of a Restorer whose Run has ended.
var ErrStopped = errors.New("restore: stopped")

// FenceError reports that the transaction of an owner that vanished could not be ended in time. Nothing was read: the
// state of the task may still change.
type FenceError struct {
	TransactionalID string
	Waited          time.Duration
	Err             error
}

func (e *FenceError) Error() string {
	return fmt.Sprintf("fence transactional id %s: not ended after %s: %v", e.TransactionalID, e.Waited, e.Err)
}

// Unwrap returns the last answer.
func (e *FenceError) Unwrap() error { return e.Err }

// UnstableError reports inputs whose committed offset stayed undecided: a transaction that commits them is open.
type UnstableError struct {
	Group  string
	Inputs []store.TopicPartition
	Waited time.Duration
}

func (e *UnstableError) Error() string {
	names := make([]string, len(e.Inputs))
	for i, tp := range e.Inputs {
		names[i] = tp.String()
	}
	return fmt.Sprintf("group %s: offsets of %s still undecided after %s: a transaction that commits them is open",
		e.Group, strings.Join(names, ", "), e.Waited)
}

// HangingTransactionError reports a changelog with a transaction that stays open below the bound. What lies behind it
// may be committed or not, so the task cannot be restored. kafka-transactions.sh finds and aborts it.
type HangingTransactionError struct {
	Store     store.Name
	Topic     string
	Partition store.Partition
	// LastStable is where the open transaction begins, Bound the end that must be reached.
	LastStable, Bound store.Offset
	Waited            time.Duration
}

func (e *HangingTransactionError) Error() string {
	return fmt.Sprintf("changelog %s-%d: a transaction is open at offset %d, below the restore bound %d, for %s; "+
		"kafka-transactions.sh find-hanging and abort end it", e.Topic, e.Partition, e.LastStable, e.Bound, e.Waited)
}

// StalledError reports a changelog that could not be read for too long. Err is the last answer.
type StalledError struct {
	Topic     string
	Partition store.Partition
	Next      store.Offset
	Waited    time.Duration
	Err       error
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("changelog %s-%d: nothing read from offset %d for %s: %v", e.Topic, e.Partition, e.Next, e.Waited, e.Err)
}

// Unwrap returns the last answer.
func (e *StalledError) Unwrap() error { return e.Err }

// TopicChangedError reports a changelog that is not the topic the caller knows: it was deleted, or deleted and created
// again. The caller verifies its topics anew before it restores.
type TopicChangedError struct {
	Topic string
	// Have is all zero when the topic does not exist.
	Have, Want [16]byte
}

func (e *TopicChangedError) Error() string {
	if e.Have == [16]byte{} {
		return fmt.Sprintf("changelog %s: the topic does not exist any more", e.Topic)
	}
	return fmt.Sprintf("changelog %s: topic id %x, want %x: the topic was created again", e.Topic, e.Have, e.Want)
}

// RefusedError reports a log whose bounds make no sense.
type RefusedError struct {
	Topic     string
	Partition store.Partition
	Reason    string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("changelog %s-%d: %s", e.Topic, e.Partition, e.Reason)
}

// CorruptLogError reports a batch that cannot be read.
type CorruptLogError struct {
	Topic     string
	Partition store.Partition
	Offset    store.Offset
	Reason    string
}

func (e *CorruptLogError) Error() string {
	return fmt.Sprintf("changelog %s-%d offset %d: %s", e.Topic, e.Partition, e.Offset, e.Reason)
}
