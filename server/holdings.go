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

const (
	// holdingsPatience is how long one instance is waited for: an operator who asks wants to know who does not answer.
	holdingsPatience = time.Second
	// holdingsAtOnce is how many instances are asked at a time.
	holdingsAtOnce = 32
)

// holdings asks every instance what it holds, this one without a call. The result has one for each, in order.
func (s *Server) holdings(ctx context.Context, instances []router.Instance) []wire.Holdings {
	out := make([]wire.Holdings, len(instances))
	looked := make([]time.Time, len(instances))
	slots := make(chan struct{}, holdingsAtOnce)
	var wg sync.WaitGroup
	for i, in := range instances {
		if in.ID == s.cfg.Instance {
			looked[i], out[i] = time.Now(), s.ownHoldings()
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			defer func() {
				if v := recover(); v != nil {
					out[i] = wire.Holdings{Problem: s.panicError(ctx, "ListInstances", v).Error()}
				}
			}()
			looked[i] = time.Now()
			h, err := s.holdingsOf(ctx, in)
			if err != nil {
				h = wire.Holdings{Problem: err.Error()}
			}
			out[i] = h
		})
	}
	wg.Wait()
	for i := range out {
		out[i].LookedBefore += time.Since(looked[i])
	}
	return out
}

// ownHoldings are those of this instance.
func (s *Server) ownHoldings() wire.Holdings {
	if s.deps.Holdings == nil {
		return wire.Holdings{Problem: "it does not say what it holds"}
	}
	return wire.Holdings{Of: s.deps.Holdings()}
}

// holdingsOf asks another instance.
func (s *Server) holdingsOf(ctx context.Context, in router.Instance) (wire.Holdings, error) {
	if in.Endpoint == "" {
		return wire.Holdings{}, errors.New("it has no endpoint: it answers no peer")
	}
	client, err := s.deps.Peers.Metadata(in.Endpoint)
	if err != nil {
		return wire.Holdings{}, err
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	hop, late := context.WithTimeoutCause(hop, holdingsPatience, fmt.Errorf("no answer within %s", holdingsPatience))
	defer late()
	resp, err := client.ListInstances(hop, &statemeshv1.ListInstancesRequest{WithHoldings: true})
	switch {
	case err != nil && ctx.Err() == nil && hop.Err() != nil:
		return wire.Holdings{}, context.Cause(hop)
	case err != nil:
		return wire.Holdings{}, wire.FromStatus(err)
	case len(resp.GetInstances()) != 1:
		return wire.Holdings{}, fmt.Errorf("%w: %d instances", wire.ErrMalformed, len(resp.GetInstances()))
	}
	answered := resp.GetInstances()[0]
	if answered.GetId() != in.ID {
		return wire.Holdings{}, fmt.Errorf("%s answers there", answered.GetId())
	}
	return wire.ToHoldings(answered.GetHoldings()), nil
}

// withHoldings completes a list of instances by what they hold of the tasks that are asked for. Left out is who holds nothing of
// them, neither by the map nor in its own words.
func (s *Server) withHoldings(ctx context.Context, instances []router.Instance, of func(store.TaskID) bool) ([]*statemeshv1.Instance, error) {
	held := s.holdings(ctx, instances)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var list []*statemeshv1.Instance
	for i, h := range held {
		h.Of = slices.DeleteFunc(h.Of, func(h router.Holding) bool { return !of(h.Task) })
		if len(h.Of) == 0 && h.Problem == "" && !holds(instances[i], of) {
			continue
		}
		m := wire.FromInstances(instances[i : i+1])[0]
		m.Holdings = wire.FromHoldings(h)
		list = append(list, m)
	}
	return list, nil
}

// holds reports whether an instance has some of these tasks by the map.
func holds(in router.Instance, of func(store.TaskID) bool) bool {
	return slices.ContainsFunc(in.Active, of) || slices.ContainsFunc(in.Standby, of)
}

// itself is this instance as the map has it, or as it knows itself while the map does not have it.
func (s *Server) itself(snap *router.Snapshot) router.Instance {
	if in, ok := snap.Instance(s.cfg.Instance); ok {
		return in
	}
	return router.Instance{ID: s.cfg.Instance, Endpoint: s.cfg.Endpoint}
}
