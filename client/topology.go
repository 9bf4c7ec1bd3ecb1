package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// learnTimeout is how long one instance may take to hand out the map before the next is asked.
const learnTimeout = time.Second

// known returns the map to route by: the present one, or, when an answer mentioned a higher epoch and nobody follows the
// map, one that is asked for. The old map does no harm, because an instance forwards what it is wrongly asked: so one caller
// asks, and the others go on.
func (c *Client) known(ctx context.Context) (*router.Snapshot, error) {
	s, attempt := c.table.Load(), c.learnings.Load()
	switch {
	case s == nil:
		return c.newest(ctx, nil)
	case int64(s.Epoch()) >= c.wanted.Load() || c.following.Load() > 0:
		return s, nil
	}
	select {
	case c.learning <- struct{}{}:
		s, _ = c.learned(ctx, attempt, nil) // whatever is wrong with the others, the old map is there
	default:
	}
	return s, nil
}

// newest asks for the newest map, because there is none or the present one failed the caller. Who is in avoid is asked
// last. When nobody gives one it returns the present one, if there is one, with the error.
func (c *Client) newest(ctx context.Context, avoid []store.Candidate) (*router.Snapshot, error) {
	attempt := c.learnings.Load()
	select {
	case c.learning <- struct{}{}:
		return c.learned(ctx, attempt, avoid)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// learned asks for the map, unless somebody has done so since attempt. It releases the semaphore, which the caller holds.
func (c *Client) learned(ctx context.Context, attempt int64, avoid []store.Candidate) (*router.Snapshot, error) {
	defer func() { <-c.learning }()
	var err error
	if c.learnings.Load() == attempt || c.table.Load() == nil {
		err = c.learn(ctx, avoid)
		c.learnings.Add(1)
	}
	return c.table.Load(), err
}

// learn asks the known instances and the seeds, in random order, until one gives a map that is as new as the newest
// heard of. The caller holds the learning semaphore. [ErrNoMap] when nobody gave one, or what all of them said when that
// will not change by asking again.
func (c *Client) learn(ctx context.Context, avoid []store.Candidate) error {
	var errs []error
	given, final := false, 0
	for _, endpoint := range c.sources(avoid) {
		s, err := c.fetch(ctx, endpoint)
		if err == nil {
			err = c.install(ctx, endpoint, s)
		}
		switch {
		case err == nil && int64(s.Epoch()) >= c.wanted.Load():
			return nil
		case err == nil:
			given = true // it is behind what somebody said
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrClosed):
			return ErrClosed
		default:
			errs = append(errs, fmt.Errorf("%s: %w", endpoint, err))
			if errors.Is(err, store.ErrInvalidRequest) || errors.Is(err, store.ErrPermissionDenied) {
				final++
			}
		}
	}
	if given {
		return nil
	}
	c.m.maps.WithLabelValues("failed").Inc()
	err := listed(errs)
	c.cfg.Logger.WarnContext(ctx, "cannot learn the map", "error", err)
	if final == len(errs) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrNoMap, err)
}

// sources are the endpoints to learn the map from: known instances first, then seeds, each in random order; those to
// avoid at the end.
func (c *Client) sources(avoid []store.Candidate) []string {
	var known, out, last []string
	if s := c.table.Load(); s != nil {
		known = slices.Collect(maps.Keys(endpointsOf(s)))
	}
	seen := make(map[string]bool)
	for _, list := range [][]string{known, slices.Clone(c.cfg.Seeds)} {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for _, e := range list {
			switch {
			case seen[e]:
			case slices.ContainsFunc(avoid, func(a store.Candidate) bool { return a.Endpoint == e }):
				last = append(last, e)
			default:
				out = append(out, e)
			}
			seen[e] = true
		}
	}
	return append(out, last...)
}

// fetch asks one instance for the map. It uses the first message of a watch, which is one whole snapshot, and falls back
// to the two lists where watching is not served.
func (c *Client) fetch(ctx context.Context, endpoint string) (*router.Snapshot, error) {
	md, err := c.pool.Metadata(endpoint)
	if err != nil {
		return nil, err
	}
	own, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel() // ends the stream
	s, err := fetchFrom(own, md)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: no map within %s", wire.ErrUnreachable, learnTimeout)
	}
	return s, err
}

func fetchFrom(ctx context.Context, md statemeshv1.MetadataServiceClient) (*router.Snapshot, error) {
	stream, err := md.Watch(ctx, &statemeshv1.WatchRequest{})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	resp, err := stream.Recv()
	if status.Code(err) == codes.Unimplemented {
		return fetchLists(ctx, md)
	}
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	return snapshotOf(resp.GetSnapshot())
}

