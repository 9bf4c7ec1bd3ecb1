package restore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/statemesh/statemesh/store"
)

// run follows until something fails that another beginning does not mend.
func (s *Standby) run(ctx context.Context) error {
	for rebuilds := 0; ; rebuilds++ {
		exact, err := s.follow(ctx)
		if exact {
			rebuilds, s.job.seeded = 0, false
		}
		again, ok := errors.AsType[*rebuildError](err)
		if !ok || rebuilds >= maxRebuilds {
			return err
		}
		s.forget()
		if err := s.job.wipe(ctx, again.reason); err != nil {
			return err
		}
	}
}

// follow is one beginning. It reports whether the copy is exact at the end of it.
func (s *Standby) follow(ctx context.Context) (exact bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	streams := make([]*stream, len(s.logs))
	for i, f := range s.logs {
		streams[i] = f.s
	}
	out := s.r.open(streams)
	defer func() {
		s.r.close(streams, out)
		s.leave(ctx)
		exact = s.Exact()
	}()
	s.commit(ctx)
	cfg := &s.r.cfg
	tick := time.NewTicker(min(10*time.Second, cfg.StallTimeout/2))
	defer tick.Stop()
	for {
		if ctx.Err() != nil { // with chunks waiting the select would see it by luck only
			return false, context.Cause(ctx)
		}
		var moved <-chan struct{}
		if s.req.Watched != nil && slices.ContainsFunc(s.logs, func(f *followed) bool { return f.cuts.source }) {
			moved = s.req.Watched.Changed()
			s.raise(ctx)
		}
		select {
		case e := <-out:
			if err := s.take(ctx, e); err != nil {
				return false, err
			}
		case <-moved:
		case <-tick.C:
			if err := s.stuck(); err != nil {
				return false, err
			}
			s.renew(wallInterval)
			if done, total, left := s.Progress(); s.catching && done < total {
				tell(s.log.With("as", "standby"), done, total, left)
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-s.r.done:
			return false, ErrStopped
		}
	}
}

// begin compares the copy with the changelogs and decides where to read on.
func (s *Standby) begin(ctx context.Context) error {
	task := s.req.Task
	task.Rollback()
	if s.job == nil {
		s.job = newJob(s.r, Request{Task: task, Changelogs: s.req.Changelogs, Seed: s.req.Seed, Dropping: s.req.Dropping})
		s.job.rebuilds = s.r.standbys.rebuilds
	}
	for tried := true; tried; {
		facts, err := s.r.facts(ctx, s.req.Changelogs, task.ID().Partition)
		if err != nil {
			return err
		}
		if err := s.resume(ctx, facts); err != nil {
			return err
		}
		if tried, err = s.job.seed(ctx, s.forget); tried || err != nil {
			s.caughtUp()
		}
		if err != nil {
			return fmt.Errorf("seed the local copy: %w", err)
		}
	}
	return nil
}

func (s *Standby) resume(ctx context.Context, facts map[string]logFacts) error {
	task := s.req.Task
	for _, st := range s.job.stores {
		st.facts = facts[st.log.Topic]
	}
	if err := s.job.plan(ctx); err != nil {
		return err
	}
	have := task.Checkpoint()
	s.cp, s.commits, s.applied, s.spoiled = s.job.cp.Clone(), time.Now(), false, false
	if s.cp.WallTime == 0 { // the copy is empty: it lacks no deletion from before
		s.cp.WallTime = s.job.started.UnixMilli()
	}
	s.logs, s.byLog = nil, make(map[*stream]*followed)
	readable := !have.Restoring
	for _, st := range s.job.stores {
		pos, ok := have.Changelogs[st.name]
		readable = readable && ok
		f := s.newFollowed(st, ok && !have.Restoring, ok && pos.Next > st.facts.begin)
		s.logs = append(s.logs, f)
		s.byLog[f.s] = f
	}
	if !readable {
		s.catchUp()
	}
	s.mu.Lock()
	s.exact, s.shown, s.began = readable, nil, time.Now()
	for _, f := range s.logs {
		s.shown = append(s.shown, &shownLog{name: f.name, s: f.s, from: f.next, next: f.next, end: f.end})
	}
	s.mu.Unlock()
	return nil
}

// newFollowed is a store that is followed from where the plan says. exact: the copy is exact there. amid: there may be data of
// open transactions before.
func (s *Standby) newFollowed(st *restored, exact, amid bool) *followed {
	pos := s.cp.Changelogs[st.name]
	f := &followed{
		name: st.name, log: st.log, end: st.facts.end, next: st.from, exact: exact, data: st.from,
		seen: time.UnixMilli(s.cp.WallTime), read: time.UnixMilli(s.cp.WallTime),
		cuts: cuts{next: st.from, epoch: pos.LeaderEpoch, data: st.from, unsure: !exact, source: st.log.Replay != nil},
		s: &stream{
			store: st.name, topic: st.log.Topic, id: st.facts.id, partition: int32(s.req.Task.ID().Partition), bound: math.MaxInt64,
			next: st.from, follow: true, standby: true, lastEpoch: pos.LeaderEpoch,
		},
	}
	switch {
	case f.cuts.source:
		// The copy of an owner of a moment ago may be further than the last round knows.
		f.s.cut, f.s.bound, f.end = true, st.from, st.from
		f.begin = st.facts.begin
		if st.from == 0 { // as long as nothing is missing every cut is exact, however far the group is behind the end
			f.cuts.unsure = false
		}
	case !exact && st.from == st.facts.end: // all there is was decided when it was read
		f.exact, f.cuts.unsure = true, false
	case !exact && amid:
		f.cuts.doubt(unknownProducer)
	}
	f.s.tell = f.cuts.wondering()
	return f
}

// raise lets the stores of source topics go on to where the group has committed.
func (s *Standby) raise(ctx context.Context) {
	for _, f := range s.logs {
		if !f.cuts.source {
			continue
		}
		tp := store.TopicPartition{Topic: f.log.Topic, Partition: s.req.Task.ID().Partition}
		c, ok := s.req.Watched.Committed(tp)
		switch {
		case !ok:
		case c.Exists && c.Next > f.begin:
			s.r.raise(f.s, c.Next)
		case f.next == f.begin && !f.exact: // nothing that there is has been processed
			f.exact = true
			s.commit(ctx)
		}
	}
}

// stuck says why nothing can be expected any more, or is nil. A transaction that hangs only makes the copy older.
func (s *Standby) stuck() error {
	now := time.Now()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, f := range s.logs {
		st := f.s
		if waited := now.Sub(st.errSince); st.lastErr != nil && waited >= s.r.cfg.StallTimeout {
			return &StalledError{Topic: st.topic, Partition: store.Partition(st.partition), Next: st.next, Waited: waited, Err: st.lastErr}
		}
	}
	return nil
}
