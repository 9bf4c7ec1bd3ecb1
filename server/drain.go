package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Drainer gives everything away that this instance has. Safe for concurrent use.
type Drainer interface {
	// Drain begins a drain, or watches the one under way, until the goal is reached, or it ends with one of router's errors, or
	// with the cause of ctx's end. report hears of every change, by the caller's goroutine.
	Drain(ctx context.Context, goal router.DrainGoal, report func(router.DrainStatus)) error
	// Undrain ends it.
	Undrain()
}

// adminService is the AdminService. The interceptor lets in who may be a peer, and nobody else.
type adminService struct {
	statemeshv1.UnsafeAdminServiceServer

	s *Server
}

var errNoDrain = &store.InvalidRequestError{Field: "call", Reason: "this instance does not drain"}

// Drain sends how far the drain is, until it ends.
func (a *adminService) Drain(req *statemeshv1.DrainRequest, out grpc.ServerStreamingServer[statemeshv1.DrainResponse]) error {
	d := a.s.deps.Drainer
	if d == nil {
		return errNoDrain
	}
	ctx, cancel := context.WithCancelCause(out.Context())
	defer cancel(nil)
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() { // the end of the server ends the watch
		defer close(ended)
		select {
		case <-a.s.stopping:
			cancel(store.ErrShuttingDown)
		case <-stop:
		}
	}()
	defer func() { close(stop); <-ended }()
	last := &statemeshv1.DrainResponse{AnsweredBy: a.s.cfg.Instance}
	err := d.Drain(ctx, wire.ToDrainGoal(req), func(s router.DrainStatus) {
		last = wire.FromDrainStatus(s, a.s.cfg.Instance)
		if err := out.Send(last); err != nil {
			cancel(sendError(ctx, err))
		}
	})
	outcome, is := wire.FromDrainOutcome(err)
	if !is {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	last.Outcome = outcome
	return sendError(ctx, out.Send(last))
}

// Undrain ends a drain.
func (a *adminService) Undrain(context.Context, *statemeshv1.UndrainRequest) (*statemeshv1.UndrainResponse, error) {
	d := a.s.deps.Drainer
	if d == nil {
		return nil, errNoDrain
	}
	d.Undrain()
	return &statemeshv1.UndrainResponse{AnsweredBy: a.s.cfg.Instance}, nil
}

// operates reports why a caller may not operate this instance; nil when it may.
func (s *Server) operates(ctx context.Context, name string) error {
	err := s.provenPeer(ctx)
	if e, ok := errors.AsType[*store.PermissionDeniedError](err); ok {
		return &store.PermissionDeniedError{Action: "call " + name, Reason: e.Reason}
	}
	return err
}
