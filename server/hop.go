package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// The part of the time left that a forwarded call does not get, so that its failure can still be told to the client: a
// twentieth, within these limits.
const (
	minReserve = time.Millisecond
	maxReserve = 50 * time.Millisecond
)

// hopContext is the context of a forwarded call: marked as such, with a little less time, cancelled with the client's.
func (s *Server) hopContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = wire.Forwarded{By: s.cfg.Instance, Application: s.cfg.Application}.Outgoing(ctx)
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithTimeout(ctx, left-min(max(left/20, minReserve), maxReserve))
}

// peer returns the client of another instance.
func (s *Server) peer(to router.Replica) (statemeshv1.QueryServiceClient, error) {
	c, err := s.deps.Peers.Query(to.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("%w: %s at %s: %w", wire.ErrUnreachable, to.Instance, to.Endpoint, err)
	}
	return c, nil
}

// hopError is what a forwarded call failed with, as the domain's error, and counts the hop. ctx is that of the request:
// while it lives, a call that was cancelled was cut off at the other end.
func (s *Server) hopError(ctx context.Context, err error) error {
	err = wire.FromStatus(err)
	switch {
	case err == nil:
		s.m.hops.WithLabelValues("OK").Inc()
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, context.Canceled):
		err = fmt.Errorf("%w: the call was cut off", wire.ErrUnreachable)
	}
	outcome := wire.ReasonName(wire.Reason(err))
	switch {
	case errors.Is(err, wire.ErrUnreachable):
		outcome = "UNREACHABLE"
	case errors.Is(err, errOvertaken):
		outcome = "OVERTAKEN"
	}
	s.m.hops.WithLabelValues(outcome).Inc()
	return err
}

// hopOptions are the options of a forwarded read of some partitions. A standby gets the default bound of a request that
// has none, which it then checks where the answer is given; a copy that is being restored may not know its age. Of a token goes along what concerns these partitions.
func (s *Server) hopOptions(rd *read, to router.Replica, m manner, parts ...store.Partition) *statemeshv1.ReadOptions {
	o := rd.opts
	o.Partial = m == partially
	if !o.Partial {
		o.MaxStaleness = s.bound(rd, to.Role)
	}
	if !o.AtLeast.Empty() {
		o.AtLeast, o.Wait = store.Token{}, rd.patience()
		for _, p := range parts {
			o.AtLeast.Raise(rd.opts.AtLeast.At(p))
		}
	}
	return wire.FromReadOptions(rd.store, &o)
}

// checkAnswers reads the answers of a peer: one for each partition asked for, in any order.
func checkAnswers(ms []*statemeshv1.Answer, parts []store.Partition, sent time.Time) ([]worth, error) {
	as, err := wire.ToAnswers(ms)
	if err != nil {
		return nil, err
	}
	missing := make(map[store.Partition]bool, len(parts))
	for _, p := range parts {
		missing[p] = true
	}
	out := make([]worth, len(as))
	for i, a := range as {
		if !missing[a.Partition] {
			return nil, fmt.Errorf("%w: an answer for partition %d, which was not asked for, or a second one", wire.ErrMalformed, a.Partition)
		}
		delete(missing, a.Partition)
		out[i] = worth{answer: a, at: sent}
	}
	for p := range missing {
		return nil, fmt.Errorf("%w: no answer for partition %d", wire.ErrMalformed, p)
	}
	return out, nil
}
