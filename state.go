package statemesh

import (
	"context"
	"fmt"
	"sync"
)

// State of an instance. It only moves forward, but for Rebalancing and Serving, which take turns.
type State uint8

// The states, in the order of a life.
const (
	// Created: New has returned, Run was not called.
	Created State = iota
	// Starting: state directory and listener are being opened.
	Starting
	// Rebalancing: the group is being joined, or tasks restore. Once the map is known queries are answered all the same:
	// for what this instance has, and by a hop for the rest.
	Rebalancing
	// Serving: every task of this instance processes, and the map of the whole application is known.
	Serving
	// Closing: no new queries are taken, those in flight end.
	Closing
	// Leaving: the last commits are made, the group is left, the stores close.
	Leaving
	// Stopped: Run has returned nil.
	Stopped
	// Failed: Run has returned, or is about to return, an error.
	Failed
)

// String is upper case, as upstream's states are.
func (s State) String() string {
	names := [...]string{"CREATED", "STARTING", "REBALANCING", "SERVING", "CLOSING", "LEAVING", "STOPPED", "FAILED"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("STATE_%d", uint8(s))
}

// may is the whole machine: which state may follow which.
func (s State) may(to State) bool {
	switch {
	case s == to || s >= Stopped:
		return false
	case s == Serving && to == Rebalancing:
		return true
	default:
		return to > s
	}
}

// stateBox holds the state and wakes those who wait for one.
type stateBox struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced at each change
}

func newStateBox() *stateBox { return &stateBox{changed: make(chan struct{})} }

func (b *stateBox) get() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// become moves to a state that may follow; anything else changes nothing and is reported false.
func (b *stateBox) become(to State) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.state.may(to) {
		return false
	}
	b.state = to
	close(b.changed)
	b.changed = make(chan struct{})
	return true
}

// wait returns when ok says so of the state, or with an error once want cannot come any more.
func (b *stateBox) wait(ctx context.Context, want State, ok func(State) bool) error {
	for {
		b.mu.Lock()
		state, changed := b.state, b.changed
		b.mu.Unlock()
		switch {
		case ok(state):
			return nil
		case !canReach(state, want):
			return fmt.Errorf("instance state %s: %s cannot follow", state, want)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("instance state %s, want %s: %w", state, want, context.Cause(ctx))
		}
	}
}

// canReach reports whether want may still come.
func canReach(state, want State) bool {
	return state.may(want) || state == Rebalancing && want == Serving
}
