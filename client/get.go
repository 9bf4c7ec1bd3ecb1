package client

import (
	"context"
	"errors"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Answer says what an answer is worth: which replica gave it, how far its state had read, and how old it is at most, the
// time on the way included.
type Answer = wire.Answer

// Result is one value.
type Result struct {
	Value store.Value
	// Span is the window, the session, or the time the version was valid; zero in key-value stores.
	Span   Span
	Answer Answer
}

// Get returns the value of key, in a versioned store its latest version. [store.ErrNotFound] is a proof that it has none;
// the result's Answer says whose. Any other error means that nothing is known about the key.
func (c *Client) Get(ctx context.Context, name store.Name, key []byte, opts ...Option) (Result, error) {
	return c.point(ctx, "get", name, Point{Key: key}, opts)
}

// point asks for one value.
func (c *Client) point(ctx context.Context, op string, name store.Name, what Point, opts []Option) (Result, error) {
	o := gather(opts)
	var r Result
	var at store.Partition
	open := func(s *router.Snapshot) ([]store.Partition, error) {
		var err error
		at, err = partitionOf(s, name, what.Key, o)
		return []store.Partition{at}, err
	}
	send := func(ctx context.Context, q statemeshv1.QueryServiceClient, parts []store.Partition) error {
		p := int32(parts[0])
		sent := time.Now()
		resp, err := q.Get(ctx, &statemeshv1.GetRequest{
			Store: string(name), Key: what.Key, Partition: &p, Options: o.proto(name), Instant: wire.FromInstant(what.at),
		})
		if err != nil {
			return c.absence(name, o, err, sent, &r)
		}
		if r.Answer, err = wire.ToAnswer(resp.GetAnswer()); err != nil {
			return err
		}
		var ok bool
		if r.Value, ok = wire.ToValue(resp.GetValue()); !ok {
			return wire.ErrMalformed
		}
		r.Span = spanOf(resp.GetSpan())
		return c.accept(name, o, &r.Answer, sent)
	}
	if err := c.ask(ctx, op, name, o, open, send); err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			r = Result{}
		}
		return r, err
	}
	return r, nil
}

// absence checks the proof in a NOT_FOUND like any other answer; other errors pass.
func (c *Client) absence(name store.Name, o *callOptions, err error, sent time.Time, r *Result) error {
	err = wire.FromStatus(err)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	e, ok := errors.AsType[*wire.AbsentError](err)
	if !ok {
		return wire.ErrMalformed // whoever says so proves nothing
	}
	r.Value, r.Answer = store.Value{}, e.Answer
	if stale := c.accept(name, o, &r.Answer, sent); stale != nil {
		return stale
	}
	return err
}

// partitionOf is the partition that was given, or that of the key.
func partitionOf(s *router.Snapshot, name store.Name, key []byte, o *callOptions) (store.Partition, error) {
	p, err := s.Partition(name, key)
	if err == nil && o.placed {
		p = o.partition
	}
	return p, err
}
