package layered

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Stores are the state of every task on this instance. Safe for concurrent use.
type Stores struct {
	cfg     Config
	seed    maphash.Seed
	dir     *directory
	disks   []disk
	memory  engine.Engine
	metrics *metrics
	wakeup  chan struct{} // of Run
	moved   chan struct{} // of what it does beside moving
	// moveNow moves tasks at once; it is for a writer whose recent commits have outgrown their share.
	moveNow func(...*Task) error
	// loadBytes is how much of a copy is collected for one move: what it costs to make it durable is little beside the rest then.
	loadBytes int64

	reads     *openReads
	closed    atomic.Bool
	iterators atomic.Int64
	kept      atomic.Int64 // snapshots that are not tracked any more
	open      atomic.Int64 // tasks
	recent    recent

	mu    sync.Mutex
	tasks map[store.TaskID]*Task // open or closing
	// opening holds the tasks that are being opened or dropped; the channel is closed at the end of that.
	opening map[store.TaskID]chan struct{}
}

// disk is an engine that outlives the process.
type disk struct {
	engine.Engine
	limits engine.Limits
}

// Open locks Dir, opens the engines and undoes what a cut move left behind.
// ErrLocked when another process holds Dir; *VersionError when another version of the program wrote it. Corrupt local
// data is moved aside, logged and rebuilt from the changelogs later.
func Open(ctx context.Context, cfg Config) (*Stores, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("stores: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Stores{
		cfg: cfg, loadBytes: 4 << 20, reads: newOpenReads(), seed: maphash.MakeSeed(), wakeup: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		tasks: make(map[store.TaskID]*Task), opening: make(map[store.TaskID]chan struct{}),
	}
	s.recent.move, s.recent.all = cfg.MoveBytes, cfg.RecentBytes
	var err error
	if s.metrics, err = newMetrics(cfg.Registerer, s); err != nil {
		return nil, fmt.Errorf("stores: metrics: %w", err)
	}
	if !cfg.InMemory {
		if s.dir, err = lockDirectory(ctx, cfg.Dir); err != nil {
			return nil, err
		}
	}
	if err := s.openEngines(ctx); err != nil {
		return nil, errors.Join(err, s.dir.release())
	}
	lasting := context.WithoutCancel(ctx)
	s.moveNow = func(tasks ...*Task) error { return s.move(lasting, tasks) }
	return s, nil
}

// Held lists the copies this instance has, open or not, with their newest durable or published checkpoint.
func (s *Stores) Held() []HeldTask {
	held := make(map[store.TaskID]HeldTask)
	for _, e := range s.engines() {
		for _, sp := range e.Spaces() {
			if sp.Record == nil {
				continue
			}
			rec, err := decodeRecord(sp.Record)
			if err != nil {
				continue // opening the task says so
			}
			cp := rec.checkpoint(func(name store.Name) bool { return rec.Stores[name].ID == sp.Stores[name].ID })
			if h, ok := held[sp.Task]; ok {
				cp = combine(h.Checkpoint, cp)
			}
			held[sp.Task] = HeldTask{ID: sp.Task, Checkpoint: cp}
		}
	}
	s.mu.Lock()
	open := maps.Clone(s.tasks)
	s.mu.Unlock()
	for id, t := range open {
		if v := t.pinned(); v != nil {
			held[id] = HeldTask{ID: id, Checkpoint: t.held(v), Open: true}
			v.unpin()
		}
	}
	out := slices.Collect(maps.Values(held))
	slices.SortFunc(out, func(a, b HeldTask) int { return a.ID.Compare(b.ID) })
	return out
}

