package restore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/statemesh/statemesh/store"
)

// FollowRequest describes a topic that a store is made of, all partitions of it, without an end.
type FollowRequest struct {
	Topic string
	// ID of the topic as topics.Describe returned it; all zero when the brokers have none.
	ID         [16]byte
	Partitions int32
	// Retention is the topic's delete.retention.ms; see Changelog.
	Retention time.Duration
	// Have is the position of the local copy, by partition; partitions that were never read are left out.
	Have map[store.Partition]store.LogPosition
	// WallTime is when the copy had that position, Unix milliseconds; 0 when unknown.
	WallTime int64
	// Begun is told, before the first record, who reads.
	Begun func(*Follower)
	// Apply takes records of one partition, in log order.
	Apply func([]Record) error
	// Applied is told the position after what was applied. whole says that no partition is known to be behind: only then is
	// the copy a state that ever was, since a compacted topic may have lost a value because there is a newer one further on.
	Applied func(p store.Partition, pos store.LogPosition, whole bool)
	// Ready is called once: everything that the topic held when Follow began is applied.
	Ready func(positions map[store.Partition]store.LogPosition)
}

// RebuildError says why a local copy is no past state of its topic, and must be dropped.
type RebuildError struct{ Reason string }

func (e *RebuildError) Error() string { return "local copy must be rebuilt: " + e.Reason }

// Follower is a topic being followed. Its methods are safe for concurrent use.
type Follower struct {
	r       *Restorer
	req     FollowRequest
	streams []*stream            // by partition
	from    []store.Offset       // where each began
	ends    []store.Offset       // the high watermark of each at the start
	applied []store.LogPosition  // of the goroutine of Follow
	behind  map[*stream]struct{} // streams of which more was decided than is applied; of the goroutine of Follow
	ready   bool
	began   time.Time // before the brokers were asked for ends
}

// Follow applies the records of a topic until ctx ends or something fails. What was applied stays with the caller, who may
// call again. Errors are those of Restore, and *RebuildError: the caller drops the copy first.
func (r *Restorer) Follow(ctx context.Context, req FollowRequest) error {
	select {
	case <-r.done:
		return ErrStopped
	default:
	}
	f, err := r.newFollower(ctx, req)
	if err != nil {
		return err
	}
	out := r.open(f.streams)
	defer r.close(f.streams, out)
	if req.Begun != nil {
		req.Begun(f)
	}
	tick := time.NewTicker(min(50*time.Millisecond, r.cfg.ProgressInterval))
	defer tick.Stop()
	for {
		if ctx.Err() != nil { // with chunks waiting the select would see it by luck only
			return context.Cause(ctx)
		}
		f.review()
		select {
		case e := <-out:
			if err := f.take(ctx, e); err != nil {
				return err
			}
		case <-tick.C:
			if err := f.stuck(); err != nil {
				return err
			}
			if f.ready {
				tick.Reset(r.cfg.ProgressInterval)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.done:
			return ErrStopped
		}
	}
}

// newFollower asks the brokers where each partition begins and ends, and compares the local copy with that.
func (r *Restorer) newFollower(ctx context.Context, req FollowRequest) (*Follower, error) {
	f := &Follower{r: r, req: req, behind: make(map[*stream]struct{}), began: time.Now()}
	log := map[store.Name]Changelog{"": {Topic: req.Topic, ID: req.ID}}
	for p := range store.Partition(req.Partitions) {
		all, err := r.facts(ctx, log, p)
		if err != nil {
			return nil, err
		}
		facts := all[req.Topic]
		e := evidence{
			logged: true, begin: facts.begin, end: facts.end, topic: facts.id, leaderEpoch: facts.leaderEpoch, epochEnd: -1,
			retention: req.Retention,
		}
		if have, ok := req.Have[p]; ok {
			e.have = &have
		}
		if req.WallTime > 0 {
			e.age = max(0, time.Since(time.UnixMilli(req.WallTime)))
		}
		v := judge(e)
		switch v.action {
		case refuse:
			return nil, &RefusedError{Topic: req.Topic, Partition: p, Reason: v.reason}
		case rebuild:
			return nil, &RebuildError{Reason: fmt.Sprintf("topic %s-%d: %s", req.Topic, p, v.reason)}
		case done, resume:
		}
		f.streams = append(f.streams, &stream{
			topic: req.Topic, id: facts.id, partition: int32(p), bound: math.MaxInt64, next: v.from, follow: true,
		})
		f.from, f.ends = append(f.from, v.from), append(f.ends, facts.end)
		f.applied = append(f.applied, store.LogPosition{TopicID: facts.id, LeaderEpoch: -1, Next: v.from})
	}
	return f, nil
}

// Progress counts offsets of what the topic held at the start, and estimates how long the rest takes; 0 when that is unknown.
func (f *Follower) Progress() (done, total int64, left time.Duration) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for i, s := range f.streams {
		done += int64(max(min(s.next, f.ends[i])-f.from[i], 0))
		total += int64(f.ends[i] - f.from[i])
	}
	return done, total, timeLeft(done, total, time.Since(f.began))
}

