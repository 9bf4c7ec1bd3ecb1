package server

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// method is how the interceptors treat an RPC of ours.
type method struct {
	name string
	// entry and peer are the limits by the origin of the request.
	entry, peer *limiter
	// cost is what a call takes of the bytes in flight at once.
	cost int64
	// deadline is given to a call without one; 0: none is.
	deadline time.Duration
	// internal: only proven peers may call it.
	internal bool
	// operator: only who may be a peer may call it, forwarded or not.
	operator bool
}

// methods lists the RPCs of ours; others (health, reflection) are only guarded against panics.
func (s *Server) methods() map[string]method {
	d, l := s.cfg.DefaultDeadline, &s.limits
	m := map[string]method{
		statemeshv1.QueryService_Get_FullMethodName:                 {entry: l.requests, peer: l.peerRequests, deadline: d},
		statemeshv1.QueryService_BatchGet_FullMethodName:            {entry: l.requests, peer: l.peerRequests, deadline: d},
		statemeshv1.QueryService_Count_FullMethodName:               {entry: l.requests, peer: l.peerRequests, deadline: d},
		statemeshv1.QueryService_Scan_FullMethodName:                {entry: l.scans, peer: l.peerScans, deadline: scanDeadlineFactor * d},
		statemeshv1.MetadataService_ListStores_FullMethodName:       {entry: l.requests, peer: l.requests, deadline: d},
		statemeshv1.MetadataService_ListInstances_FullMethodName:    {entry: l.requests, peer: l.peerRequests, deadline: d},
		statemeshv1.MetadataService_FindOwner_FullMethodName:        {entry: l.requests, peer: l.requests, deadline: d},
		statemeshv1.MetadataService_Watch_FullMethodName:            {entry: l.watches, peer: l.watches},
		statemeshv1.MeshService_Suspect_FullMethodName:              {entry: l.peerRequests, peer: l.peerRequests, deadline: d, internal: true},
		statemeshv1.MeshService_Rejoin_FullMethodName:               {entry: l.peerRequests, peer: l.peerRequests, deadline: d, internal: true},
		statemeshv1.AdminService_Drain_FullMethodName:               {entry: l.watches, peer: l.watches, operator: true},
		statemeshv1.AdminService_Undrain_FullMethodName:             {entry: l.requests, peer: l.requests, deadline: d, operator: true},
		statemeshv1.AdminService_AddThread_FullMethodName:           {entry: l.watches, peer: l.watches, deadline: threadDeadline, operator: true},
		statemeshv1.AdminService_RemoveThread_FullMethodName:        {entry: l.watches, peer: l.watches, deadline: threadDeadline, operator: true},
		statemeshv1.AdminService_ListThreads_FullMethodName:         {entry: l.requests, peer: l.requests, deadline: d, operator: true},
		statemeshv1.MetadataService_DescribeTopology_FullMethodName: {entry: l.requests, peer: l.requests, deadline: d},
		statemeshv1.MeshService_CopyTask_FullMethodName:             {entry: l.peerRequests, peer: l.peerRequests, internal: true},
	}
	for full, v := range m {
		v.name = full[strings.LastIndexByte(full, '/')+1:]
		v.cost = requestCost
		if v.entry == l.scans {
			v.cost += 2 * int64(s.cfg.ScanChunkBytes) // one is filled while another is sent
		}
		if full == statemeshv1.MeshService_CopyTask_FullMethodName { // which counts its places when it knows for whom it is
			v.cost += 2 * wire.CopyChunkBytes
		}
		m[full] = v
	}
	return m
}

// unary admits, guards, measures and translates. Handlers return errors of the domain.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	m, ours := s.byName[info.FullMethod]
	if !ours {
		defer translate(&err)
		defer s.recovered(ctx, info.FullMethod, &err)
		return handler(ctx, req)
	}
	c := &call{method: m.name, start: time.Now()}
	defer s.done(ctx, c, &err)
	defer s.recovered(ctx, m.name, &err)
	ctx, leave, err := s.admit(ctx, c, &m)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.checkMessage(c, req); err != nil {
		return nil, err
	}
	resp, err = handler(ctx, req)
	if err != nil {
		return nil, err
	}
	n := proto.Size(resp.(proto.Message))
	if n > s.cfg.MaxMessageBytes {
		return nil, s.tooLarge("response", int64(n))
	}
	if err := c.hold(int64(n) - c.answer.Load()); err != nil {
		return nil, err
	}
	return resp, nil
}

// stream is the same for streams; the request is checked when the handler has it.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	m, ours := s.byName[info.FullMethod]
	if !ours {
		defer translate(&err)
		defer s.recovered(ss.Context(), info.FullMethod, &err)
		return s.untilStop(srv, ss, handler)
	}
	c := &call{method: m.name, start: time.Now()}
	defer s.done(ss.Context(), c, &err)
	defer s.recovered(ss.Context(), m.name, &err)
	ctx, leave, err := s.admit(ss.Context(), c, &m)
	if err != nil {
		return err
	}
	defer leave()
	return handler(srv, &serverStream{ServerStream: ss, ctx: ctx, s: s})
}

// untilStop runs a stream of health or reflection, which ends only with its context, so that it does not hold up the
// stop.
func (s *Server) untilStop(srv any, ss grpc.ServerStream, handler grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(ss.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	})
	return handler(srv, &plainStream{ServerStream: ss, ctx: ctx})
}

type plainStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // how grpc hands a context to the handler of a stream
}

func (ss *plainStream) Context() context.Context { return ss.ctx }

