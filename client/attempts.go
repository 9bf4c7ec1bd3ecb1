package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Limits of what one call does without waiting.
const (
	maxHops       = 3 // MOVED answers followed at once
	maxOverloaded = 2 // waits for an instance that is overloaded
)

// attempts is the state of one operation between its attempts: whom it asked and what they said. It belongs to one
// goroutine.
type attempts struct {
	c     *Client
	op    string
	name  store.Name
	opts  *callOptions
	start time.Time

	n        int    // attempts made
	endpoint string // of the last one
	last     error  // what it said, unless that was only that the time is up

	tried      []store.Candidate // could not answer in this round
	force      bool              // the map failed us: ask for a newer one first
	hops       int
	overloaded int
	slow       bool // one was given up as slow: from now on everybody has as long as the caller
	reread     bool // a newer map was asked for because of an unknown store or a wrong partition
}

func (c *Client) begin(op string, name store.Name, opts *callOptions) *attempts {
	c.budget.called()
	return &attempts{c: c, op: op, name: name, opts: opts, start: time.Now()}
}

// deadline returns ctx with the client's timeout where it has none of its own.
func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.cfg.Timeout)
}

// topology returns the map for the next attempt.
func (a *attempts) topology(ctx context.Context) (*router.Snapshot, error) {
	if !a.force {
		return a.c.known(ctx)
	}
	a.force = false
	s, err := a.c.newest(ctx, a.tried)
	if s != nil {
		return s, nil // an old map is better than none
	}
	return nil, err
}

// target says whom to ask for partition p: who was named, the owner, a standby, or, when none of these can be reached,
// anybody: a hop from there may get through where this client does not.
// copies is how many of those that the map has may be asked.
func (a *attempts) target(s *router.Snapshot, p store.Partition) (r router.Replica, copies int, err error) {
	if a.opts.via != "" {
		return router.Replica{Endpoint: a.opts.via}, 1, nil
	}
	if !a.opts.anyone {
		if r, ok := a.c.movedOwner(s, a.name, p); ok && !a.triedEndpoint(r.Endpoint) {
			return r, 1, nil
		}
		route := router.Decide(s, router.Query{
			Store: a.name, Partition: p, Prefer: a.opts.prefer(), MaxStaleness: a.opts.read.MaxStaleness, Tried: a.tried,
		})
		if route.Verdict == router.Remote {
			copies = len(route.Candidates)
			if info, err := s.Store(a.name); err == nil && info.Global { // all have it: share the work
				return route.Candidates[rand.IntN(len(route.Candidates))], copies, nil
			}
			return a.c.pool.reachable(route.Candidates), copies, nil
		}
		if !errors.Is(route.Err, store.ErrNoReplica) {
			return router.Replica{}, 0, route.Err
		}
	}
	all := s.Instances()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i := range all {
		if all[i].Endpoint != "" && !a.triedEndpoint(all[i].Endpoint) {
			return router.Replica{Instance: all[i].ID, Endpoint: all[i].Endpoint}, 1, nil
		}
	}
	return router.Replica{}, 0, &store.NoReplicaError{
		Store: a.name, Partition: p, Epoch: int64(s.Epoch()), Candidates: slices.Clone(a.tried),
	}
}

func (a *attempts) triedEndpoint(endpoint string) bool {
	return slices.ContainsFunc(a.tried, func(c store.Candidate) bool { return c.Endpoint == endpoint })
}

// failure is what one instance said in a round, or, with an empty target, why nobody was asked.
type failure struct {
	target router.Replica
	err    error
}

// again decides what to do about the failures of a round: it returns nil after having waited as long as is right, or the
// error of the whole call. s is the map of the round, nil when there was none.
func (a *attempts) again(ctx context.Context, s *router.Snapshot, failures ...failure) error {
	pause, paid := time.Duration(0), false
	for _, f := range failures {
		if f.target.Endpoint != "" {
			a.endpoint = f.target.Endpoint
		}
		timeUp := errors.Is(f.err, context.DeadlineExceeded) || errors.Is(f.err, context.Canceled)
		if !timeUp || a.last == nil {
			a.last = f.err
		}
		if ctx.Err() != nil || timeUp {
			return a.fail(ctx)
		}
		wait, retry := a.judge(s, f)
		if !retry || a.opts.via != "" && elsewhere(f.err) {
			return a.fail(ctx)
		}
		a.c.m.retries.WithLabelValues(reasonOf(f.err)).Inc()
		pause, paid = max(pause, wait), paid || wait >= 0
	}
	if !paid { // nothing but redirections: no retry, and no wait
		return nil
	}
	patience := a.c.cfg.Timeout
	if t, ok := ctx.Deadline(); ok {
		patience = time.Until(t)
	}
	owed, ok := a.c.budget.take(time.Now(), patience)
	pause = max(pause, owed)
	if !ok || pause >= patience {
		return a.fail(ctx) // what was said is worth more now than that the time is up, later
	}
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return a.fail(ctx)
		}
	}
	return nil
}

