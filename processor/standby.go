package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// standbys keeps the copies that the group has asked this instance to keep: standbys, and warm-ups on their way to become
// active. Each has a goroutine that is the writer of the copy until a thread wants the task or the group wants the copy no
// more. Then the state is handed over open: a standby that is promoted reads the end of its changelogs, and an owner that
// becomes a standby goes on from its last commit. Safe for concurrent use.
type standbys struct {
	rt  *Runtime
	log *slog.Logger
	// poke makes run look around.
	poke chan struct{}

	mu sync.Mutex
	// told is the newest assignment that said what this process is to follow; it came to one of the threads.
	told group.Assignment
	// last is each thread's last assignment.
	last map[int]group.Assignment
	// followUp is when to ask the group for another placement, zero for never; calm is how long after the leader has wished for it.
	followUp time.Time
	calm     time.Duration
	kept     map[store.TaskID]*standby
}

// standby is one copy that is kept.
type standby struct {
	id     store.TaskID
	cancel context.CancelFunc
	// warmup: the task is to run here, and does once the copy has caught up. known: the group's leader was told that it has, or
	// was asked to look. Guarded by standbys.mu.
	warmup, known bool
	// follower is who reads the changelogs; nil while nobody does.
	follower atomic.Pointer[restore.Standby]
}

func newStandbys(r *Runtime) *standbys {
	return &standbys{
		rt: r, log: r.cfg.Logger, poke: make(chan struct{}, 1), calm: followUpWait,
		last: make(map[int]group.Assignment), kept: make(map[store.TaskID]*standby),
	}
}

// followUpWait is after how long a placement is asked for that the leader wants once more when things are calm.
const followUpWait = 30 * time.Second

// heed takes in what the group has assigned to a thread.
func (s *standbys) heed(thread int, a group.Assignment) {
	s.mu.Lock()
	s.last[thread] = a
	if a.Copies && a.Epoch >= s.told.Epoch {
		s.told, s.followUp = a, time.Time{}
	}
	if a.FollowUp {
		s.followUp = s.rt.now().Add(s.calm)
	}
	s.mu.Unlock()
	s.wake()
}

// forget leaves out a thread that was removed.
func (s *standbys) forget(thread int) {
	s.mu.Lock()
	delete(s.last, thread)
	s.mu.Unlock()
	s.wake()
}

func (s *standbys) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// report returns the tasks of which a copy is followed, in order. The leader of the group is told with them how far they are, so
// those that have caught up need not ask.
func (s *standbys) report() (standby, warmup []store.TaskID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.kept {
		k.known = s.caughtUp(k)
		switch {
		case k.follower.Load() == nil: // a thread has it, or nobody yet
		case k.warmup:
			warmup = append(warmup, id)
		default:
			standby = append(standby, id)
		}
	}
	slices.SortFunc(standby, store.TaskID.Compare)
	slices.SortFunc(warmup, store.TaskID.Compare)
	return standby, warmup
}

// readyInterval is how often copies are looked at that become active here once they have caught up.
const readyInterval = 250 * time.Millisecond