// serverStream carries the admitted context and checks what comes in.
type serverStream struct {
	grpc.ServerStream

	ctx context.Context //nolint:containedctx // how grpc hands a context to the handler of a stream
	s   *Server
}

func (ss *serverStream) Context() context.Context { return ss.ctx }

func (ss *serverStream) RecvMsg(m any) error {
	if err := ss.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return ss.s.checkMessage(callOf(ss.ctx), m)
}

// admit finds out who asks and takes a slot of the right limit. leave gives it back.
func (s *Server) admit(ctx context.Context, c *call, m *method) (context.Context, func(), error) {
	limit := m.entry
	fwd, forwarded, err := wire.ToForwarded(ctx)
	if err != nil {
		return nil, nil, err
	}
	if m.internal && !forwarded {
		return nil, nil, &store.PermissionDeniedError{Action: "call " + m.name, Reason: "only instances of the mesh may"}
	}
	if m.operator {
		if err := s.operates(ctx, m.name); err != nil {
			return nil, nil, err
		}
	}
	if forwarded {
		if err := s.trust(ctx, fwd); err != nil {
			return nil, nil, err
		}
		c.origin, limit = router.OriginPeer, m.peer
	}
	select {
	case <-s.stopping:
		return nil, nil, store.ErrShuttingDown
	default:
	}
	if err := limit.acquire(); err != nil {
		return nil, nil, err
	}
	c.bytes = s.bytes
	if err := c.hold(m.cost); err != nil {
		limit.release()
		return nil, nil, err
	}
	leave := func() { c.letGo(); limit.release() }
	ctx = store.WithUser(withCall(ctx, c), c.method)
	if _, has := ctx.Deadline(); !has && m.deadline > 0 {
		ctx, cancel := context.WithTimeout(ctx, m.deadline)
		return ctx, func() { cancel(); leave() }, nil
	}
	return ctx, leave, nil
}

// trust reports why a forwarded request must not be taken for one; nil when it may.
func (s *Server) trust(ctx context.Context, fwd wire.Forwarded) error {
	if err := s.provenPeer(ctx); err != nil {
		return err
	}
	if fwd.Application != s.cfg.Application {
		return denied(fmt.Sprintf("it comes from application %q, this is %q", fwd.Application, s.cfg.Application))
	}
	if fwd.By == s.cfg.Instance {
		return denied("it comes from an instance of the same id: two processes share one, or the endpoint of a peer leads back here")
	}
	return nil
}

// checkMessage refuses what is too large or asks for what this version does not know.
func (s *Server) checkMessage(c *call, req any) error {
	m, ok := req.(proto.Message)
	if !ok {
		return &store.InvalidRequestError{Field: "request", Reason: "no message"}
	}
	n := proto.Size(m)
	if n > s.cfg.MaxMessageBytes {
		return s.tooLarge("request", int64(n))
	}
	if unknown := len(m.ProtoReflect().GetUnknown()); unknown > 0 {
		return &store.InvalidRequestError{Field: "request", Reason: fmt.Sprintf("%d bytes of fields that this server does not know", unknown)}
	}
	return c.hold(int64(n))
}

func (s *Server) tooLarge(what string, size int64) error {
	return &store.TooLargeError{What: what, Size: size, Limit: int64(s.cfg.MaxMessageBytes), Setting: "server.max.message.bytes"}
}

// done counts the call and translates its error. It is deferred first, so it sees what recovered makes of a panic.
func (s *Server) done(ctx context.Context, c *call, err *error) {
	outcome := "OK"
	if *err != nil {
		if ctx.Err() != nil && errors.Is(*err, context.Canceled) {
			*err = context.Canceled // whatever else the cancellation broke
		}
		outcome = wire.ReasonName(wire.Reason(*err))
		if wire.Reason(*err) == statemeshv1.Reason_REASON_INTERNAL && !errors.Is(*err, wire.ErrInternal) {
			s.logDefect(ctx, c.method, *err)
		}
		*err = wire.ToStatus(*err)
	}
	route := c.route()
	s.m.requests.WithLabelValues(c.method, c.originName(), route, outcome).Inc()
	s.m.seconds.WithLabelValues(c.method, route).Observe(time.Since(c.start).Seconds())
}

// recovered turns a panic into an error: a request must not take the process down. What the request held is released by
// the handlers' own defers.
func (s *Server) recovered(ctx context.Context, name string, err *error) {
	if v := recover(); v != nil {
		*err = s.panicError(ctx, name, v)
	}
}

// panicError counts and logs a recovered panic. Its text is not logged unless the runtime wrote it: it may quote data.
func (s *Server) panicError(ctx context.Context, name string, v any) error {
	s.m.panics.Inc()
	what := fmt.Sprintf("%T", v)
	if re, ok := v.(runtime.Error); ok {
		what = re.Error()
	}
	s.log.ErrorContext(ctx, "a request panicked", "method", name, "panic", what, "stack", string(debug.Stack()))
	return wire.ErrInternal
}

// translate makes a status of a recovered panic; services that are not ours return statuses themselves.
func translate(err *error) {
	if errors.Is(*err, wire.ErrInternal) {
		*err = wire.ToStatus(*err)
	}
}

// defectLogInterval keeps a defect that every request runs into from filling the log.
const defectLogInterval = int64(time.Second)

func (s *Server) logDefect(ctx context.Context, name string, err error) {
	now := time.Now().UnixNano()
	last := s.lastDefect.Load()
	if now-last < defectLogInterval || !s.lastDefect.CompareAndSwap(last, now) {
		return
	}
	s.log.ErrorContext(ctx, "a request met a defect", "method", name, "error", err)
}
