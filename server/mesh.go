package server

import (
	"context"

	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

// Mesh knows which instances live. Safe for concurrent use.
type Mesh interface {
	// Suspect says what this instance sees of another at this moment, or which incarnation it is itself.
	Suspect(ctx context.Context, s suspect.Subject) suspect.Sighting
	// Rejoin takes in that s was removed from the group after the map of the epoch, or, for the zero subject, that a member has
	// asked for another placement.
	Rejoin(ctx context.Context, s suspect.Subject, epoch router.Epoch)
}

// meshService is the MeshService. The interceptor lets proven peers in, and nobody else.
type meshService struct {
	statemeshv1.UnsafeMeshServiceServer

	s *Server
}

// Suspect says what is seen of an instance.
func (m *meshService) Suspect(ctx context.Context, req *statemeshv1.SuspectRequest) (*statemeshv1.SuspectResponse, error) {
	subject, err := wire.ToSubject(req)
	if err != nil {
		return nil, err
	}
	var seen suspect.Sighting
	if mesh := m.s.deps.Mesh; mesh != nil {
		seen = mesh.Suspect(ctx, subject)
	}
	return wire.FromSighting(seen, m.s.cfg.Instance), nil
}

// Rejoin takes in an eviction.
func (m *meshService) Rejoin(ctx context.Context, req *statemeshv1.RejoinRequest) (*statemeshv1.RejoinResponse, error) {
	var subject suspect.Subject
	if req.GetInstance() != "" || req.GetIncarnation() != "" {
		var err error
		if subject, err = wire.ToSubject(req); err != nil {
			return nil, err
		}
	}
	if mesh := m.s.deps.Mesh; mesh != nil {
		mesh.Rejoin(ctx, subject, router.Epoch(req.GetEpoch()))
	}
	return &statemeshv1.RejoinResponse{}, nil
}

// unsuspected is the first of the candidates that is neither suspected of being dead nor was too slow a moment ago, so that a read does not wait for what nobody will
// answer; the first of all when every one is.
func (s *Server) unsuspected(candidates []router.Replica) router.Replica {
	for _, c := range candidates {
		if c.Instance == s.cfg.Instance || !s.slow.is(c.Endpoint) && (s.deps.Suspected == nil || !s.deps.Suspected(c)) {
			return c
		}
	}
	return candidates[0]
}
