package server

import (
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// metadataService is the MetadataService: the snapshot that is in the table, translated.
type metadataService struct {
	statemeshv1.UnsafeMetadataServiceServer

	s *Server
}

// ListStores lists the stores.
func (m *metadataService) ListStores(context.Context, *statemeshv1.ListStoresRequest) (*statemeshv1.ListStoresResponse, error) {
	snap, err := m.snapshot()
	if err != nil {
		return nil, err
	}
	return &statemeshv1.ListStoresResponse{
		Application: snap.Application(), Epoch: int64(snap.Epoch()), Stores: wire.FromStores(snap.Stores()),
	}, nil
}

// ListInstances lists the instances, or those that hold some of a store.
func (m *metadataService) ListInstances(ctx context.Context, req *statemeshv1.ListInstancesRequest) (*statemeshv1.ListInstancesResponse, error) {
	snap, err := m.snapshot()
	if err != nil {
		return nil, err
	}
	d := snap.Data()
	of := func(store.TaskID) bool { return true }
	if req.Store != nil {
		info, err := snap.Store(store.Name(req.GetStore()))
		if err != nil {
			return nil, err
		}
		of = func(id store.TaskID) bool { return id.Subtopology == info.Subtopology }
	}
	resp := &statemeshv1.ListInstancesResponse{Application: d.Application, Epoch: int64(d.Epoch), Moving: wire.FromMoving(d.Moving)}
	switch {
	case req.GetWithHoldings() && callOf(ctx).origin == router.OriginPeer: // answered here, and by nobody else
		resp.Instances, err = m.s.withHoldings(ctx, []router.Instance{m.s.itself(snap)}, of)
	case req.GetWithHoldings():
		resp.Instances, err = m.s.withHoldings(ctx, d.Instances, of)
	default:
		if req.Store != nil {
			d.Instances = slices.DeleteFunc(d.Instances, func(in router.Instance) bool { return !holds(in, of) })
		}
		resp.Instances = wire.FromInstances(d.Instances)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// FindOwner tells who holds a key.
func (m *metadataService) FindOwner(_ context.Context, req *statemeshv1.FindOwnerRequest) (*statemeshv1.FindOwnerResponse, error) {
	snap, err := m.snapshot()
	if err != nil {
		return nil, err
	}
	name := store.Name(req.GetStore())
	info, err := snap.Store(name)
	if err != nil {
		return nil, err
	}
	p, err := snap.Partition(name, req.GetKey())
	if err != nil {
		return nil, err
	}
	resp := &statemeshv1.FindOwnerResponse{Partition: int32(p), Epoch: int64(snap.Epoch())}
	for _, r := range snap.Replicas(name, p) {
		if r.Role == store.RoleActive {
			resp.Active = wire.FromReplica(r)
		} else {
			resp.Standbys = append(resp.Standbys, wire.FromReplica(r))
		}
	}
	if to, moving := snap.MovingTo(store.TaskID{Subtopology: info.Subtopology, Partition: p}); moving {
		if in, ok := snap.Instance(to); ok {
			resp.MovingTo = wire.FromReplica(router.Replica{Instance: in.ID, Endpoint: in.Endpoint})
		}
	}
	return resp, nil
}

// Watch sends each new snapshot. It waits on the table, so a slow reader costs nothing but skipped versions.
func (m *metadataService) Watch(req *statemeshv1.WatchRequest, out grpc.ServerStreamingServer[statemeshv1.WatchResponse]) error {
	known := router.Epoch(req.GetKnownEpoch()) // 0 when absent, which every epoch is above
	for {
		snap, changed := m.s.deps.Table.Watch()
		if snap != nil && snap.Epoch() > known {
			known = snap.Epoch()
			if err := out.Send(&statemeshv1.WatchResponse{Snapshot: wire.FromSnapshot(snap)}); err != nil {
				return sendError(out.Context(), err)
			}
		}
		select {
		case <-changed:
		case <-m.s.stopping:
			return store.ErrShuttingDown
		case <-out.Context().Done():
			return context.Cause(out.Context())
		}
	}
}

// DescribeTopology tells what this instance runs.
func (m *metadataService) DescribeTopology(context.Context, *statemeshv1.DescribeTopologyRequest) (*statemeshv1.DescribeTopologyResponse, error) {
	if m.s.deps.Topology == nil {
		return nil, &store.InvalidRequestError{Field: "call", Reason: "this instance does not describe its topology"}
	}
	return wire.FromTopology(m.s.deps.Topology(), m.s.cfg.Instance), nil
}

func (m *metadataService) snapshot() (*router.Snapshot, error) {
	if snap := m.s.deps.Table.Load(); snap != nil {
		return snap, nil
	}
	return nil, noMetadata("")
}

// sendError is the error of a stream whose other end is gone: the cancellation, not what the transport makes of it.
func sendError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return wire.FromStatus(err)
}