// OpenTask opens the copy of a task, or begins an empty one. ErrTaskOpen when it is open already; a task that is being
// closed is waited for. Stores that the copy has and specs do not name are dropped, as are those whose data has no
// changelog position, for it could not be brought up to date.
func (s *Stores) OpenTask(ctx context.Context, id store.TaskID, specs []store.Spec) (*Task, error) {
	leave, err := s.reserve(ctx, id)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := s.newTask(id, specs)
	if err != nil {
		return nil, err
	}
	if err := t.load(ctx); err != nil {
		return nil, fmt.Errorf("task %s: open: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, store.ErrClosed
	}
	s.tasks[id] = t
	s.open.Add(1)
	return t, nil
}

// DropTask deletes the copy of a task that is not open. It is hidden at once and its space reclaimed later, by Run.
func (s *Stores) DropTask(ctx context.Context, id store.TaskID) error {
	leave, err := s.reserve(ctx, id)
	if err != nil {
		return err
	}
	defer leave()
	for _, e := range s.engines() {
		for _, sp := range e.Spaces() {
			if sp.Task != id {
				continue
			}
			if err := e.Drop(ctx, sp.ID); err != nil {
				return fmt.Errorf("task %s: drop: %w", id, err)
			}
		}
	}
	s.wake()
	return nil
}

// Close moves what is recent, closes the engines and releases the lock. Tasks must be closed before; one that is not is
// named in the error and what it has not committed is lost. Snapshots and iterators end with store.ErrClosed.
func (s *Stores) Close() error {
	s.mu.Lock()
	if s.closed.Swap(true) {
		s.mu.Unlock()
		return nil
	}
	open := slices.Collect(maps.Values(s.tasks))
	s.mu.Unlock()
	var errs []error
	for _, t := range open {
		errs = append(errs, fmt.Errorf("task %s: %w", t.id, store.ErrTaskOpen), s.moveNow(t))
	}
	for _, e := range s.engines() {
		errs = append(errs, e.Close())
	}
	s.metrics.unregister()
	errs = append(errs, s.dir.release())
	return errors.Join(errs...)
}

// OpenIterators counts the iterators that are open now: when nothing reads it is 0.
func (s *Stores) OpenIterators() int64 { return s.iterators.Load() }

// OpenSnapshots counts the snapshots that are open now.
func (s *Stores) OpenSnapshots() int64 { return s.reads.snapshots() + s.kept.Load() }

// HeldTask is one copy in the state directory.
type HeldTask struct {
	ID         store.TaskID
	Checkpoint store.Checkpoint
	Open       bool
}

// combine is the checkpoint of a copy that lies in two engines: each store's changelog position and time are those of its
// engine, all else is that of the engine that is further behind. When they differ the copy is the state of no commit.
func combine(a, b store.Checkpoint) store.Checkpoint {
	if b.Sequence < a.Sequence {
		a, b = b, a
	}
	out := a.Clone()
	if out.Changelogs == nil {
		out.Changelogs = make(map[store.Name]store.LogPosition)
	}
	maps.Copy(out.Changelogs, b.Changelogs)
	if out.StoreTimes == nil {
		out.StoreTimes = b.StoreTimes
	} else {
		maps.Copy(out.StoreTimes, b.StoreTimes)
	}
	out.Restoring = a.Restoring || b.Restoring || a.Sequence != b.Sequence
	return out
}

// reserve makes the caller the only one that opens or drops the task, which is not open then.
func (s *Stores) reserve(ctx context.Context, id store.TaskID) (leave func(), err error) {
	for {
		s.mu.Lock()
		if s.closed.Load() {
			s.mu.Unlock()
			return nil, store.ErrClosed
		}
		wait := s.opening[id]
		if t := s.tasks[id]; t != nil && wait == nil {
			if t.current.Load() != nil {
				s.mu.Unlock()
				return nil, fmt.Errorf("task %s: %w", id, store.ErrTaskOpen)
			}
			wait = t.gone
		}
		if wait == nil {
			mine := make(chan struct{})
			s.opening[id] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.opening, id)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("task %s: %w: %w", id, store.ErrTaskOpen, context.Cause(ctx))
		}
	}
}

func (s *Stores) engines() []engine.Engine {
	out := make([]engine.Engine, 0, len(s.disks)+1)
	for _, d := range s.disks {
		out = append(out, d.Engine)
	}
	return append(out, s.memory)
}

// wake tells Run that there is something to do.
func (s *Stores) wake() { ring(s.wakeup) }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// leaked reports something that the collector found open.
func (s *Stores) leaked(what string, name store.Name, t *tracked) {
	s.metrics.leaks.Add(1)
	s.cfg.Logger.Error("left open by its user", "what", what, "store", name, "user", t.user, "place", describe(t.place))
}

// limitsOf are the limits of one store's records.
func (s *Stores) limitsOf(spec store.Spec, e engine.Limits) ([]limit, error) {
	var limits []limit
	if !spec.NoChangelog {
		l := limit{what: "record", bytes: s.cfg.MaxRecordBytes, setting: "MaxRecordBytes"}
		if v, ok := spec.ChangelogConfig["max.message.bytes"]; ok {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil || n <= batchOverhead {
				return nil, fmt.Errorf("store %s: changelog max.message.bytes %q: want a number above %d", spec.Name, v, batchOverhead)
			}
			l.bytes, l.setting = n-batchOverhead, "max.message.bytes of the changelog"
		}
		limits = append(limits, l)
	}
	if e.KeyBytes > 0 {
		limits = append(limits, limit{what: "key", bytes: e.KeyBytes, setting: "the engine's format"})
	}
	if e.RecordBytes > 0 {
		limits = append(limits, limit{what: "record", bytes: e.RecordBytes - timestampBytes, setting: e.Setting})
	}
	return limits, nil
}

// batchOverhead is more than what a batch of one record adds to key and value: 61 bytes of header, lengths, and room for
// the record's headers.
const batchOverhead = 512
