package processor

import (
	"errors"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Context is what a processor may do (upstream's ProcessorContext). One per node and task; it belongs to the task's
// stream thread and must not be used by another goroutine.
type Context struct{}

// ApplicationID of the instance.
func (c *Context) ApplicationID() string { return "" }

// TaskID of the task.
func (c *Context) TaskID() store.TaskID { return store.TaskID{} }

// Store returns a state store that is connected to this node. *store.UnknownStoreError otherwise.
func (c *Context) Store(name store.Name) (store.KeyValue, error) { return nil, errors.ErrUnsupported }

// Forward hands a record to every child, at once, depth first. A nil Headers keeps none: pass on what you want kept.
func (c *Context) Forward(r Record) error { return errors.ErrUnsupported }

// ForwardTo hands a record to one child by name. An unknown child is an error.
func (c *Context) ForwardTo(child string, r Record) error { return errors.ErrUnsupported }

// RecordMetadata says where the record in hand came from; ok is false inside a punctuation.
func (c *Context) RecordMetadata() (m RecordMetadata, ok bool) { return RecordMetadata{}, false }

// CurrentStreamTime is the greatest record timestamp of the task so far, in Unix milliseconds, -1 before the first.
func (c *Context) CurrentStreamTime() int64 { return -1 }

// CurrentSystemTime is the wall clock of the runtime.
func (c *Context) CurrentSystemTime() time.Time { return time.Time{} }

// Schedule calls fn every interval by the clock of typ, with the time in Unix milliseconds (upstream's schedule: stream
// time punctuations fire once for the newest time, missed intervals are not repeated). It returns what cancels it.
func (c *Context) Schedule(interval time.Duration, typ PunctuationType, fn func(timestamp int64) error) (cancel func(), err error) {
	return nil, errors.ErrUnsupported
}

// RequestCommit asks for a commit as soon as the record in hand is done (upstream's ProcessorContext.commit).
func (c *Context) RequestCommit() {}

// Drop counts the record in hand as dropped for reason (a short constant such as "null key"), in the metric
// statemesh_dropped_records_total, and logs the first of a burst with its coordinates.
func (c *Context) Drop(reason string) {}
