package statemesh

import (
	"context"
	"errors"

	"github.com/statemesh/statemesh/internal/membudget"
	"github.com/statemesh/statemesh/router"
)

// AddThread begins one more stream thread and returns its name once the group knows it; see [processor.Runtime.AddThread]. Beyond what the
// memory limit carries it is refused with a *[router.ThreadLimitError].
func (i *Instance) AddThread(ctx context.Context) (name string, err error) {
	p := i.parts.Load()
	if p == nil {
		return "", errNotRunning
	}
	name, err = p.runtime.AddThread(ctx)
	if e, ok := errors.AsType[*router.ThreadLimitError](err); ok {
		e.MemoryLimit = i.needFor(e.Limit + 1)
	}
	return name, err
}

// RemoveThread ends the stream thread that was begun last and returns its name once it has left the group; see
// [processor.Runtime.RemoveThread].
func (i *Instance) RemoveThread(ctx context.Context) (name string, err error) {
	p := i.parts.Load()
	if p == nil {
		return "", errNotRunning
	}
	return p.runtime.RemoveThread(ctx)
}

// Threads lists the stream threads with their tasks.
func (i *Instance) Threads() []router.Thread {
	if p := i.parts.Load(); p != nil {
		return p.runtime.Threads()
	}
	return nil
}

// MaxThreads is how many stream threads the instance may have; 0: as many as anybody wants.
func (i *Instance) MaxThreads() int { return i.cfg.Processor.MaxStreamThreads }

// Topology describes what the instance runs, as data and in three notations; nil before it runs.
func (i *Instance) Topology() *router.Topology {
	if p := i.parts.Load(); p != nil {
		return p.runtime.Topology()
	}
	return nil
}

// affordable is how many stream threads a limit carries: those it was divided for, and as many as what is to spare pays for.
func affordable(threads int, spare, fetch, produce int64) int {
	each := membudget.Cost(max(fetch, 0) + produceCost*max(produce, 0))
	return threads + int(max(spare, 0)/max(each, 1))
}

// needFor is the memory limit with which an instance can start that has room for so many stream threads; 0 when it has no limit.
func (i *Instance) needFor(threads int) int64 {
	if i.memory.Limit == 0 {
		return 0
	}
	_, err := membudget.Divide(i.asked.memoryRequest(0, threads))
	if small, ok := errors.AsType[*MemoryLimitError](err); ok {
		return small.Need
	}
	return 0
}
