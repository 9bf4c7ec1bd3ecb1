package statemesh

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// peers is how the runtime of an instance reaches the other instances.
type peers struct {
	table     *router.Table
	mesh      *client.Mesh
	self      suspect.Subject
	suspected func(to router.Replica) bool
	log       *slog.Logger
}

var _ processor.Peers = (*peers)(nil)

// Bounds of what is said to peers. A farewell may take a little longer: nobody else is told anything meanwhile.
const (
	rejoinTimeout   = 500 * time.Millisecond
	farewellTimeout = time.Second
	holdingsTimeout = time.Second
)

// Rejoin implements processor.Peers: it tells the other instances of the map to look for their tasks at once. Those that are not
// reached find out by their next heartbeat.
func (p *peers) Rejoin(ctx context.Context, epoch router.Epoch, why processor.Rejoining) {
	snap := p.table.Load()
	if snap == nil {
		return
	}
	var gone suspect.Subject // nobody
	timeout := rejoinTimeout
	if why == processor.HasLeft {
		gone, timeout = p.self, farewellTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var told sync.WaitGroup
	for _, other := range snap.Instances() {
		if other.ID == p.self.Instance || other.Endpoint == "" {
			continue
		}
		told.Go(func() {
			if err := p.mesh.Rejoin(ctx, other.Endpoint, gone, epoch); err != nil {
				p.log.DebugContext(ctx, "not told to join the group", "instance", other.ID, "error", err)
			}
		})
	}
	told.Wait()
}

// Holdings implements processor.Peers.
func (p *peers) Holdings(ctx context.Context, of router.Instance) ([]router.Holding, error) {
	if of.Endpoint == "" {
		return nil, errors.New("it has no endpoint")
	}
	ctx, cancel := context.WithTimeout(ctx, holdingsTimeout)
	defer cancel()
	return p.mesh.Holdings(ctx, of)
}

// CopyTask implements processor.Peers.
func (p *peers) CopyTask(ctx context.Context, endpoint string, req store.CopyRequest, to store.CopyTaker) error {
	return p.mesh.CopyTask(ctx, endpoint, req, to)
}

// Suspected implements processor.Peers.
func (p *peers) Suspected(to router.Replica) bool { return p.suspected(to) }
