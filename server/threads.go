package server

import (
	"context"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Threads are the stream threads of this instance. Safe for concurrent use.
type Threads interface {
	// AddThread begins one more and returns its name once the group knows it. RemoveThread ends the one that was begun last and
	// returns its name once it has left the group. Both may end with router's errors, or with the cause of ctx's end: what was
	// begun goes on.
	AddThread(ctx context.Context) (name string, err error)
	RemoveThread(ctx context.Context) (name string, err error)
	// Threads lists them, MaxThreads is how many there may be, 0 for as many as anybody wants.
	Threads() []router.Thread
	MaxThreads() int
}

// threadDeadline is given to a call without a deadline that changes the number of threads: a thread that leaves ends its last
// commit, and one that joins waits for all members of the group.
const threadDeadline = time.Minute

var errNoThreads = &store.InvalidRequestError{Field: "call", Reason: "this instance does not change its stream threads"}

// AddThread begins one more stream thread.
func (a *adminService) AddThread(ctx context.Context, _ *statemeshv1.AddThreadRequest) (*statemeshv1.AddThreadResponse, error) {
	if a.s.deps.Threads == nil {
		return nil, errNoThreads
	}
	name, err := a.s.deps.Threads.AddThread(ctx)
	refusal, limit, ok := wire.FromThreadRefusal(err)
	if !ok {
		return nil, err
	}
	return &statemeshv1.AddThreadResponse{Thread: name, Refusal: refusal, Limit: limit, AnsweredBy: a.s.cfg.Instance}, nil
}

// RemoveThread ends a stream thread.
func (a *adminService) RemoveThread(ctx context.Context, _ *statemeshv1.RemoveThreadRequest) (*statemeshv1.RemoveThreadResponse, error) {
	if a.s.deps.Threads == nil {
		return nil, errNoThreads
	}
	name, err := a.s.deps.Threads.RemoveThread(ctx)
	refusal, _, ok := wire.FromThreadRefusal(err)
	if !ok {
		return nil, err
	}
	return &statemeshv1.RemoveThreadResponse{Thread: name, Refusal: refusal, AnsweredBy: a.s.cfg.Instance}, nil
}

// ListThreads lists the stream threads.
func (a *adminService) ListThreads(context.Context, *statemeshv1.ListThreadsRequest) (*statemeshv1.ListThreadsResponse, error) {
	if a.s.deps.Threads == nil {
		return nil, errNoThreads
	}
	return wire.FromThreads(a.s.deps.Threads.Threads(), a.s.deps.Threads.MaxThreads(), a.s.cfg.Instance), nil
}
