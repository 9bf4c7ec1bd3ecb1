package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

// Mesh is how an instance asks the others who of them lives. They answer nobody else. Safe for concurrent use.
type Mesh struct {
	pool *Pool
	mark wire.Forwarded
}

var _ suspect.Peers = (*Mesh)(nil)

// Mesh returns that of an instance of an application.
func (p *Pool) Mesh(application, instance string) *Mesh {
	return &Mesh{pool: p, mark: wire.Forwarded{By: instance, Application: application}}
}

// Suspect asks the instance at endpoint what it sees of s. by is the id of who answered.
func (m *Mesh) Suspect(ctx context.Context, endpoint string, s suspect.Subject, wait suspect.Wait) (seen suspect.Sighting, by string, err error) {
	pe, err := m.pool.peer(endpoint)
	if err != nil {
		return seen, "", err
	}
	var opts []grpc.CallOption
	if wait == suspect.ForConnection {
		pe.nudge()
		opts = append(opts, grpc.WaitForReady(true))
	}
	resp, err := statemeshv1.NewMeshServiceClient(pe).Suspect(m.mark.Outgoing(ctx), &statemeshv1.SuspectRequest{
		Instance: s.Instance, Incarnation: s.Incarnation,
	}, opts...)
	if err != nil {
		return seen, "", wire.FromStatus(err)
	}
	seen, by = wire.ToSighting(resp)
	return seen, by, nil
}

// Rejoin tells the instance at endpoint that s was removed from the group after the map of the epoch, or, when s is nobody, that a
// member has asked for another placement.
func (m *Mesh) Rejoin(ctx context.Context, endpoint string, s suspect.Subject, epoch router.Epoch) error {
	pe, err := m.pool.peer(endpoint)
	if err != nil {
		return err
	}
	_, err = statemeshv1.NewMeshServiceClient(pe).Rejoin(m.mark.Outgoing(ctx), &statemeshv1.RejoinRequest{
		Instance: s.Instance, Incarnation: s.Incarnation, Epoch: int64(epoch),
	})
	return wire.FromStatus(err)
}

// Holdings asks an instance what it has of tasks.
func (m *Mesh) Holdings(ctx context.Context, of router.Instance) ([]router.Holding, error) {
	pe, err := m.pool.peer(of.Endpoint)
	if err != nil {
		return nil, err
	}
	resp, err := pe.metadata.ListInstances(m.mark.Outgoing(ctx), &statemeshv1.ListInstancesRequest{WithHoldings: true})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	if len(resp.GetInstances()) != 1 || resp.GetInstances()[0].GetId() != of.ID {
		return nil, fmt.Errorf("%w: it is not what %s holds", wire.ErrMalformed, of.ID)
	}
	h := wire.ToHoldings(resp.GetInstances()[0].GetHoldings())
	if h.Problem != "" {
		return nil, errors.New(h.Problem)
	}
	return h.Of, nil
}
