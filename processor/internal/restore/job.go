package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
)

// job is one call of Restore; it belongs to the caller's goroutine.
type job struct {
	r       *Restorer
	req     Request
	started time.Time
	told    time.Time // when the log was told how far it is

	// stores in the order of their names; each has its position, its bound and its log.
	stores  []*restored
	cp      store.Checkpoint // what the next Commit carries; its changelog positions are those applied
	applied bool             // something was applied since the last Commit
	commits time.Time        // of the last one
	records int64
	rebuilt string
	// readable: the published state answers. It goes on to while what is read fits into one commit.
	readable bool
	// rebuilds counts the copies that were dropped.
	rebuilds prometheus.Counter
	// seeded: the request's Seed was asked.
	seeded bool
	// floor is the highest sequence of the copies that were here: a seed, or an empty copy, brings a lower one after the group's
	// offsets were reset.
	floor store.Sequence
}

// restored is one store of a job.
type restored struct {
	name            store.Name
	log             Changelog
	facts           logFacts
	from, next, end store.Offset
	// exact is how far a source topic must be processed; see Result.Exact. 0: the store is exact. It is, too, if the copy was
	// and nothing is missing in what is read (chain).
	exact store.Offset
	chain bool
	cuts  cuts
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
	now := time.Now()
	j := &job{r: r, req: req, started: now, told: now, rebuilds: r.metrics.rebuilds}
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

// rebuildError asks for another attempt on an empty copy.
type rebuildError struct{ reason string }

func (e *rebuildError) Error() string { return "local copy must be rebuilt: " + e.reason }

// maxRebuilds bounds the attempts of one restore: a log that is cut again and again under the reader is somebody's
// mistake, not a state that can be reached.
const maxRebuilds = 3

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
		if errors.Is(err, errSeeded) { // once
			attempt--
			continue
		}
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
	switch tried, err := j.seed(ctx, func() {}); {
	case err != nil:
		return Result{}, fmt.Errorf("seed the local copy: %w", err)
	case tried:
		return Result{}, errSeeded // the committed offsets and the bounds are asked for after it
	}
	if err := j.read(ctx); err != nil {
		j.leave()
		return Result{}, err
	}
	return j.finish(ctx, inputs, restoredAt), nil
}

// plan decides where to read each store from, and drops the copy when one of them needs it, or when it is none.
func (j *job) plan(ctx context.Context) error {
	if j.req.Task.Unfinished() {
		if err := j.wipe(ctx, "its replacement has not come to its end"); err != nil {
			return err
		}
	}
	have := j.req.Task.Checkpoint()
	for again := false; ; again = true {
		j.floor = max(j.floor, have.Sequence)
		j.cp = have.Clone()
		j.cp.Sequence = j.floor
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
			_, ok := have.Changelogs[s.name]
			s.chain, s.cuts = ok && !have.Restoring, cuts{next: v.from, source: true}
			j.cp.Changelogs[s.name] = store.LogPosition{TopicID: s.facts.id, LeaderEpoch: j.epoch(s, have), Next: v.from}
		}
		if reason == "" {
			j.readable = !have.Restoring && !slices.ContainsFunc(j.stores, func(s *restored) bool {
				_, ok := have.Changelogs[s.name]
				return !ok
			})
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
	var age time.Duration
	if have.WallTime > 0 {
		age = max(0, time.Since(time.UnixMilli(have.WallTime)))
	}
	return j.judgeAt(ctx, s, have, age)
}

// judgeAt is judge of a state of a known age; 0: it is not known.
func (j *job) judgeAt(ctx context.Context, s *restored, have store.Checkpoint, age time.Duration) (verdict, error) {
	e := evidence{
		logged: true, begin: s.facts.begin, end: s.facts.end, topic: s.facts.id, leaderEpoch: s.facts.leaderEpoch,
		epochEnd: -1, age: age, retention: s.log.Retention,
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
	j.rebuilds.Inc()
	j.r.log.WarnContext(ctx, "local copy dropped, rebuilding it from the changelog", "task", j.req.Task.ID().String(), "reason", reason)
	j.applied = false
	j.dropping()
	if err := j.req.Task.Wipe(ctx); err != nil {
		return fmt.Errorf("drop the local copy: %w", err)
	}
	return nil
}

func (j *job) dropping() {
	if j.req.Dropping != nil {
		j.req.Dropping()
	}
}
