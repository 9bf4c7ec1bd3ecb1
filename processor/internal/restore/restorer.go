package restore

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Task is what a restore needs of a task's state; layered.Task is the one there is. The caller of Restore is its
// only writer meanwhile.
type Task interface {
	LocalCopy
	// Restore applies changes of one store in log order; Commit publishes them with the positions after them.
	Restore(name store.Name, batch []store.Change) error
	Commit(cp store.Checkpoint)
	// Rollback drops what was applied since the last Commit.
	Rollback()
	// UncommittedBytes is the size in memory of what was applied since the last Commit.
	UncommittedBytes() int64
}

// LocalCopy is what this instance has of a task.
type LocalCopy interface {
	ID() store.TaskID
	// Checkpoint of the last published commit.
	Checkpoint() store.Checkpoint
	// Unfinished reports whether it is no copy: a wipe, or a load of another instance's copy, was begun and has not come to its end.
	// Nothing but Wipe, or a load, makes one of it.
	Unfinished() bool
	// Wipe drops the copy and begins an empty one.
	Wipe(ctx context.Context) error
}

// Restorer restores tasks. Safe for concurrent use.
type Restorer struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	budget  *budget
	// decoders are also the right to apply: more goroutines than processors would only hold more memory.
	decoders chan *decoder
	active   atomic.Int64 // restores that apply, and standbys that catch up
	standbys *standbySet

	// done is closed when Run ends; unresolvedWake tells it of streams without a leader.
	done           chan struct{}
	unresolvedWake chan struct{}

	// mu guards what follows and the streams. Nothing blocks while it is held.
	mu         sync.Mutex
	fences     map[string]*fencing
	unresolved []*stream
	workers    map[int32]*worker
}

// New starts nothing; Run does. Restores wait for it.
func New(cfg Config) (*Restorer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	n := runtime.GOMAXPROCS(0)
	r := &Restorer{
		cfg: cfg, log: cfg.Logger, metrics: m, budget: newBudget(cfg.BufferBytes), decoders: make(chan *decoder, n),
		done: make(chan struct{}), unresolvedWake: make(chan struct{}, 1),
		fences: map[string]*fencing{}, workers: map[int32]*worker{}, standbys: &standbySet{standbyMetrics: newStandbyMetrics()},
	}
	if err := r.standbys.register(cfg.Registerer); err != nil {
		return nil, err
	}
	for range n {
		r.decoders <- newDecoder()
	}
	return r, nil
}

// Restore brings the task to its last commit and returns where its inputs go on. It returns when that is reached, when
// ctx ends, or with an error: *FenceError, *UnstableError, *HangingTransactionError, *StalledError, *TopicChangedError,
// *RefusedError, *CorruptLogError, ErrStopped, what the task's store says, or what the brokers refused. However it
// ends, what was applied stays, and the next Restore goes on from there.
func (r *Restorer) Restore(ctx context.Context, req Request) (Result, error) {
	j := newJob(r, req)
	r.metrics.running.Inc()
	defer r.metrics.running.Dec()
	j.report(Started, nil)
	res, err := j.run(ctx)
	if err != nil {
		err = fmt.Errorf("restore task %s: %w", req.Task.ID(), err)
	}
	j.report(Ended, err)
	r.metrics.finished(time.Since(j.started), err)
	log := r.log.With("task", req.Task.ID().String(), "took", time.Since(j.started), "records", j.records)
	switch {
	case err == nil:
		log.InfoContext(ctx, "restore finished", "sequence", res.Sequence)
	case ctx.Err() != nil:
		log.InfoContext(ctx, "restore interrupted")
	default:
		log.ErrorContext(ctx, "restore failed", "error", err)
	}
	return res, err
}
