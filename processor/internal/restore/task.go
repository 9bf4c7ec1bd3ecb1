package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Task is what a restore needs of a task's state; layered.Task is the one there is. The caller of Restore is its
// only writer meanwhile.
type Task interface {
	ID() store.TaskID
	// Checkpoint of the last published commit.
	Checkpoint() store.Checkpoint
	// Restore applies changes of one store in log order; Commit publishes them with the positions after them.
	Restore(name store.Name, batch []store.Change) error
	Commit(cp store.Checkpoint)
	// Rollback drops what was applied since the last Commit.
	Rollback()
	// Wipe drops the copy and begins an empty one.
	Wipe(ctx context.Context) error
	// UncommittedBytes is the size in memory of what was applied since the last Commit.
	UncommittedBytes() int64
}

// Restorer restores tasks. Safe for concurrent use.
type Restorer struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	budget  *budget
	// decoders are also the right to apply: more goroutines than processors would only hold more memory.
	decoders chan *decoder
	active   atomic.Int64 // restores that apply

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
		fences: map[string]*fencing{}, workers: map[int32]*worker{},
	}
	for range n {
		r.decoders <- newDecoder()
	}
	return r, nil
}

// rebuildError asks for another attempt on an empty copy.
type rebuildError struct{ reason string }

func (e *rebuildError) Error() string { return "local copy must be rebuilt: " + e.reason }

// maxRebuilds bounds the attempts of one restore: a log that is cut again and again under the reader is somebody's
// mistake, not a state that can be reached.
const maxRebuilds = 3

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

// job is one call of Restore; it belongs to the caller's goroutine.
type job struct {
	r       *Restorer
	req     Request
	started time.Time

	// stores in the order of their names; each has its position, its bound and its log.
	stores  []*restored
	cp      store.Checkpoint // what the next Commit carries; its changelog positions are those applied
	applied bool             // something was applied since the last Commit
	commits time.Time        // of the last one
	records int64
	rebuilt string
}

// restored is one store of a job.
type restored struct {
	name            store.Name
	log             Changelog
	facts           logFacts
	from, next, end store.Offset
	// exact is how far a source topic must be processed; see Result.Exact. 0: the store is exact.
	exact store.Offset
	// high is the end of a source topic, of which facts.end is only the part that was processed.
	high store.Offset
}

// cutAt is the bound of a store that is fed from an input: where the group stands. Nothing was processed when the group has
// no offset; a log that starts above it has lost what was between, which is reported where the input goes on.
func cutAt(c Committed, f logFacts) store.Offset {
	if !c.Exists {
		return f.begin
	}
	return max(f.begin, min(c.Next, f.end))
}