// Lag counts the offsets that are left to read, of the end at the start or of the last fetch.
func (f *Follower) Lag() (left int64) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for i, s := range f.streams {
		left += int64(max(max(f.ends[i], s.stable)-s.next, 0))
	}
	return left
}

// Proven is a time up to which everything that had been acknowledged is applied, in all partitions: when the fetch was sent
// that told the high watermark which is reached now. Zero when there is no such time yet.
func (f *Follower) Proven() time.Time {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	var oldest time.Time
	for i, s := range f.streams {
		if s.proven.IsZero() {
			return time.Time{}
		}
		if i == 0 || s.proven.Before(oldest) {
			oldest = s.proven
		}
	}
	return oldest
}

// take applies one event.
func (f *Follower) take(ctx context.Context, e event) error {
	p := store.Partition(e.s.partition)
	switch changed, ok := errors.AsType[*TopicChangedError](e.err); {
	case errors.Is(e.err, errOutOfRange):
		return &RebuildError{Reason: fmt.Sprintf("topic %s-%d no longer has offset %d", f.req.Topic, p, f.applied[p].Next)}
	case ok:
		return changed
	case e.err != nil:
		return e.err
	}
	var d *decoder
	select {
	case d = <-f.r.decoders:
	case <-ctx.Done():
		f.r.budget.release(e.held)
		return context.Cause(ctx)
	}
	n, err := d.decodeRecords(e.chunk, p, f.req.Apply)
	f.r.decoders <- d
	f.r.metrics.read(n, e.held)
	if err != nil {
		f.r.budget.release(e.held) // and no more: a stream of which a chunk is not applied proves nothing
		return fmt.Errorf("topic %s-%d from offset %d: %w", f.req.Topic, p, e.chunk.from, err)
	}
	f.applied[p].Next, f.applied[p].LeaderEpoch = e.next, max(f.applied[p].LeaderEpoch, e.epoch)
	if e.whole {
		delete(f.behind, e.s)
	} else {
		f.behind[e.s] = struct{}{}
	}
	f.req.Applied(p, f.applied[p], len(f.behind) == 0)
	f.r.applied(e)
	return nil
}

// catchUp takes the streams off behind that have come to the end without another chunk: the cleaner left nothing there.
func (f *Follower) catchUp() {
	for s := range f.behind {
		f.r.mu.Lock()
		caughtUp, next := s.pending == 0 && s.next >= s.stable, s.next
		f.r.mu.Unlock()
		if !caughtUp {
			continue
		}
		delete(f.behind, s)
		p := store.Partition(s.partition)
		f.applied[p].Next = next
		f.req.Applied(p, f.applied[p], len(f.behind) == 0)
	}
}

// review tells the caller once that all the topic held at the start is applied. A tail that the cleaner took away has no
// chunk: the stream's own position says that it is behind us.
func (f *Follower) review() {
	f.catchUp()
	if f.ready || len(f.behind) > 0 {
		return
	}
	positions := make(map[store.Partition]store.LogPosition, len(f.streams))
	f.r.mu.Lock()
	for i, s := range f.streams {
		if s.pending > 0 || s.next < f.ends[i] {
			f.r.mu.Unlock()
			return
		}
		f.applied[i].Next = s.next
		positions[store.Partition(i)] = f.applied[i]
	}
	for _, s := range f.streams {
		if s.proven.Before(f.began) {
			s.proven = f.began
		}
	}
	f.r.mu.Unlock()
	f.ready = true
	f.req.Ready(positions)
}

// stuck says why nothing can be expected any more, or is nil. Once the store is there, a transaction that hangs only makes it
// older.
func (f *Follower) stuck() error {
	cfg := &f.r.cfg
	now := time.Now()
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	for i, s := range f.streams {
		p := store.Partition(s.partition)
		if waited := now.Sub(s.errSince); s.lastErr != nil && waited >= cfg.StallTimeout {
			return &StalledError{Topic: s.topic, Partition: p, Next: s.next, Waited: waited, Err: s.lastErr}
		}
		if f.ready || s.blockedSince.IsZero() || s.next >= f.ends[i] || s.pending > 0 {
			continue
		}
		if waited := now.Sub(s.blockedSince); waited >= cfg.HangingTimeout {
			return &HangingTransactionError{Topic: s.topic, Partition: p, LastStable: s.stable, Bound: f.ends[i], Waited: waited}
		}
	}
	return nil
}
