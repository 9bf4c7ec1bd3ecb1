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
	local  func(ctx context.Context, p store.Partition, m manner) error
	remote func(ctx context.Context, to router.Replica, parts []store.Partition, m manner) error
	// hedge makes a second attempt at the same answer, elsewhere; nil: there is none.
	hedge func() hedge
}

// manner says how much a copy of this instance does to meet what is asked for.
type manner uint8

const (
	// thorough: it asks for a proof that is missing, and waits as long as the caller says.
	thorough manner = iota
	// hasty: it answers if it can at once, with some time to spare. The owner is asked next.
	hasty
	// partially: it answers with what it has, although it is being restored. No other copy could answer.
	partially
)

// leg is one partition of a request on its way to who answers it.
type leg struct {
	q router.Query
	// hint is who owns the partition according to an instance with newer metadata than ours, of epoch hintEpoch.
	hint      router.Replica
	hintEpoch router.Epoch
	redirects int
	// partial: no copy could answer, and the caller accepts one that is being restored.
	partial bool
	// localFirst: the copy here is asked before the owner, hastily.
	localFirst bool
	// others: beside who is asked now there are other copies. hedged: it belongs to a hedge, which has none of its own.
	others, hedged bool
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
			m := thorough
			if rd.acceptsPartial() { // whoever forwarded it has seen that no other can
				m = partially
			}
			if err := ask.local(ctx, p, m); err != nil {
				return err
			}
		}
		return nil
	}
	var failed error
	var localFirst bool
	if len(parts) == 1 { // the most frequent request: no legs, no rounds
		if r := router.Decide(s.deps.Table.Load(), s.query(rd, parts[0])); r.Verdict == router.Local {
			localFirst = r.LocalFirst
			m := thorough
			if localFirst {
				m = hasty
			}
			if failed = ask.local(ctx, parts[0], m); failed == nil {
				s.answeredHere(rd, m)
				return nil
			}
		}
	}
	legs := make([]*leg, len(parts))
	for i, p := range parts {
		legs[i] = &leg{q: s.query(rd, p)}
	}
	if failed != nil {
		legs[0].localFirst = localFirst
		if fatal := s.passOver(ctx, legs[0], s.self(), failed); fatal != nil {
			return fatal
		}
	}
	return s.rounds(ctx, rd, legs, ask)
}

// rounds asks until every leg is answered.
func (s *Server) rounds(ctx context.Context, rd *read, legs []*leg, ask asker) error {
	var last error
	for range maxRounds {
		groups, err := s.plan(rd, legs)
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
	switch {
	case rd.opts.OnlyActive:
		q.Prefer = router.OnlyActive
	case rd.opts.MaxStaleness > 0:
		q.Prefer = router.PreferLocal
	}
	return q
}

// manner is how copies are asked for l.
func (l *leg) manner() manner {
	switch {
	case l.partial:
		return partially
	case l.localFirst:
		return hasty
	default:
		return thorough
	}
}

// answeredHere notes that a copy of this instance has answered.
func (s *Server) answeredHere(rd *read, m manner) {
	rd.call.via(viaLocal)
	if m == hasty {
		s.m.localCopy.WithLabelValues("answered").Inc()
	}
}

func (s *Server) self() router.Replica {
	return router.Replica{Instance: s.cfg.Instance, Endpoint: s.cfg.Endpoint, Role: store.RoleActive}
}

// group is the legs that one instance is asked for.
type group struct {
	to     router.Replica
	local  bool
	manner manner
	legs   []*leg
}

// plan decides about all legs under one snapshot.
func (s *Server) plan(rd *read, legs []*leg) ([]*group, error) {
	snap := s.deps.Table.Load()
	var groups []*group
	put := func(to router.Replica, l *leg) {
		for _, g := range groups { // few instances
			if g.to.Endpoint == to.Endpoint && g.to.Role == to.Role && g.manner == l.manner() {
				g.legs = append(g.legs, l)
				return
			}
		}
		groups = append(groups, &group{to: to, local: to.Instance == s.cfg.Instance, manner: l.manner(), legs: []*leg{l}})
	}
	for _, l := range legs {
		if l.hint.Instance != "" && (snap == nil || snap.Epoch() < l.hintEpoch) {
			l.others, l.localFirst = false, false
			put(l.hint, l)
			continue
		}
		to, err := s.next(snap, rd, l)
		if err != nil {
			return nil, err
		}
		put(to, l)
	}
	return groups, nil
}

// next is who is asked for l now.
func (s *Server) next(snap *router.Snapshot, rd *read, l *leg) (router.Replica, error) {
	route := router.Decide(snap, l.q)
	l.others, l.localFirst = len(route.Candidates) > 1 && !l.hedged && !l.partial, route.LocalFirst
	switch {
	case route.Verdict == router.Local:
		self := s.self()
		if owner := route.Owner.Instance; owner != "" && owner != self.Instance && !rd.info.Global {
			self.Role = store.RoleStandby
		}
		return self, nil
	case route.Verdict == router.Remote:
		return s.unsuspected(route.Candidates), nil
	case !l.lastResort && len(l.q.Tried) > 0 && !l.tried(s.cfg.Instance):
		// An instance learns of its own new tasks before the map that names it is whole.
		l.lastResort = true
		return s.self(), nil
	case l.becomePartial(rd, route.Err):
		return s.next(snap, rd, l)
	default:
		return router.Replica{}, l.refused(route.Err)
	}
}

// becomePartial begins anew with all copies, for a caller who accepts one that is being restored, when err is that no other can
// answer. A hedge does not: the first may still end well.
func (l *leg) becomePartial(rd *read, err error) bool {
	if l.partial || l.hedged || !rd.acceptsPartial() || !errors.Is(err, store.ErrNoReplica) && !errors.Is(err, store.ErrNotReady) {
		return false
	}
	l.partial, l.lastResort, l.redirects, l.q.Tried = true, false, 0, nil
	if l.q.Prefer == router.PreferLocal {
		l.q.Prefer = router.PreferActive
	}
	return true
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
			err := ask.local(ctx, l.q.Partition, g.manner)
			if err == nil {
				s.answeredHere(rd, g.manner)
				continue
			}
			if fatal := s.passOver(ctx, l, g.to, err); fatal != nil {
				return nil, nil, fatal
			}
			again, last = append(again, l), err
		}
		return again, last, nil
	}
	parts := make([]store.Partition, len(g.legs))
	for i, l := range g.legs {
		parts[i] = l.q.Partition
	}
	err := s.askRemote(ctx, rd, g, parts, ask)
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
