package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

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
	if l.localFirst { // it was worth a look; the owner is asked, and this copy in earnest when that cannot answer
		l.localFirst, l.q.Prefer = false, router.PreferActive
		s.m.localCopy.WithLabelValues("passed over").Inc()
		if mayPass(err) {
			return nil
		}
	}
	if l.lastResort && to.Instance == s.cfg.Instance && !l.hedged {
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
	case mayPass(err):
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s at %s did not answer in time: %w", to.Instance, to.Endpoint, context.DeadlineExceeded)
	default:
		return err
	}
	l.pass(to, err)
	return nil
}

// mayPass reports whether an error is about the copy that was asked, so that another may do better.
func mayPass(err error) bool {
	for _, about := range []error{
		store.ErrNotReady, store.ErrBehind, store.ErrMoved, store.ErrClosed, store.ErrShuttingDown, store.ErrCorrupt, store.ErrNotActive,
		store.ErrPermissionDenied, wire.ErrUnreachable, wire.ErrMalformed,
	} {
		if errors.Is(err, about) {
			return true
		}
	}
	return false
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