// run keeps the copies until ctx ends.
func (s *standbys) run(ctx context.Context) error {
	var keepers sync.WaitGroup
	defer keepers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		await(ctx, s.poke, s.review(ctx, &keepers))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// review starts and ends keepers, and asks the group for another placement when a copy that is awaited here has caught up. It
// returns when to look again, 0 for when something happens.
func (s *standbys) review(ctx context.Context, keepers *sync.WaitGroup) (again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := s.wantedLocked()
	for id, k := range s.kept {
		if !want[id] {
			k.cancel()
		}
	}
	for id := range want {
		if s.kept[id] != nil {
			continue
		}
		own, cancel := context.WithCancel(ctx)
		k := &standby{id: id, cancel: cancel}
		s.kept[id] = k
		keepers.Go(func() {
			s.keep(own, k)
			cancel()
			s.mu.Lock()
			delete(s.kept, id)
			s.mu.Unlock()
			s.wake() // it may be wanted again
		})
	}
	ask := false
	for _, id := range s.told.Warmup {
		if k := s.kept[id]; k != nil {
			k.warmup = true
		}
	}
	for _, id := range s.told.Awaited {
		k := s.kept[id]
		switch {
		case k == nil || k.known:
		case s.caughtUp(k):
			k.known, ask = true, true
			s.log.InfoContext(ctx, "copy has caught up, asking for its task", "task", id)
		default:
			again = readyInterval
		}
	}
	if !s.followUp.IsZero() {
		if wait := s.followUp.Sub(s.rt.now()); wait > 0 {
			again = cmp.Or(min(again, wait), wait)
		} else {
			s.followUp, ask = time.Time{}, true
		}
	}
	if ask {
		s.rt.rejoin()
	}
	return again
}

// wantedLocked are the copies that this process is to keep: what it was told to, and what its threads keep of what they have let
// go of since. What a thread runs is none of them.
func (s *standbys) wantedLocked() map[store.TaskID]bool {
	want := make(map[store.TaskID]bool)
	for _, id := range slices.Concat(s.told.Standby, s.told.Warmup, s.told.Retained) {
		want[id] = true
	}
	for _, a := range s.last {
		if a.Epoch < s.told.Epoch {
			continue // by now the task is among those told, or is not wanted
		}
		for _, release := range a.Releasing {
			if release.Keep {
				want[release.Task] = true
			}
		}
	}
	for _, a := range s.last {
		for _, id := range a.Active {
			delete(want, id)
		}
	}
	for id := range want {
		if plan := s.rt.taskPlans[id]; plan == nil || !plan.Stateful {
			delete(want, id)
		}
	}
	return want
}

// hereNow is what the group has said last of this instance.
type hereNow struct {
	// tasks that are here, each with the process it is to go to, "" when it stays.
	tasks map[store.TaskID]string
	// heeded: every thread was told that the group knows that the instance drains.
	heeded bool
	// copies that go once others have caught up, in order, and how many stay.
	copies []store.TaskID
	kept   int
}

func (s *standbys) here() hereNow {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hereNow{tasks: make(map[store.TaskID]string), heeded: len(s.last) > 0}
	for _, a := range s.last {
		h.heeded = h.heeded && a.Drains
		for _, id := range slices.Concat(a.Active, a.Incoming) {
			h.tasks[id] = ""
		}
		for _, rel := range a.Releasing {
			h.tasks[rel.Task] = rel.To
		}
	}
	stay := make(map[store.TaskID]bool)
	if s.told.Drains {
		for _, id := range s.told.Standby {
			stay[id] = true
		}
	}
	for id := range s.wantedLocked() {
		if stay[id] {
			h.kept++
		} else {
			h.copies = append(h.copies, id)
		}
	}
	slices.SortFunc(h.copies, store.TaskID.Compare)
	return h
}

// caughtUp reports whether a copy is near enough to the end of its changelogs for the leader to place its task here.
func (s *standbys) caughtUp(k *standby) bool {
	f := k.follower.Load()
	return f != nil && f.Exact() && f.Lag() <= s.told.ReadyLag
}

// keep follows the changelogs of a task whenever no thread has it, until ctx ends.
func (s *standbys) keep(ctx context.Context, k *standby) {
	const first, last = 100 * time.Millisecond, 5 * time.Second
	wait := first
	for ctx.Err() == nil {
		began := s.rt.now()
		err := s.stay(ctx, k)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.Canceled): // a thread wants it: the next stay waits until it lets go
			continue
		case s.rt.now().Sub(began) > time.Minute:
			wait = first
		}
		s.log.WarnContext(ctx, "standby failed, beginning again", "task", k.id, "error", err)
		if sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, last)
	}
}

// stay is one stay of a copy with its follower.
func (s *standbys) stay(ctx context.Context, k *standby) (err error) {
	r := s.rt
	ctx, letGo := context.WithCancel(ctx)
	defer letGo()
	plan := r.taskPlans[k.id]
	sub := r.built.subs[k.id.Subtopology]
	state, err := r.tasks.follow(ctx, k.id, letGo, func(ctx context.Context) (*layered.Task, error) {
		return r.stores.OpenTask(ctx, k.id, r.built.StoreSpecs(k.id.Subtopology))
	})
	if err != nil {
		return err
	}
	defer r.tasks.release(k.id)
	// What is replayed into a copy goes through processors of its own.
	logs, closeReplays, err := r.logs(k.id, sub, plan.Inputs, state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeReplays()) }()

	watched := r.rounds.Watch(k.id, plan.Inputs, logs)
	defer watched.Close() // what it has proven holds, whoever goes on with the copy
	cp := state.Checkpoint()
	following := r.tasks.replica(k.id).goOn(&cp, watched)
	first := following
	r.tasks.replicate(k.id, &first)
	defer k.follower.Store(nil)
	defer state.Rollback()
	return r.standbyLogs.Standby(ctx, restore.StandbyRequest{
		Task: state, Changelogs: logs, Watched: watched,
		Seed: r.seed(k.id, state, &r.seeds.standby, func(string, int64, int64) {}),
		Dropping: func() {
			following.since, following.owned = time.Time{}, time.Time{}
			now := following
			r.tasks.replicate(k.id, &now)
		},
		Begun: func(f *restore.Standby) {
			following.follower = f
			now := following
			r.tasks.replicate(k.id, &now)
			k.follower.Store(f)
			s.wake()
		},
		Published: func() { r.tasks.raise(k.id) },
	})
}

