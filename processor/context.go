package processor

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
)

// Context is what a processor may do (upstream's ProcessorContext). One per node and task; it belongs to the task's
// stream thread and must not be used by another goroutine.
type Context struct {
	node *nodeRun
	task *task
}

// ApplicationID of the instance.
func (c *Context) ApplicationID() string { return c.task.env.application }

// TaskID of the task.
func (c *Context) TaskID() store.TaskID { return c.task.id }

// Registerer takes metrics of a processor's own (upstream's ProcessorContext.metrics); nil: nobody wants any. Tasks share it: what is registered
// already is an error.
func (c *Context) Registerer() prometheus.Registerer { return c.task.env.registerer }

// Store returns a state store that is connected to this node. *store.UnknownStoreError otherwise. A put that the
// changelog would not take is a *store.TooLargeError, and nothing is written. A store that is fed from a topic is written by
// its own processor only: for others puts are refused. A global store needs no connection; each read of it sees the newest
// commit there is.
func (c *Context) Store(name store.Name) (store.KeyValue, error) {
	if g := c.task.env.globals[name]; g != nil {
		return g.keyValue(c.task.env.ctx), nil
	}
	if !slices.Contains(c.node.def.stores, name) {
		return nil, &store.UnknownStoreError{Store: name, Known: c.node.def.stores}
	}
	kv, err := c.task.keyValue(name)
	if err == nil && !c.task.sub.writes(name, c.node.def) {
		return readOnly{KeyValue: kv, name: name}, nil
	}
	return kv, err
}

// Forward hands a record to every child, at once, depth first. A nil Headers keeps none: pass on what you want kept.
// The error is that of a child and must be returned. It is nil for a child that failed and whose error an exception handler has dealt with:
// the others get the record all the same.
func (c *Context) Forward(r Record) error {
	for _, child := range c.node.children {
		if err := c.node.hand(child, r); err != nil {
			return err
		}
	}
	return nil
}

// ForwardTo hands a record to one child by name. An unknown child is an error.
func (c *Context) ForwardTo(child string, r Record) error {
	for _, n := range c.node.children {
		if n.def.name == child {
			return c.node.hand(n, r)
		}
	}
	if c.node.mute {
		return nil
	}
	return fmt.Errorf("processor %s: no child is called %q", c.node.def.name, child)
}

// Child is a node that this one hands records to.
type Child struct {
	Name string
	// Processor of the child in this task; nil of a sink.
	Processor Processor
}

// Children lists the nodes that this one hands records to, in the order in which they were added. It is for libraries of processors
// that know each other and hand on more than bytes, as package streams does: a processor's own methods may be called in place of Forward,
// on the task's stream thread, once its Init has returned. In Init of a parent no child is initialised yet.
func (c *Context) Children() []Child {
	children := make([]Child, len(c.node.children))
	for i, n := range c.node.children {
		children[i] = Child{Name: n.def.name, Processor: n.proc}
	}
	return children
}

// Fail names this node in an error, unless a node further down is named already, and asks the exception handler, which may go on without the
// record: nil then, and for nil. It is what Forward does for its callers, and who calls a child's methods has to do itself.
func (c *Context) Fail(err error) error { return c.node.failed(err) }

// NodeName is the name of the node.
func (c *Context) NodeName() string { return c.node.def.name }

// RecordMetadata says where the record in hand came from; ok is false inside Init, a punctuation and a flush listener.
func (c *Context) RecordMetadata() (m RecordMetadata, ok bool) {
	return c.task.current, c.task.hasCurrent
}

// CurrentStreamTime is the greatest record timestamp of the task so far, in Unix milliseconds, -1 before the first.
func (c *Context) CurrentStreamTime() int64 { return c.task.streamTime }

// CurrentSystemTime is the wall clock of the runtime.
func (c *Context) CurrentSystemTime() time.Time { return c.task.env.now() }

// Schedule calls fn every interval by the clock of typ, with the time in Unix milliseconds (upstream's schedule: stream
// time punctuations fire once for the newest time, missed intervals are not repeated). It returns what cancels it.
// Stream time starts with the first record after the call; wall clock time with the call. The processor of a global store schedules
// nothing: what it puts follows from records alone.
func (c *Context) Schedule(interval time.Duration, typ PunctuationType, fn func(timestamp int64) error) (cancel func(), err error) {
	if interval < time.Millisecond {
		return nil, fmt.Errorf("processor %s: punctuation every %s: at least 1ms", c.node.def.name, interval)
	}
	if typ > WallClockTime {
		return nil, fmt.Errorf("processor %s: punctuation type %d is unknown", c.node.def.name, typ)
	}
	if c.task.sub.global {
		return nil, fmt.Errorf("processor %s: fills a global store, and so schedules no punctuations", c.node.def.name)
	}
	return c.task.schedules.add(c.node, interval, typ, fn, c.task), nil
}

// RequestCommit asks for a commit as soon as the record in hand is done (upstream's ProcessorContext.commit).
func (c *Context) RequestCommit() { c.task.commitRequested = true }

// Drop counts the record in hand as dropped for reason (a short constant such as "null key"), in the metric
// statemesh_dropped_records_total, and logs the first of a burst with its coordinates.
func (c *Context) Drop(reason string) { c.task.dropped(reason, toNowhere) }
