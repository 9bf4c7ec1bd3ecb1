package restore

import (
	"context"
	"slices"
	"time"
)

// catchUp begins to apply what is not exact. The right to apply large overlays is shared with those who restore.
func (s *Standby) catchUp() {
	if !s.catching {
		s.catching = true
		s.r.active.Add(1)
	}
}

// caughtUp ends it.
func (s *Standby) caughtUp() {
	if s.catching {
		s.catching = false
		s.r.active.Add(-1)
	}
}

// commit publishes what may be published, and keeps the rest from growing.
func (s *Standby) commit(ctx context.Context) {
	switch {
	case s.catching && !slices.ContainsFunc(s.logs, func(f *followed) bool { return !f.exact }):
		s.caughtUp()
		s.publish()
	case !s.applied:
	case !s.catching:
		s.publish()
	case s.req.Task.UncommittedBytes() >= s.r.share():
		s.set(ctx)
	case !s.Exact() && time.Since(s.commits) >= s.r.cfg.CommitInterval:
		s.set(ctx)
	}
}

// publish commits an exact state.
func (s *Standby) publish() {
	s.cp.WallTime = s.seen().UnixMilli()
	s.known()
	s.cp.Restoring = false
	s.req.Task.Commit(s.cp)
	s.applied, s.commits = false, time.Now()
	s.show()
	if s.req.Published != nil {
		s.req.Published()
	}
}

// set commits a state that is not exact, so that it need not be read again (CR-01). It bears the time of the last exact one.
func (s *Standby) set(ctx context.Context) {
	if s.Exact() {
		s.log.WarnContext(ctx, "standby answers nothing until it is exact again: its changelog was cleaned ahead of it")
	}
	s.cp.Restoring = true
	s.req.Task.Commit(s.cp)
	s.applied, s.commits = false, time.Now()
	s.show()
}

// known completes the checkpoint by what the rounds have proven of the positions in it; what is there stays when they know
// less. It may be behind the data, for a round comes after the commit that it tells of.
func (s *Standby) known() {
	if s.req.Watched == nil {
		return
	}
	p, ok := s.req.Watched.Proof(s.cp.Changelogs)
	if ok && p.Sequence > s.cp.Sequence {
		s.cp.Sequence, s.cp.StreamTime, s.cp.Inputs, s.cp.Position = p.Sequence, p.StreamTime, p.Inputs, p.Position
	}
}

// seen is a time up to which everything that had been written is applied, in all changelogs.
func (s *Standby) seen() (oldest time.Time) {
	for i, f := range s.logs {
		if i == 0 || f.seen.Before(oldest) {
			oldest = f.seen
		}
	}
	return oldest
}

// show tells others of the last commit.
func (s *Standby) show() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exact = !s.cp.Restoring
	for i, f := range s.logs {
		l := s.shown[i]
		if l.next == f.next {
			continue
		}
		l.next = f.next
		if len(l.data) == keptTokens {
			l.data = append(l.data[:0], l.data[1:]...)
		}
		l.data = append(l.data, published{next: f.next, data: f.data})
	}
}

// wallInterval is how often the time of a copy whose changelogs rest is written down.
const wallInterval = 10 * time.Minute

// renew writes down that a copy of which nothing has changed for some time is still all there is: else it would seem older
// than deletions are kept, once it is behind.
func (s *Standby) renew(least time.Duration) {
	if s.catching || s.applied || !s.Exact() {
		return
	}
	s.r.mu.Lock()
	for _, f := range s.logs {
		if len(f.waiting) == 0 && f.s.pending == 0 && f.s.seen.After(f.seen) {
			f.seen = f.s.seen
		}
	}
	s.r.mu.Unlock()
	if wall := s.seen().UnixMilli(); wall-s.cp.WallTime >= least.Milliseconds() {
		s.cp.WallTime = wall
		s.req.Task.Commit(s.cp)
	}
}

// leave ends a stay: what waits is dropped, what is applied stays if it may.
func (s *Standby) leave(ctx context.Context) {
	for _, f := range s.logs {
		for i := range f.waiting {
			s.release(&f.waiting[i])
		}
		f.waiting = nil
	}
	switch {
	case s.applied && s.catching && !s.spoiled && !s.Exact():
		s.set(ctx)
	case s.applied || s.spoiled: // a part of a cut; or the copy answers, and goes on to, while another takes it over
		s.req.Task.Rollback()
	default:
		s.renew(time.Minute)
	}
	s.caughtUp()
}

// forget tells others that the copy is about to be dropped.
func (s *Standby) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exact, s.shown = false, nil
}