// placement is how this instance places tasks when one of its threads leads the group.
func (r *Runtime) placement() group.Options {
	return group.Options{
		Standbys: r.cfg.NumStandbyReplicas, AcceptableLag: max(r.cfg.AcceptableRecoveryLag, 0), MaxWarmups: r.cfg.MaxWarmupReplicas,
		RackAwareTags: r.cfg.RackAwareTags,
	}
}

// changelogEnds sums, for each task, how far its changelogs go: their last stable offsets, and of a source topic in the place of
// one what the group has committed.
func (r *Runtime) changelogEnds(ctx context.Context, tasks []store.TaskID) (map[store.TaskID]int64, error) {
	var logs, sources []store.TopicPartition
	of := make(map[store.TaskID][]store.TopicPartition, len(tasks))
	for _, id := range tasks {
		plan := r.taskPlans[id]
		for _, s := range r.built.subs[id.Subtopology].stores {
			topic, _ := r.logOf(s)
			tp := store.TopicPartition{Topic: topic, Partition: id.Partition}
			switch {
			case topic == "":
				continue
			case s.source == "":
				logs = append(logs, tp)
			case slices.Contains(plan.Inputs, tp):
				sources = append(sources, tp)
			default:
				continue
			}
			of[id] = append(of[id], tp)
		}
	}
	ends := make(map[store.TopicPartition]store.Offset, len(logs)+len(sources))
	if len(logs) > 0 {
		stable, err := r.listOffsets(ctx, logs, listLatest)
		if err != nil {
			return nil, err
		}
		ends = stable
	}
	if len(sources) > 0 {
		committed, err := r.coord.committed(ctx, sources, lastKnown)
		if err != nil {
			return nil, fmt.Errorf("committed offsets: %w", err)
		}
		for _, tp := range sources {
			ends[tp] = max(committed[tp].next, 0)
		}
	}
	sums := make(map[store.TaskID]int64, len(of))
	for id, tps := range of {
		for _, tp := range tps {
			sums[id] += int64(ends[tp])
		}
	}
	return sums, nil
}

// StandbyInfo describes one copy that this instance keeps of a task that it does not run.
type StandbyInfo struct {
	ID store.TaskID
	// Warmup: the task is to run here, and does once the copy has caught up.
	Warmup bool
	// Exact says that the copy is a state that its owner had, and answers.
	Exact bool
	// Lag is how many offsets of the changelogs are known and not applied.
	Lag int64
	// Age is the proven upper limit of how old the copy is; -1 when nothing is proven.
	Age time.Duration
}

// Standbys lists the copies that this instance keeps of tasks that it does not run, in order.
func (r *Runtime) Standbys() []StandbyInfo {
	s := r.standbys
	s.mu.Lock()
	var infos []StandbyInfo
	for id, k := range s.kept {
		if f := k.follower.Load(); f != nil {
			infos = append(infos, StandbyInfo{ID: id, Warmup: k.warmup, Exact: f.Exact(), Lag: f.Lag(), Age: -1})
		}
	}
	s.mu.Unlock()
	for i := range infos {
		e := r.tasks.lookup(infos[i].ID)
		if e == nil || e.state == nil || e.replica == nil {
			continue
		}
		cp := e.state.Checkpoint()
		if since, _ := e.replica.proof(&cp); !since.IsZero() {
			infos[i].Age = elapsed(since, r.now())
		}
	}
	slices.SortFunc(infos, func(a, b StandbyInfo) int { return a.ID.Compare(b.ID) })
	return infos
}
