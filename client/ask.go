package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// group is what goes to one instance in one request.
type group struct {
	target router.Replica
	parts  []store.Partition
	// patience is how long this one is waited for, since there is another to ask; 0: as long as the caller waits.
	patience time.Duration
	err      error
}

// ask carries out an operation over partitions: open says which of them still have to be asked, by a map; send asks one
// instance for some of them and makes them no longer open. Groups are asked side by side, so send must be safe for that.
// Rounds follow until nothing is open or the call has failed.
func (c *Client) ask(
	ctx context.Context, op string, name store.Name, o *callOptions,
	open func(*router.Snapshot) ([]store.Partition, error),
	send func(context.Context, statemeshv1.QueryServiceClient, []store.Partition) error,
) error {
	if o.err != nil {
		return o.err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	a := c.begin(op, name, o)
	for {
		a.n++
		failures, s, done := c.round(ctx, a, open, send)
		if done {
			return nil
		}
		for _, f := range failures {
			if errors.Is(f.err, store.ErrNotFound) {
				return f.err // an answer
			}
		}
		if err := a.again(ctx, s, failures...); err != nil {
			return err
		}
	}
}

// round asks once for everything that is open.
func (c *Client) round(
	ctx context.Context, a *attempts,
	open func(*router.Snapshot) ([]store.Partition, error),
	send func(context.Context, statemeshv1.QueryServiceClient, []store.Partition) error,
) (failures []failure, s *router.Snapshot, done bool) {
	s, err := a.topology(ctx)
	if err != nil {
		return []failure{{err: err}}, nil, false
	}
	parts, err := open(s)
	if err != nil {
		return []failure{{err: err}}, s, false
	}
	groups, err := a.group(s, parts)
	if err != nil {
		return []failure{{err: err}}, s, false
	}
	c.sendAll(ctx, groups, send)
	for i := range groups {
		if groups[i].err != nil {
			failures = append(failures, failure{target: groups[i].target, err: groups[i].err})
		}
	}
	return failures, s, len(failures) == 0
}

// group puts together what one instance is asked for.
func (a *attempts) group(s *router.Snapshot, parts []store.Partition) ([]group, error) {
	groups := make([]group, 0, 1)
	for _, p := range parts {
		target, copies, err := a.target(s, p)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(groups, func(g group) bool { return g.target.Endpoint == target.Endpoint })
		if i < 0 {
			i = len(groups)
			groups = append(groups, group{target: target, patience: a.patience(copies)})
		}
		groups[i].parts = append(groups[i].parts, p)
		groups[i].patience = min(groups[i].patience, a.patience(copies)) // of all its partitions, or of none
	}
	return groups, nil
}

// sendAll asks all groups side by side and waits for them. One group, the usual case, needs no goroutine.
func (c *Client) sendAll(
	ctx context.Context, groups []group,
	send func(context.Context, statemeshv1.QueryServiceClient, []store.Partition) error,
) {
	one := func(g *group) {
		ask := ctx
		if g.patience > 0 {
			var cancel context.CancelFunc
			ask, cancel = context.WithTimeout(ctx, g.patience)
			defer cancel()
		}
		q, err := c.pool.Query(g.target.Endpoint)
		if err == nil {
			err = send(ask, q, g.parts)
		}
		g.err = wire.FromStatus(err)
		if g.patience > 0 && ctx.Err() == nil && (ask.Err() != nil || calledOff(err)) && err != nil {
			g.err = &slowError{after: g.patience}
			c.pool.doubt(g.target.Endpoint, 4*g.patience)
		}
	}
	if len(groups) == 0 {
		return
	}
	var wg sync.WaitGroup
	for i := range groups[1:] {
		wg.Go(func() { one(&groups[i+1]) })
	}
	one(&groups[0])
	wg.Wait()
}

// calledOff reports whether a call ended because its time was over, as either end says it: the server's clock may be the first.
func calledOff(err error) bool {
	c := status.Code(err)
	return c == codes.Canceled || c == codes.DeadlineExceeded
}

// accept checks an answer against the caller's bound and brings its age up to now: what an answer says holds for the
// moment it was sent, which nobody here knows but that it was after sent.
func (c *Client) accept(name store.Name, o *callOptions, a *wire.Answer, sent time.Time) error {
	c.heard(a.Epoch)
	if a.Facts.Partial != nil && !o.read.Partial {
		return wire.ErrMalformed
	}
	if a.Facts.Age >= 0 { // else nothing is proven of a partial state
		a.Facts.Age += time.Since(sent)
	}
	if bound := o.read.MaxStaleness; bound > 0 && (a.Facts.Age > bound || a.Facts.Age < 0) {
		return &store.NotReadyError{
			Store: name, Partition: a.Partition,
			Reason: "the answer was " + a.Facts.Age.Round(time.Microsecond).String() + " old when it arrived, the bound is " + bound.String(),
		}
	}
	if o.session != nil {
		o.session.Saw(name, a.Facts.Token)
	}
	return nil
}
