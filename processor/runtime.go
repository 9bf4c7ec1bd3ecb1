package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// Runtime runs a topology on one instance (upstream's KafkaStreams). Make one with [New], start it with [Runtime.Run],
// once. The methods beside Run are safe for concurrent use at any time.
type Runtime struct {
	cfg    Config
	built  *Built
	stores *layered.Stores
	table  *router.Table
	state  *stateBox
	tasks  *registry
	now    func() time.Time

	started atomic.Bool
	paused  atomic.Bool

	mu   sync.Mutex
	plan *Plan // nil until the partition counts are known
}

// New checks the configuration and the topology. It opens nothing and starts nothing. Stores and table outlive the
// runtime: close the stores after Run has returned.
func New(cfg Config, topology *Topology, stores *layered.Stores, table *router.Table) (*Runtime, error) {
	if topology == nil || stores == nil || table == nil {
		return nil, errors.New("runtime: topology, stores and table are required")
	}
	err := cfg.Validate()
	cfg = cfg.withDefaults()
	built, buildErr := topology.Build(cfg.ApplicationID)
	if err := errors.Join(err, buildErr); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	return &Runtime{
		cfg: cfg, built: built, stores: stores, table: table, now: time.Now,
		state: newStateBox(cfg.Listener.StateChange), tasks: newRegistry(),
	}, nil
}

// Run processes until ctx ends; then it commits, leaves the group and returns nil. Any other end is an error that names
// the culprit. It stops within about twice the transaction timeout also when no broker answers.
func (r *Runtime) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return errors.New("runtime: Run was called before")
	}
	return errors.ErrUnsupported
}

// State of the runtime.
func (r *Runtime) State() State { return r.state.get() }

// WaitState returns nil once the runtime is in state want, and an error when ctx ends or the state can no longer come.
func (r *Runtime) WaitState(ctx context.Context, want State) error { return r.state.wait(ctx, want) }

// Pause stops processing and punctuations (KIP-834). The members stay in the group, tasks restore, and queries are
// answered, with an age that grows only as far as the group does not confirm the ownership. What is uncommitted commits.
func (r *Runtime) Pause() { r.paused.Store(true) }

// Resume undoes [Runtime.Pause].
func (r *Runtime) Resume() { r.paused.Store(false) }

// TaskInfo describes one task of this instance.
type TaskInfo struct {
	ID store.TaskID
	// Thread that runs it.
	Thread int
	// Serving says that it is restored and answers queries.
	Serving bool
	// Restored and Total count changelog offsets of a restore.
	Restored, Total int64
	// Checkpoint of the last published commit.
	Checkpoint store.Checkpoint
}

// Tasks lists the tasks of this instance, in order.
func (r *Runtime) Tasks() []TaskInfo { return r.tasks.list() }

// partitions of a sub-topology; 0 while not known.
func (r *Runtime) partitions(sub int32) store.Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n store.Partition
	if r.plan != nil {
		for _, t := range r.plan.Tasks {
			if t.ID.Subtopology == sub {
				n = max(n, t.ID.Partition+1)
			}
		}
	}
	return n
}
