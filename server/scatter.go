package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// asker asks one partition of this instance, or several of another one at once. The calls for different owners run side
// by side; each writes what it learns to a place of its own. A call that returns an error may be repeated elsewhere.
type asker struct {
	local  func(ctx context.Context, p store.Partition) error
	remote func(ctx context.Context, to router.Replica, parts []store.Partition) error
}

// leg is one partition of a request on its way to who answers it.
type leg struct {
	q router.Query
	// hint is who owns the partition according to an instance with newer metadata than ours, of epoch hintEpoch.
	hint      router.Replica
	hintEpoch router.Epoch
	redirects int
	// lastResort is set once this instance was asked although the map does not name it.
	lastResort bool
	// cause is the error of the first candidate that was passed over, or of one that is behind the caller's token.
	cause  error
	behind bool
}

const (
	// maxRedirects: a partition that moves while it is asked for is followed once, and once more if it moved on.
	maxRedirects = 2
	// maxRounds bounds the rounds of a request, whatever answers it gets.
	maxRounds = 12
	// awaitMetadata is how long a request over many partitions waits for the metadata that an answer referred to.
	awaitMetadata = 50 * time.Millisecond
)

// scatter gets every partition answered: here if it may be, else by one hop to the best replica, the next one if that
// cannot answer, the new owner if it moved. A partition that nobody answers is the error of the whole. A request that a
// peer forwarded is answered here or not at all (invariant 8).
func (s *Server) scatter(ctx context.Context, rd *read, parts []store.Partition, ask asker) error {
	if rd.origin == router.OriginPeer {
		for _, p := range parts {
			if err := ask.local(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}
	var failed error
	if len(parts) == 1 && s.isHere(rd, parts[0]) { // the most frequent request: no legs, no rounds
		if failed = ask.local(ctx, parts[0]); failed == nil {
			rd.call.via(viaLocal)
			return nil
		}
	}
	legs := make([]*leg, len(parts))
	for i, p := range parts {
		legs[i] = &leg{q: s.query(rd, p)}
	}
	if failed != nil {
		if fatal := s.passOver(ctx, legs[0], s.self(), failed); fatal != nil {
			return fatal
		}
	}
	var last error
	for range maxRounds {
		groups, err := s.plan(legs)
		if err != nil {
			return err
		}
		legs, last, err = s.round(ctx, rd, groups, ask)
		if err != nil || len(legs) == 0 {
			return err
		}
		s.awaitEpoch(ctx, legs)
	}
	return fmt.Errorf("gave up after %d rounds: %w", maxRounds, last)
}

// query is what router decides about.
func (s *Server) query(rd *read, p store.Partition) router.Query {
	q := router.Query{Store: rd.store, Partition: p, Self: s.cfg.Instance, MaxStaleness: s.bound(rd, store.RoleUnknown)}
	if rd.opts.OnlyActive {
		q.Prefer = router.OnlyActive
	}
	return q
}

// isHere reports whether this instance is the one to answer.
func (s *Server) isHere(rd *read, p store.Partition) bool {
	return router.Decide(s.deps.Table.Load(), s.query(rd, p)).Verdict == router.Local
}

func (s *Server) self() router.Replica {
	return router.Replica{Instance: s.cfg.Instance, Endpoint: s.cfg.Endpoint, Role: store.RoleActive}
}

// group is the legs that one instance is asked for.
type group struct {
	to    router.Replica
	local bool
	legs  []*leg
}

// plan decides about all legs under one snapshot.
func (s *Server) plan(legs []*leg) ([]*group, error) {
	snap := s.deps.Table.Load()
	var groups []*group
	put := func(to router.Replica, l *leg) {
		for _, g := range groups { // few instances
			if g.to.Endpoint == to.Endpoint && g.to.Role == to.Role {
				g.legs = append(g.legs, l)
				return
			}
		}
		groups = append(groups, &group{to: to, local: to.Instance == s.cfg.Instance, legs: []*leg{l}})
	}
	self := s.self()
	for _, l := range legs {
		if l.hint.Instance != "" && (snap == nil || snap.Epoch() < l.hintEpoch) {
			put(l.hint, l)
			continue
		}
		route := router.Decide(snap, l.q)
		switch route.Verdict {
		case router.Local:
			put(self, l)
		case router.Remote:
			put(route.Candidates[0], l)
		default:
			// An instance learns of its own new tasks before the map that names it is whole.
			if l.lastResort || len(l.q.Tried) == 0 || l.tried(s.cfg.Instance) {
				return nil, l.refused(route.Err)
			}
			l.lastResort = true
			put(self, l)
		}
	}
	return groups, nil
}

func (l *leg) tried(instance string) bool {
	return slices.ContainsFunc(l.q.Tried, func(c store.Candidate) bool { return c.Instance == instance })
}

// refused is the error of a leg that nobody is left to be asked for. When one copy alone was asked and knows itself what
// is wrong, its own words are better than a list of one.
func (l *leg) refused(err error) error {
	if errors.Is(err, store.ErrNoReplica) && (len(l.q.Tried) == 1 || l.behind) {
		switch wire.Reason(l.cause) {
		case statemeshv1.Reason_REASON_NOT_READY, statemeshv1.Reason_REASON_BEHIND, statemeshv1.Reason_REASON_NOT_ACTIVE, statemeshv1.Reason_REASON_SHUTTING_DOWN, statemeshv1.Reason_REASON_CORRUPT:
			return l.cause
		default:
		}
	}
	return err
}

// round asks all groups side by side. It returns the legs that are to be asked elsewhere, with one of their errors, or
// the error that ends the request.
func (s *Server) round(ctx context.Context, rd *read, groups []*group, ask asker) (again []*leg, last, fatal error) {
	if len(groups) == 1 {
		return s.askGroup(ctx, rd, groups[0], ask)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	for _, g := range groups {
		wg.Go(func() {
			defer s.panicked(ctx, rd, &mu, &fatal, cancel)
			left, e, f := s.askGroup(ctx, rd, g, ask)
			mu.Lock()
			defer mu.Unlock()
			again = append(again, left...)
			if e != nil {
				last = e
			}
			if f != nil && fatal == nil { // later ones are only broken off by the first
				fatal = f
				cancel(f)
			}
		})
	}
	wg.Wait()
	return again, last, fatal
}

// panicked is the recovery of a goroutine of a request: the interceptor's covers only its own.
func (s *Server) panicked(ctx context.Context, rd *read, mu *sync.Mutex, fatal *error, cancel context.CancelCauseFunc) {
	if v := recover(); v != nil {
		err := s.panicError(ctx, rd.call.method, v)
		mu.Lock()
		defer mu.Unlock()
		*fatal = err
		cancel(err)
	}
}

func (s *Server) askGroup(ctx context.Context, rd *read, g *group, ask asker) (again []*leg, last, fatal error) {
	if g.local {
		for _, l := range g.legs {
			err := ask.local(ctx, l.q.Partition)
			if err == nil {
				continue
			}
			if fatal := s.passOver(ctx, l, g.to, err); fatal != nil {
				return nil, nil, fatal
			}
			again, last = append(again, l), err
		}
		if len(again) < len(g.legs) {
			rd.call.via(viaLocal)
		}
		return again, last, nil
	}
	parts := make([]store.Partition, len(g.legs))
	for i, l := range g.legs {
		parts[i] = l.q.Partition
	}
	err := ask.remote(ctx, g.to, parts)
	if err == nil {
		return nil, nil, nil
	}
	only, named := partitionOf(err, rd.store)
	for _, l := range g.legs {
		if named && l.q.Partition != only && len(g.legs) > 1 {
			continue // the others failed because this one did: they are asked again, wherever the map then says
		}
		if fatal := s.passOver(ctx, l, g.to, err); fatal != nil {
			return nil, nil, fatal
		}
	}
	return g.legs, err, nil
}

// partitionOf is the partition that an error of a peer is about, when it is about one.
func partitionOf(err error, name store.Name) (store.Partition, bool) {
	if e, ok := errors.AsType[*store.MovedError](err); ok {
		return e.Partition, e.Store == name
	}
	if e, ok := errors.AsType[*store.NotReadyError](err); ok {
		return e.Partition, e.Store == name
	}
	if e, ok := errors.AsType[*store.BehindError](err); ok {
		return e.Partition, e.Store == name
	}
	if e, ok := errors.AsType[*store.NotActiveError](err); ok {
		return e.Partition, e.Store == name
	}
	return 0, false
}

// passOver notes why to did not answer l and where to ask next. It returns the error that ends the request, if this one
// does: what is wrong with the request itself, an overloaded peer (another one would be overloaded next), time that is
// up.
func (s *Server) passOver(ctx context.Context, l *leg, to router.Replica, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.lastResort && to.Instance == s.cfg.Instance {
		return nil // as expected; the reasons of the candidates are the answer
	}
	switch {
	case errors.Is(err, store.ErrMoved):
		return l.follow(to, err, s.epoch())
	case errors.Is(err, store.ErrClosed):
		// The copy was closed between two steps of the read: the map or the instance knows by now where it is.
		if l.redirects++; l.redirects <= maxRedirects {
			return nil
		}
	case errors.Is(err, store.ErrBehind): // of all reasons the one that a caller with a token can act on
		l.cause, l.behind = err, true
	case errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrShuttingDown), errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotActive),
		errors.Is(err, store.ErrPermissionDenied), errors.Is(err, wire.ErrUnreachable), errors.Is(err, wire.ErrMalformed):
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s at %s did not answer in time: %w", to.Instance, to.Endpoint, context.DeadlineExceeded)
	default:
		return err
	}
	l.pass(to, err)
	return nil
}

// pass marks a candidate as tried.
func (l *leg) pass(to router.Replica, err error) {
	if l.cause == nil {
		l.cause = err
	}
	if l.hint.Instance == to.Instance {
		l.hint = router.Replica{}
	}
	l.q.Tried = append(l.q.Tried, store.Candidate{
		Instance: to.Instance, Endpoint: to.Endpoint, Role: to.Role, Reason: err.Error(),
	})
}

// follow takes the word of a former owner for who the new one is, unless it names itself or nobody. now is the epoch of
// our metadata: whoever refers to an older one has not yet heard that the partition comes to it.
func (l *leg) follow(to router.Replica, err error, now router.Epoch) error {
	m, ok := errors.AsType[*store.MovedError](err)
	l.redirects++
	switch {
	case l.redirects > maxRedirects:
		return err
	case ok && router.Epoch(m.Epoch) < now:
		l.pass(to, &store.NotReadyError{
			Store: l.q.Store, Partition: l.q.Partition, Reason: "rebalancing", RetryAfter: retryNoMetadata,
		})
	case !ok || m.Instance == "" || m.Endpoint == "" || m.Instance == to.Instance:
		l.pass(to, err)
	default:
		l.hint = router.Replica{Instance: m.Instance, Endpoint: m.Endpoint, Role: store.RoleActive}
		l.hintEpoch = router.Epoch(m.Epoch)
	}
	return nil
}

// awaitEpoch gives the metadata that an answer referred to a moment to arrive, when there are legs that have no hint of
// their own.
func (s *Server) awaitEpoch(ctx context.Context, legs []*leg) {
	var want router.Epoch
	for _, l := range legs {
		want = max(want, l.hintEpoch)
	}
	if want == 0 || len(legs) == 1 {
		return
	}
	timeout := time.NewTimer(awaitMetadata)
	defer timeout.Stop()
	for {
		snap, changed := s.deps.Table.Watch()
		if snap != nil && snap.Epoch() >= want {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
