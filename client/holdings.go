package client

import (
	"context"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// InstanceHoldings is an instance with what it says that it has of tasks.
type InstanceHoldings struct {
	router.Instance

	// Holdings in the order of their tasks. Their ages count up to the moment the answer came.
	Holdings []router.Holding
	// Looked is how long before that the instance looked, at most.
	Looked time.Duration
	// Problem says why nothing is known of what it has; empty when something is.
	Problem string
}

// Holdings lists the instances by id with all that they have of tasks: role, progress of a restore, lag and age of each copy.
// One instance asks the others, for up to a second each. Of a store, or of all for "".
func (c *Client) Holdings(ctx context.Context, of store.Name, opts ...Option) ([]InstanceHoldings, error) {
	o := gather(opts)
	if o.err != nil {
		return nil, o.err
	}
	req := &statemeshv1.ListInstancesRequest{WithHoldings: true}
	if of != "" {
		req.Store = new(string(of))
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	a := c.begin("list holdings", of, o)
	for {
		a.n++
		list, err := c.holdings(ctx, a, req)
		if err == nil {
			return list, nil
		}
		if err := a.again(ctx, c.table.Load(), *err); err != nil {
			return nil, err
		}
	}
}

// holdings asks one instance.
func (c *Client) holdings(ctx context.Context, a *attempts, req *statemeshv1.ListInstancesRequest) ([]InstanceHoldings, *failure) {
	to := router.Replica{Endpoint: a.opts.via}
	if to.Endpoint == "" {
		to.Endpoint = c.sources(a.tried)[0] // there is always a seed
	}
	md, err := c.pool.Metadata(to.Endpoint)
	if err != nil {
		return nil, &failure{target: to, err: err}
	}
	sent := time.Now()
	resp, err := md.ListInstances(ctx, req)
	if err != nil {
		return nil, &failure{target: to, err: wire.FromStatus(err)}
	}
	if err := c.ours(to.Endpoint, resp.GetApplication()); err != nil {
		return nil, &failure{target: to, err: err}
	}
	took := time.Since(sent)
	list := make([]InstanceHoldings, len(resp.GetInstances()))
	for i, in := range wire.ToInstances(resp.GetInstances()) {
		h := wire.ToHoldings(resp.GetInstances()[i].GetHoldings())
		looked := min(h.LookedBefore, took) + took
		for j := range h.Of {
			if h.Of[j].Age >= 0 {
				h.Of[j].Age += looked
			}
		}
		list[i] = InstanceHoldings{Instance: in, Holdings: h.Of, Looked: looked, Problem: h.Problem}
	}
	return list, nil
}