// fetchLists makes a snapshot of two answers, which must be of one epoch.
func fetchLists(ctx context.Context, md statemeshv1.MetadataServiceClient) (*router.Snapshot, error) {
	for {
		stores, err := md.ListStores(ctx, &statemeshv1.ListStoresRequest{})
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		instances, err := md.ListInstances(ctx, &statemeshv1.ListInstancesRequest{})
		if err != nil {
			return nil, wire.FromStatus(err)
		}
		if stores.GetEpoch() != instances.GetEpoch() {
			continue // the map changed in between; ctx bounds how often that can happen
		}
		return snapshotOf(&statemeshv1.MetadataSnapshot{
			Application: instances.GetApplication(), Epoch: instances.GetEpoch(), Instances: instances.GetInstances(),
			Stores: stores.GetStores(), Moving: instances.GetMoving(),
		})
	}
}

func snapshotOf(m *statemeshv1.MetadataSnapshot) (*router.Snapshot, error) {
	d, err := wire.ToData(m)
	if err != nil {
		return nil, err
	}
	s, err := router.NewSnapshot(d)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return s, nil
}

// ours checks who an instance answers for: who answers first decides, where the configuration does not say.
func (c *Client) ours(endpoint, application string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.app == "" {
		c.app = application
	}
	if application != c.app {
		return &store.InvalidRequestError{
			Field: "application", Reason: fmt.Sprintf("%s answers for %q, want %q", endpoint, application, c.app),
		}
	}
	return nil
}

// install puts a map into the table, lets go of what it replaces, and checks that it is of the right application. A map
// that is not newer than the present one is fine: the present one is confirmed.
func (c *Client) install(ctx context.Context, endpoint string, s *router.Snapshot) error {
	if err := c.ours(endpoint, s.Application()); err != nil {
		return err
	}
	switch err := c.table.Publish(s); {
	case errors.Is(err, router.ErrOldEpoch):
		c.m.maps.WithLabelValues("ok").Inc()
		return nil
	case err != nil:
		c.m.maps.WithLabelValues("refused").Inc()
		return err
	}
	c.m.maps.WithLabelValues("ok").Inc()
	c.cfg.Logger.InfoContext(ctx, "map learned", "app", s.Application(), "epoch", int64(s.Epoch()), "host", endpoint)
	c.retain()
	return nil
}

// retain keeps connections to the instances of the map, to owners that are newer than it, and to the seeds.
func (c *Client) retain() {
	s := c.table.Load()
	wanted := endpointsOf(s)
	for _, e := range c.cfg.Seeds {
		wanted[e] = true
	}
	c.mu.Lock()
	for id, m := range c.moved {
		if m.epoch <= s.Epoch() {
			delete(c.moved, id)
			continue
		}
		wanted[m.replica.Endpoint] = true
	}
	c.mu.Unlock()
	c.pool.Retain(wanted)
}

// heard notes that metadata of this epoch exists.
func (c *Client) heard(epoch router.Epoch) {
	for {
		have := c.wanted.Load()
		if int64(epoch) <= have || c.wanted.CompareAndSwap(have, int64(epoch)) {
			return
		}
	}
}

// noteMoved remembers an owner that is newer than the map, so that the next calls go there at once.
func (c *Client) noteMoved(s *router.Snapshot, e *store.MovedError) {
	c.heard(router.Epoch(e.Epoch))
	st, err := s.Store(e.Store)
	if err != nil || e.Endpoint == "" || router.Epoch(e.Epoch) <= s.Epoch() {
		return
	}
	id := store.TaskID{Subtopology: st.Subtopology, Partition: e.Partition}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have, ok := c.moved[id]; !ok || router.Epoch(e.Epoch) > have.epoch {
		c.moved[id] = movedTo{
			replica: router.Replica{Instance: e.Instance, Endpoint: e.Endpoint, Role: store.RoleActive},
			epoch:   router.Epoch(e.Epoch),
		}
	}
}

// movedOwner is the owner of a partition by an answer that was newer than s.
func (c *Client) movedOwner(s *router.Snapshot, name store.Name, p store.Partition) (router.Replica, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.moved) == 0 { // the usual case
		return router.Replica{}, false
	}
	st, err := s.Store(name)
	if err != nil {
		return router.Replica{}, false
	}
	m, ok := c.moved[store.TaskID{Subtopology: st.Subtopology, Partition: p}]
	return m.replica, ok && m.epoch > s.Epoch()
}
