package layered

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Config of an instance's stores.
type Config struct {
	// Dir is the application's state directory (<state.dir>/<application.id>), locked while open. Required.
	Dir string
	// MoveBytes is how many bytes of recent commits a task may hold before they move to the engine. Default 16 MiB.
	MoveBytes int64
	// MoveInterval is how long a recent commit may wait before it moves. Default 5s: a restart after a crash replays at
	// most this much of the changelog, and deduplicating over many commits is what makes moves cheap.
	MoveInterval time.Duration
	Logger       *slog.Logger
}

// Stores are the state of every task on this instance. Safe for concurrent use.
type Stores struct{}

// Open locks Dir, opens the engines and undoes what a cut move left behind.
// ErrLocked when another process holds Dir. Corrupt local data is moved aside, logged and rebuilt from
// the changelogs later.
func Open(ctx context.Context, cfg Config) (*Stores, error) { return nil, errors.ErrUnsupported }

// Run moves recent commits to the engines until ctx ends, and once more before it returns.
func (s *Stores) Run(ctx context.Context) error { return errors.ErrUnsupported }

// Held lists the copies this instance has, open or not, with their newest durable or published checkpoint.
func (s *Stores) Held() []HeldTask { return nil }

// OpenTask opens the copy of a task, or begins an empty one. ErrTaskOpen when it is open already.
func (s *Stores) OpenTask(ctx context.Context, id store.TaskID, specs []store.Spec) (*Task, error) {
	return nil, errors.ErrUnsupported
}

// DropTask deletes the copy of a task that is not open. It is hidden at once and its space reclaimed later.
func (s *Stores) DropTask(ctx context.Context, id store.TaskID) error { return errors.ErrUnsupported }

// Close moves what is recent, closes the engines and releases the lock. Tasks must be closed before.
func (s *Stores) Close() error { return errors.ErrUnsupported }

// HeldTask is one copy in the state directory.
type HeldTask struct {
	ID         store.TaskID
	Checkpoint store.Checkpoint
	Open       bool
}

// Task is the state of one task on this instance.
type Task struct{}

// ID of the task.
func (t *Task) ID() store.TaskID { return store.TaskID{} }

// Checkpoint of the last published commit.
func (t *Task) Checkpoint() store.Checkpoint { return store.Checkpoint{} }

// KeyValue is the writer's handle of a store. *store.UnknownStoreError when the task does not have it.
func (t *Task) KeyValue(name store.Name) (store.KeyValue, error) { return nil, errors.ErrUnsupported }

// Changes yields, per logged store and in no particular order, the last value of each key written since the last
// commit: what goes to the changelog. Writer only. The slices are valid until the next Commit or Rollback and must not
// be changed. It may be called more than once before a commit; each call yields everything again.
func (t *Task) Changes() iter.Seq2[store.Name, store.Change] { return nil }

// Dirty reports whether anything was written since the last commit. Writer only.
func (t *Task) Dirty() bool { return false }

// UncommittedBytes is the size of the overlay: keys, values and what they cost in memory. Writer only.
func (t *Task) UncommittedBytes() int64 { return 0 }

// Commit makes the overlay the newest recent commit and publishes it with cp to readers, all or nothing. It does no I/O.
// Call it only when Kafka has committed. Writer only.
func (t *Task) Commit(cp store.Checkpoint) {}

// Rollback drops the overlay: the task is at its last published commit again. Writer only.
func (t *Task) Rollback() {}

// Restore applies a batch of changelog records of one store, in log order. Nothing becomes visible to readers or durable
// before the Commit that carries the position after the batch. Writer only.
func (t *Task) Restore(name store.Name, batch []store.Change) error { return errors.ErrUnsupported }

// Snapshot pins the last published commit. It must be closed. A task whose checkpoint is Restoring has none:
// *store.NotReadyError. ErrClosed after Close.
func (t *Task) Snapshot() (*Snapshot, error) { return nil, errors.ErrUnsupported }

// Close rolls back, moves what is recent to the engine within ctx, and releases the copy, which stays on disk. Open
// snapshots keep working until they are closed or the Stores are. Writer only; a second call does nothing.
func (t *Task) Close(ctx context.Context) error { return nil }

// Wipe drops the local data and begins an empty copy under a new key space, open. Writer only.
func (t *Task) Wipe(ctx context.Context) error { return errors.ErrUnsupported }

// Snapshot is a whole commit of a task. Safe for concurrent use until closed.
type Snapshot struct{}

// KeyValue is a store of the snapshot. *store.UnknownStoreError when the task does not have it.
func (s *Snapshot) KeyValue(name store.Name) (store.KeyValueReader, error) {
	return nil, errors.ErrUnsupported
}

// Checkpoint of the commit; must not be changed.
func (s *Snapshot) Checkpoint() store.Checkpoint { return store.Checkpoint{} }

// Close releases what the snapshot pins. Idempotent.
func (s *Snapshot) Close() {}
