package processor

import (
	"context"
	"errors"
	"sync"
	"time"
)

// probeInterval is the shortest time between two heartbeats that queries cause.
const probeInterval = 200 * time.Millisecond

var (
	// errNotMember reports that the coordinator no longer knows the member: its tasks have other owners.
	errNotMember = errors.New("not a member of the group")
	// errAgeUnproven reports that the coordinator did not confirm the membership in time.
	errAgeUnproven = errors.New("age not proven")
)

// age proves until when an owner still was the owner. Invariant: at the time provenLocked returns, the coordinator accepted
// the member id and generation under which the member holds its tasks, and every commit that was visible to others by
// then is published here (or proven is earlier).
//
// A commit that is on its way may become visible to others before it is published here, so it holds the proof back to
// the moment its end was asked for. Safe for concurrent use.
type age struct {
	now     func() time.Time
	session time.Duration
	// probe sends one heartbeat; it returns nil when the coordinator accepted it, errNotMember when it refused.
	probe func(ctx context.Context) error

	mu       sync.Mutex
	accepted time.Time // send time of the newest accepted request; zero: none yet
	ending   time.Time // send time of the end of an unpublished commit; zero: none
	lost     bool
	probing  chan struct{} // closed when the running probe is done; nil: none runs
	lastAsk  time.Time
	// abandoned: who asked last left before the answer came.
	abandoned bool
}

func newAge(now func() time.Time, session time.Duration, probe func(context.Context) error) *age {
	return &age{now: now, session: session, probe: probe}
}

// confirm notes that the coordinator accepted a request sent at t.
func (a *age) confirm(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t.After(a.accepted) {
		a.accepted = t
	}
}

// commitEnding notes that the end of a commit is about to be asked for; commitPublished that readers see it, or that it
// was found not to have happened.
func (a *age) commitEnding(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ending = t
}

func (a *age) commitPublished() { a.commitEnding(time.Time{}) }

// becomeLost ends every proof: the membership is over.
func (a *age) becomeLost() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = true
}

func (a *age) provenLocked() (time.Time, bool) {
	if a.lost {
		return time.Time{}, false
	}
	return a.lastLocked(), true
}

func (a *age) lastLocked() time.Time {
	if !a.ending.IsZero() && a.ending.Before(a.accepted) {
		return a.ending
	}
	return a.accepted
}

// last is the latest time at which the state is known to have been whole, whoever owns it now.
func (a *age) last() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lastLocked()
}

// prove returns a time not longer ago than bound (0: half the session timeout), and not before after, at which the state
// was whole. When what is known is older it asks the coordinator, at most once per probeInterval whoever asks, and once
// more when the one who asked has left.
func (a *age) prove(ctx context.Context, bound time.Duration, after time.Time) (time.Time, error) {
	if bound <= 0 {
		bound = a.session / 2
	}
	for asked := false; ; asked = true {
		a.mu.Lock()
		t, ok := a.provenLocked()
		if !ok {
			a.mu.Unlock()
			return time.Time{}, errNotMember
		}
		now := a.now()
		if !t.IsZero() && elapsed(t, now) <= bound && !t.Before(after) {
			a.mu.Unlock()
			return t, nil
		}
		wait := a.probing
		takesOver := a.abandoned && patient(ctx)
		if wait == nil && !takesOver && (asked || elapsed(a.lastAsk, now) < probeInterval) {
			a.mu.Unlock()
			return time.Time{}, errAgeUnproven
		}
		if wait != nil {
			a.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return time.Time{}, context.Cause(ctx)
			}
		}
		a.lastAsk, a.abandoned = now, false
		done := make(chan struct{})
		a.probing = done
		a.mu.Unlock()
		a.ask(ctx, now, done)
		if ctx.Err() != nil {
			return time.Time{}, context.Cause(ctx)
		}
	}
}

// patient reports whether a reader stays long enough to ask in the place of one that has left. So however many run out of
// time, no more than two heartbeats per probeInterval are sent in vain.
func patient(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return !ok || time.Until(end) >= probeInterval
}

func (a *age) ask(asker context.Context, sent time.Time, done chan struct{}) {
	// Half the session is as long as any answer can be worth waiting for.
	ctx, cancel := context.WithTimeout(asker, a.session/2)
	defer cancel()
	err := a.probe(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		if sent.After(a.accepted) {
			a.accepted = sent
		}
	case errors.Is(err, errNotMember):
		a.lost = true
	default:
		a.abandoned = asker.Err() != nil
	}
	a.probing = nil
	close(done)
}

// elapsed is the time from t to now. The monotonic clock stands still while a machine sleeps and the wall clock does
// not, but may be set back: the longer of the two is the safe one.
func elapsed(t, now time.Time) time.Duration {
	if t.IsZero() {
		return 1<<63 - 1
	}
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)), 0)
}