func newJob(r *Restorer, req Request) *job {
	j := &job{r: r, req: req, started: time.Now()}
	for name, c := range req.Changelogs {
		j.stores = append(j.stores, &restored{name: name, log: c})
	}
	slices.SortFunc(j.stores, func(a, b *restored) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return j
}

func (j *job) run(ctx context.Context) (Result, error) {
	select {
	case <-j.r.done:
		return Result{}, ErrStopped
	default:
	}
	j.req.Task.Rollback() // a restore begins at a commit, whatever the caller left behind
	if err := j.r.fence(ctx, j.req.Fence); err != nil {
		return Result{}, err
	}
	for attempt := 1; ; attempt++ {
		res, err := j.attempt(ctx)
		again, ok := errors.AsType[*rebuildError](err)
		if !ok || attempt > maxRebuilds {
			return res, err
		}
		if err := j.wipe(ctx, again.reason); err != nil {
			return Result{}, err
		}
	}
}

// attempt is a restore from the committed offsets on.
func (j *job) attempt(ctx context.Context) (Result, error) {
	inputs, err := j.r.committed(ctx, j.req.Inputs)
	if err != nil {
		return Result{}, err
	}
	restoredAt := time.Now() // all that was committed before is below the bounds asked for next
	facts, err := j.r.facts(ctx, j.req.Changelogs, j.req.Task.ID().Partition)
	if err != nil {
		return Result{}, err
	}
	for _, s := range j.stores {
		s.facts = facts[s.log.Topic]
		if s.log.Replay != nil {
			s.high = s.facts.end
			s.facts.end = cutAt(inputs[store.TopicPartition{Topic: s.log.Topic, Partition: j.partition()}], s.facts)
		}
	}
	if err := j.plan(ctx); err != nil {
		return Result{}, err
	}
	if err := j.read(ctx); err != nil {
		j.keep()
		return Result{}, err
	}
	return j.finish(ctx, inputs, restoredAt), nil
}

// plan decides where to read each store from, and drops the copy when one of them needs it.
func (j *job) plan(ctx context.Context) error {
	have := j.req.Task.Checkpoint()
	for again := false; ; again = true {
		j.cp = have.Clone()
		j.cp.Changelogs = make(map[store.Name]store.LogPosition, len(j.stores))
		reason := ""
		for _, s := range j.stores {
			v, err := j.judge(ctx, s, have)
			if err != nil {
				return err
			}
			if v.action == refuse {
				return &RefusedError{Topic: s.log.Topic, Partition: j.partition(), Reason: v.reason}
			}
			if v.action == rebuild && reason == "" {
				reason = fmt.Sprintf("changelog %s-%d: %s", s.log.Topic, j.partition(), v.reason)
			}
			s.from, s.next, s.end = v.from, v.from, s.facts.end
			s.exact = s.needs(have)
			j.cp.Changelogs[s.name] = store.LogPosition{TopicID: s.facts.id, LeaderEpoch: j.epoch(s, have), Next: v.from}
		}
		if reason == "" {
			return nil
		}
		if again { // an empty copy has no position that could be wrong
			return &rebuildError{reason: reason}
		}
		if err := j.wipe(ctx, reason); err != nil {
			return err
		}
		have = j.req.Task.Checkpoint()
	}
}

// needs says how far a store that is fed from a source topic must be processed to be a state that was. A copy that stands at
// the committed offset is one, unless it was on its way to that when it was left; so is one that has read the whole log.
func (s *restored) needs(have store.Checkpoint) store.Offset {
	switch {
	case s.log.Replay == nil, s.end >= s.high:
		return 0
	case s.from == s.end && (s.end == s.facts.begin || !have.Restoring):
		return 0
	default:
		return s.high
	}
}

func (j *job) judge(ctx context.Context, s *restored, have store.Checkpoint) (verdict, error) {
	e := evidence{
		logged: true, begin: s.facts.begin, end: s.facts.end, topic: s.facts.id, leaderEpoch: s.facts.leaderEpoch,
		epochEnd: -1, retention: s.log.Retention,
	}
	if have.WallTime > 0 {
		e.age = max(0, time.Since(time.UnixMilli(have.WallTime)))
	}
	if pos, ok := have.Changelogs[s.name]; ok {
		e.have = &pos
		if pos.LeaderEpoch >= 0 && pos.LeaderEpoch < e.leaderEpoch && pos.Next > 0 {
			var err error
			if e.epochEnd, err = j.r.epochEnd(ctx, s.log.Topic, int32(j.partition()), pos.LeaderEpoch); err != nil {
				return verdict{}, err
			}
		}
	}
	return judge(e), nil
}

// epoch is the leader epoch of the last batch applied; -1 when none was.
func (j *job) epoch(s *restored, have store.Checkpoint) int32 {
	if pos, ok := have.Changelogs[s.name]; ok && pos.Next == s.from {
		return pos.LeaderEpoch
	}
	return -1
}

func (j *job) partition() store.Partition { return j.req.Task.ID().Partition }

func (j *job) wipe(ctx context.Context, reason string) error {
	j.rebuilt = reason
	j.r.metrics.rebuilds.Inc()
	j.r.log.WarnContext(ctx, "local copy dropped, rebuilding it from the changelog", "task", j.req.Task.ID().String(), "reason", reason)
	j.applied = false
	if err := j.req.Task.Wipe(ctx); err != nil {
		return fmt.Errorf("drop the local copy: %w", err)
	}
	return nil
}

// read applies the logs up to their bounds, side by side.
func (j *job) read(ctx context.Context) error {
	j.commits = time.Now()
	j.report(Restoring, nil)
	var streams []*stream
	byStream := map[*stream]*restored{}
	for _, s := range j.stores {
		if s.next >= s.end {
			continue
		}
		st := &stream{
			store: s.name, topic: s.log.Topic, id: s.facts.id, partition: int32(j.partition()), bound: s.end, next: s.next,
			cut: s.log.Replay != nil,
		}
		streams = append(streams, st)
		byStream[st] = s
	}
	if len(streams) == 0 {
		return nil
	}
	j.r.active.Add(1)
	defer j.r.active.Add(-1)
	out := j.r.open(streams)
	defer j.r.close(streams, out)
	cfg := &j.r.cfg
	tick := time.NewTicker(min(cfg.ProgressInterval, cfg.HangingTimeout/2, cfg.StallTimeout/2))
	defer tick.Stop()
	for left := len(streams); left > 0; {
		select {
		case e := <-out:
			err := e.err
			if err == nil {
				err = j.apply(ctx, byStream[e.s], e)
			}
			if errors.Is(err, errOutOfRange) {
				err = &rebuildError{reason: fmt.Sprintf("changelog %s-%d no longer has offset %d", e.s.topic, e.s.partition, byStream[e.s].next)}
			}
			if err != nil {
				return err
			}
			if e.last {
				left--
			}
		case <-tick.C:
			if err := j.r.stuck(streams); err != nil {
				return err
			}
			j.report(Restoring, nil)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.r.done:
			return ErrStopped
		}
	}
	return nil
}

// apply hands one chunk to the task and moves the position behind it.
func (j *job) apply(ctx context.Context, s *restored, e event) error {
	defer j.r.applied(e)
	if e.held > 0 {
		var d *decoder
		select {
		case d = <-j.r.decoders:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var n counts
		var err error
		if s.log.Replay != nil {
			n, err = d.decodeRecords(e.chunk, j.partition(), s.log.Replay)
		} else {
			n, err = d.decode(e.chunk, func(changes []store.Change) error { return j.req.Task.Restore(s.name, changes) })
		}
		j.r.decoders <- d
		j.records += n.records
		j.r.metrics.read(n, e.held)
		if n.skipped > 0 {
			j.r.log.WarnContext(ctx, "changelog records without a key skipped", "task", j.req.Task.ID().String(), "store", string(s.name), "records", n.skipped)
		}
		if err != nil {
			j.req.Task.Rollback() // a part of the chunk may be in
			j.applied = false
			return fmt.Errorf("changelog %s-%d from offset %d: %w", s.log.Topic, j.partition(), e.chunk.from, err)
		}
	}
	s.next = e.next
	pos := j.cp.Changelogs[s.name]
	pos.Next = e.next
	if e.epoch >= 0 {
		pos.LeaderEpoch = e.epoch
	}
	j.cp.Changelogs[s.name] = pos
	j.applied = true
	share := max(j.r.cfg.CommitBytes/max(j.r.active.Load(), 1), minCommit)
	if j.req.Task.UncommittedBytes() >= share || time.Since(j.commits) >= j.r.cfg.CommitInterval {
		j.keep()
	}
	return nil
}

// minCommit keeps commits from becoming tiny when very many tasks restore at a time.
const minCommit = 64 << 10

// keep commits what was applied, marked as restoring, so that an interrupted restore goes on from here (CR-01).
func (j *job) keep() {
	if !j.applied {
		return
	}
	cp := j.cp.Clone()
	cp.Restoring = true
	if cp.WallTime == 0 { // the copy was empty: it lacks no deletion from before
		cp.WallTime = j.started.UnixMilli()
	}
	j.req.Task.Commit(cp)
	j.applied, j.commits = false, time.Now()
}

// finish commits the restored state: it is now what the group's newest commit made of the task.
func (j *job) finish(ctx context.Context, inputs map[store.TopicPartition]Committed, at time.Time) Result {
	have := j.req.Task.Checkpoint()
	res := Result{
		Inputs: inputs, StreamTime: -1, Position: store.Position{}, Rebuilt: j.rebuilt, Records: j.records,
	}
	cp := j.cp.Clone()
	cp.Inputs = make(map[store.TopicPartition]store.Offset, len(inputs))
	for tp, c := range inputs {
		if !c.Exists {
			continue
		}
		cp.Inputs[tp] = c.Next
		if c.Next > 0 {
			res.Position.Set(tp.Topic, tp.Partition, c.Next-1)
		}
		if c.Meta.Sequence > res.Sequence {
			res.Sequence = c.Meta.Sequence
		}
		res.StreamTime = max(res.StreamTime, c.Meta.StreamTime)
	}
	if have.Sequence > res.Sequence {
		// Offsets that were reset or have expired: the changelog, and so the state, stays. Sequences never go back.
		j.r.log.WarnContext(ctx, "the group's offsets are older than the local copy: records may be processed again",
			"task", j.req.Task.ID().String(), "sequence", res.Sequence, "local_sequence", have.Sequence)
		res.Sequence = have.Sequence
	}
	cp.Sequence, cp.StreamTime, cp.Position = res.Sequence, res.StreamTime, res.Position.Clone()
	for _, s := range j.stores {
		if s.exact == 0 {
			continue
		}
		if res.Exact == nil {
			res.Exact = make(map[store.Name]store.Offset)
		}
		res.Exact[s.name] = s.exact
	}
	cp.WallTime, cp.Restoring = at.UnixMilli(), len(res.Exact) > 0
	j.req.Task.Commit(cp)
	return res
}
