package processor

import (
	"context"
	"fmt"
	"sync"
)

// State of a runtime (upstream's KafkaStreams.State).
type State uint8

// The states, in the order of a life.
const (
	// Created: New has returned, Run was not called.
	Created State = iota
	// Rebalancing: a thread joins the group, or a task restores.
	Rebalancing
	// Running: every thread has its assignment and every task of it processes.
	Running
	// PendingShutdown: the last commits are made and the group is left.
	PendingShutdown
	// NotRunning: Run has returned without an error.
	NotRunning
	// Failed: Run has returned, or is about to return, with an error.
	Failed
)

// String is upstream's name.
func (s State) String() string {
	switch s {
	case Created:
		return "CREATED"
	case Rebalancing:
		return "REBALANCING"
	case Running:
		return "RUNNING"
	case PendingShutdown:
		return "PENDING_SHUTDOWN"
	case NotRunning:
		return "NOT_RUNNING"
	case Failed:
		return "ERROR"
	default:
		return fmt.Sprintf("STATE_%d", uint8(s))
	}
}

// final reports whether no state follows.
func (s State) final() bool { return s == NotRunning || s == Failed }

// may is the whole machine: which state may follow which.
func (s State) may(to State) bool {
	switch s {
	case Created:
		return to == Rebalancing || to == Failed
	case Rebalancing:
		return to == Running || to == PendingShutdown || to == Failed
	case Running:
		return to == Rebalancing || to == PendingShutdown || to == Failed
	case PendingShutdown:
		return to == NotRunning || to == Failed
	default:
		return false
	}
}

// stateBox holds the state and wakes those who wait for one.
type stateBox struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced at each change
	notify  func(from, to State)
}

func newStateBox(notify func(from, to State)) *stateBox {
	return &stateBox{changed: make(chan struct{}), notify: notify}
}

func (b *stateBox) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// become moves to a state that may follow; anything else changes nothing: the present state knows better.
func (b *stateBox) become(to State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.state
	if from == to || !from.may(to) {
		return
	}
	b.state = to
	close(b.changed)
	b.changed = make(chan struct{})
	b.notify(from, to) // under the lock: listeners see the changes in their order
}

// wait returns when the state is want, or with an error when it can no longer be.
func (b *stateBox) wait(ctx context.Context, want State) error {
	for {
		b.mu.Lock()
		state, changed := b.state, b.changed
		b.mu.Unlock()
		if state == want {
			return nil
		}
		if state.final() {
			return fmt.Errorf("runtime state %s: want %s", state, want)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("runtime state %s: want %s: %w", state, want, context.Cause(ctx))
		}
	}
}
