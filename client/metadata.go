package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Metadata returns the map: as an instance has it now, or, while [Client.Run] follows it, as it came last.
func (c *Client) Metadata(ctx context.Context) (*router.Snapshot, error) {
	if s := c.table.Load(); s != nil && c.following.Load() > 0 {
		return s, nil
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	a := c.begin("learn the map", "", &callOptions{})
	for {
		a.n++
		s, err := c.newest(ctx, nil)
		if err == nil {
			return s, nil
		}
		if err := a.again(ctx, nil, failure{err: err}); err != nil {
			return nil, err
		}
	}
}

// Stores lists the stores of the application by name.
func (c *Client) Stores(ctx context.Context) ([]router.StoreInfo, error) {
	s, err := c.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	return s.Stores(), nil
}

// Instances lists the instances by id, with the tasks they hold (upstream's StreamsMetadata).
func (c *Client) Instances(ctx context.Context) ([]router.Instance, error) {
	s, err := c.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	return s.Instances(), nil
}

// Owner is who holds a key (upstream's KeyQueryMetadata).
type Owner struct {
	Partition store.Partition
	Epoch     router.Epoch
	// Active is the owner; its Instance is empty when the partition has none at this epoch.
	Active   router.Replica
	Standbys []router.Replica
	// MovingTo is the instance that is about to own it; empty when it stays.
	MovingTo string
}

// Owner tells which partition a key belongs to and who holds it.
func (c *Client) Owner(ctx context.Context, name store.Name, key []byte) (Owner, error) {
	s, err := c.Metadata(ctx)
	if err != nil {
		return Owner{}, err
	}
	p, err := s.Partition(name, key)
	if err != nil {
		return Owner{}, err
	}
	st, err := s.Store(name)
	if err != nil {
		return Owner{}, err
	}
	o := Owner{Partition: p, Epoch: s.Epoch()}
	for _, r := range s.Replicas(name, p) {
		if r.Role == store.RoleActive {
			o.Active = r
		} else {
			o.Standbys = append(o.Standbys, r)
		}
	}
	o.MovingTo, _ = s.MovingTo(store.TaskID{Subtopology: st.Subtopology, Partition: p})
	return o, nil
}

// Run follows the map until ctx ends, so that calls of this client start with the newest one. It returns nil. While
// nobody can be reached it goes on trying, with growing waits.
func (c *Client) Run(ctx context.Context) error {
	for range c.Watch(ctx) { // Watch itself puts what it sees into the table
	}
	return nil
}

// Watch yields the present map and then each newer one, until ctx ends. Versions that follow each other faster than the
// loop are skipped. When the instance it listens to goes away it goes on with another; epochs only grow.
func (c *Client) Watch(ctx context.Context) iter.Seq[*router.Snapshot] {
	return func(yield func(*router.Snapshot) bool) {
		w := &watch{c: c, yield: yield}
		for n := 0; ctx.Err() == nil && !w.stop; {
			before := w.seen
			for _, endpoint := range c.sources(w.avoid) {
				err := w.listen(ctx, endpoint)
				if w.stop || ctx.Err() != nil {
					return
				}
				c.cfg.Logger.DebugContext(ctx, "watch of the map ended", "host", endpoint, "error", err)
				w.avoid = []store.Candidate{{Endpoint: endpoint}}
				if w.seen > before {
					break // it was of use: begin with the instances of the newest map
				}
			}
			if w.seen > before {
				n = 0
			}
			timer := time.NewTimer(backoffFor(n))
			n++
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
			}
		}
	}
}

// watch is a Watch under way.
type watch struct {
	c     *Client
	yield func(*router.Snapshot) bool
	seen  router.Epoch // the highest yielded
	stop  bool         // the loop has had enough
	avoid []store.Candidate
}

// listen follows the map at one instance until that fails or the loop has had enough.
func (w *watch) listen(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	md, err := w.c.pool.Metadata(endpoint)
	if err != nil {
		return err
	}
	req := &statemeshv1.WatchRequest{}
	if w.seen > 0 {
		req.KnownEpoch = new(int64(w.seen))
	}
	stream, err := md.Watch(ctx, req)
	if err != nil {
		return wire.FromStatus(err)
	}
	following := false
	defer func() {
		if following {
			w.c.following.Add(-1)
		}
	}()
	for {
		m, err := stream.Recv()
		if err != nil {
			return wire.FromStatus(err)
		}
		s, err := snapshotOf(m.GetSnapshot())
		if err != nil {
			return err
		}
		if err := w.c.install(ctx, endpoint, s); err != nil && !errors.Is(err, router.ErrPartial) {
			return fmt.Errorf("%s: %w", endpoint, err)
		}
		if !following {
			following = true
			w.c.following.Add(1)
		}
		if now := w.c.table.Load(); now != nil && now.Epoch() > w.seen {
			w.seen = now.Epoch()
			if w.stop = !w.yield(now); w.stop {
				return nil
			}
		}
	}
}