// judge says whether asking again is safe and may help, and how long to wait before; -1 for a redirection, which is no
// retry. Queries change nothing, so asking twice is always safe.
func (a *attempts) judge(s *router.Snapshot, f failure) (wait time.Duration, retry bool) {
	target, err := f.target, f.err
	round := backoffFor(a.n - 1)
	if e, ok := errors.AsType[*store.MovedError](err); ok {
		if s != nil {
			a.c.noteMoved(s, e)
		}
		a.hops++
		a.tried = nil
		if e.Endpoint != "" && e.Endpoint != target.Endpoint && a.hops <= maxHops {
			return -1, true
		}
		a.force = true
		return round, true
	}
	if e, ok := errors.AsType[*store.OverloadedError](err); ok {
		// Nobody else is asked: work that one instance refuses would only spread the overload.
		a.overloaded++
		return max(atLeast(e.RetryAfter), round), a.overloaded <= maxOverloaded
	}
	if e, ok := errors.AsType[*store.NotReadyError](err); ok {
		if a.another(s, f) {
			return 0, true
		}
		a.tried, a.force = nil, a.c.following.Load() == 0
		return max(atLeast(e.RetryAfter), round), true
	}
	if e, ok := errors.AsType[*store.NotActiveError](err); ok {
		a.tried, a.force = nil, a.c.following.Load() == 0
		return max(atLeast(e.RetryAfter), round), true
	}
	if _, ok := errors.AsType[*slowError](err); ok { // no retry: the copy is asked in its place
		a.slow = true
		a.tried = append(a.tried, candidate(target, err))
		return -1, true
	}
	switch {
	case errors.Is(err, store.ErrNoReplica), errors.Is(err, ErrNoMap):
		a.tried, a.force = nil, a.c.following.Load() == 0
		return round, true
	case elsewhere(err):
		a.tried = append(a.tried, candidate(target, err))
		a.force = a.force || len(a.tried) == 1 // it may have left; others know
		return 0, true
	case errors.Is(err, store.ErrUnknownStore), errors.Is(err, store.ErrWrongPartition):
		if a.reread || a.opts.placed {
			return 0, false
		}
		a.reread, a.force = true, true // by an older map than the truth, once
		return 0, true
	default:
		return 0, false
	}
}

// another passes over a copy that is not ready, if the map has one more that may meet the caller's bound: a standby need not wait
// for the owner.
func (a *attempts) another(s *router.Snapshot, f failure) bool {
	e, ok := errors.AsType[*store.NotReadyError](f.err)
	if !ok || s == nil || f.target.Instance == "" || e.Store != a.name {
		return false
	}
	tried := append(slices.Clone(a.tried), candidate(f.target, f.err))
	route := router.Decide(s, router.Query{
		Store: a.name, Partition: e.Partition, Prefer: a.opts.prefer(), MaxStaleness: a.opts.read.MaxStaleness, Tried: tried,
	})
	if route.Verdict != router.Remote {
		return false
	}
	a.tried = tried
	return true
}

// patience is how long a target is waited for of which there are so many copies to ask, 0 for as long as the caller waits. A paused instance
// keeps its connections and says nothing: who accepts a copy need not wait until that is noticed.
func (a *attempts) patience(copies int) time.Duration {
	if copies < 2 || a.slow {
		return 0
	}
	return max(a.c.cfg.StandbyAfter, 0)
}

func candidate(r router.Replica, err error) store.Candidate {
	return store.Candidate{Instance: r.Instance, Endpoint: r.Endpoint, Role: r.Role, Reason: err.Error()}
}

// slowError says that an instance was not waited for any longer, because there was another one to ask.
type slowError struct{ after time.Duration }

func (e *slowError) Error() string { return fmt.Sprintf("no answer within %s", e.after) }

// elsewhere reports whether err is about the instance that was asked, so that another may do better.
func elsewhere(err error) bool {
	return errors.Is(err, wire.ErrUnreachable) || errors.Is(err, store.ErrShuttingDown) ||
		errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrCorrupt)
}

// fail is the error of the call.
func (a *attempts) fail(ctx context.Context) error {
	e := &CallError{
		Op: a.op, Store: a.name, Endpoint: a.endpoint, Attempts: a.n, Took: time.Since(a.start), Err: a.last,
	}
	if ctx.Err() != nil && !errors.Is(a.last, ctx.Err()) {
		e.Ctx = ctx.Err()
	}
	return e
}

// reasonOf is the label of a retry.
func reasonOf(err error) string {
	switch {
	case errors.As(err, new(*slowError)):
		return "SLOW"
	case errors.Is(err, wire.ErrUnreachable):
		return "UNREACHABLE"
	case errors.Is(err, ErrNoMap):
		return "NO_MAP"
	default:
		return wire.ReasonName(wire.Reason(err))
	}
}
