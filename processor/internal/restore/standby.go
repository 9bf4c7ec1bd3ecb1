package restore

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
)

// StandbyRequest describes a copy that follows the changelogs of one task.
type StandbyRequest struct {
	// Task is open. Standby is its only writer until it returns; snapshots may be taken all the time, and those of an exact
	// copy answer. The record cache of a former owner must be off (layered.Task.UseCache(nil)).
	Task Task
	// Changelogs of the logged stores, as in Request. At least one.
	Changelogs map[store.Name]Changelog
	// Watched is the task in the rounds: it says where the inputs stand, which goes into the checkpoints. Required when a
	// changelog has a Replay, which is cut there; else it may be nil. The caller closes it after Standby has returned.
	Watched *Watched
	// PendingBytes is what may wait in memory because it may not be published yet, in bytes as they came from the brokers;
	// beyond it the copy is applied without being exact. It is a part of Config.BufferBytes, of which all standbys together
	// take no more than a quarter. 0: a sixteenth of it.
	PendingBytes int64
	// Seed may bring the copy forward by other means before the changelogs are read, each time that the standby has to begin
	// without an exact state; nil: nobody does.
	Seed Seed
	// Dropping: as in Request.
	Dropping func()
	// Begun is told, before the first record and once, who follows. It must not block. nil: nobody.
	Begun func(*Standby)
	// Published is called after each commit of an exact state, from Standby's goroutine. It must not block. nil: nobody.
	Published func()
}

// Standby follows the changelogs of a task until ctx ends or something fails: its own end never comes. What it publishes, by
// Task.Commit, are whole commits of each store, and exact states only; the checkpoint of a copy that is not exact is
// Restoring, so that nobody reads it. What was applied stays in the copy, and the next Standby or Restore goes on from there,
// without opening or reading anything again. An exact copy stays readable while it is handed from one to the other.
//
// Whatever may pass is waited for: a leader that moves, a broker that is away (up to Config.StallTimeout), a transaction that
// hangs (without end: it makes the copy older, and that shows). A copy that is no past of its changelog is dropped and
// rebuilt. Errors are those of Restore but for fences, bounds and offsets: *StalledError, *TopicChangedError, *RefusedError,
// *CorruptLogError, ErrStopped, the cause of ctx, what the task's store says, or what the brokers refused.
func (r *Restorer) Standby(ctx context.Context, req StandbyRequest) error {
	id := req.Task.ID()
	for name, c := range req.Changelogs {
		if c.Replay != nil && req.Watched == nil {
			return fmt.Errorf("standby of task %s: store %s is fed from topic %s, and nobody says where the group stands", id, name, c.Topic)
		}
	}
	if len(req.Changelogs) == 0 {
		return fmt.Errorf("standby of task %s: no changelogs", id)
	}
	select {
	case <-r.done:
		return ErrStopped
	default:
	}
	s := newStandby(r, req)
	r.standbys.add(s)
	defer r.standbys.remove(s)
	if req.Begun != nil {
		req.Begun(s)
	}
	err := s.run(ctx)
	if ctx.Err() == nil {
		s.log.WarnContext(ctx, "standby ended", "error", err)
	}
	return fmt.Errorf("standby of task %s: %w", id, err)
}

// Standby is a task being followed. Its methods are safe for concurrent use, cost no request, and say where it stopped after
// Restorer.Standby has returned.
//
// How fresh an answer is: take a snapshot, and ask Watched.Proof for the positions in the snapshot's own checkpoint. Every
// advance of a position is published, over control records, aborted data and what the cleaner took as well, so the position
// of the snapshot is the reader's whenever all it has read is published.
type Standby struct {
	r   *Restorer
	req StandbyRequest
	log *slog.Logger

	// The goroutine of Restorer.Standby has these for itself.
	job     *job // what a restore does before it reads
	logs    []*followed
	byLog   map[*stream]*followed
	cp      store.Checkpoint // what the next commit carries
	commits time.Time        // of the last one
	// catching: what is applied is not published as exact, so all stores go on to their last cuts, and the copy is exact when
	// all of them are at once. Else each is published for itself.
	catching bool
	applied  bool // something was applied, or a position moved, since the last commit
	spoiled  bool // a part of a piece is applied
	pending  int64

	mu    sync.Mutex // never taken with Restorer.mu held
	exact bool
	shown []*shownLog
	began time.Time // of the reading
}

// shownLog is what others may know of one changelog of a standby. Guarded by Standby.mu.
type shownLog struct {
	name            store.Name
	s               *stream
	from, next, end store.Offset // end at the start
	// data has, for the newest published positions, the place behind the last record before each; oldest first.
	data []published
}

type published struct{ next, data store.Offset }

// keptTokens is how many published positions of a store remember their last record: those of readers that are at work.
const keptTokens = 64

func newStandby(r *Restorer, req StandbyRequest) *Standby {
	most := r.cfg.BufferBytes / 4
	s := &Standby{r: r, req: req, pending: req.PendingBytes, log: r.log.With("task", req.Task.ID().String())}
	if s.pending <= 0 {
		s.pending = r.cfg.BufferBytes / 16
	}
	s.pending = min(s.pending, most)
	return s
}

// Lag counts the offsets from the position of the last commit (of an exact state or not) to the last stable offset that was
// last heard of, over all changelogs; for a source topic, to the committed offset. Before the brokers have said where the
// changelogs end it is math.MaxInt64.
func (s *Standby) Lag() int64 {
	if left, ok := s.lag(); ok {
		return left
	}
	return math.MaxInt64
}

// Exact reports whether the published state is exact: the copy answers.
func (s *Standby) Exact() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exact
}

// Progress counts offsets of what the changelogs held when the standby began or was last rebuilt, and estimates how long the
// rest takes; 0 when that is unknown.
func (s *Standby) Progress() (done, total int64, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.shown {
		done += int64(max(min(l.next, l.end)-l.from, 0))
		total += int64(max(l.end-l.from, 0))
	}
	return done, total, timeLeft(done, total, time.Since(s.began))
}

// Token is the cut for a token of a state with this position: behind the last record that is in it, so without the control
// records at its end, which an owner does not count. When that is no longer known, which is long after, it is the position.
func (s *Standby) Token(name store.Name, at store.LogPosition) store.Cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := store.Cut{TopicID: at.TopicID, Next: at.Next}
	for _, l := range s.shown {
		if l.name != name || known(l.s.id) && known(at.TopicID) && l.s.id != at.TopicID {
			continue
		}
		for _, p := range l.data {
			if p.next == at.Next {
				cut.Next = p.data
			}
		}
	}
	return cut
}

// lag is Lag; ok is false before the ends are known.
func (s *Standby) lag() (left int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == nil {
		return 0, false
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, l := range s.shown {
		end := max(l.end, l.s.stable)
		if l.s.cut {
			end = l.s.bound
		}
		left += int64(max(end-l.next, 0))
	}
	return left, true
}
