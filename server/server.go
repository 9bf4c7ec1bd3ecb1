package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
)

// Server answers queries of one instance. Its services are safe for concurrent use; Run is called once.
type Server struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	m      *metrics
	limits limits
	bytes  *byteLimit
	lanes  lanes
	byName map[string]method
	certs  *certs.Source // nil for plain text
	opts   []grpc.ServerOption
	grpc   *grpc.Server // of Run
	health *health.Server
	// copyPace holds for all copies together. senders are what sends them; Run waits for them.
	copyPace pace
	senders  sync.WaitGroup

	// slow are peers that were overtaken by a copy; hedges counts the hedges under way.
	slow   slowPeers
	hedges atomic.Int64

	// stopping is closed when Run begins to stop.
	stopping   chan struct{}
	started    atomic.Bool
	lastDefect atomic.Int64
}

// streamWorkers is how many goroutines wait for requests: theirs is a stack that has grown to what a request needs. More
// requests than that at once get goroutines of their own, whose stacks grow by copying, some 8 % of a point read's CPU.
const streamWorkers = 32

// New checks the configuration, all problems at once, and loads the certificates. It starts nothing and listens nowhere.
func New(cfg Config, deps Deps) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if deps.Stores == nil || deps.Peers == nil || deps.Table == nil {
		return nil, errors.New("server: stores, peers and table are required")
	}
	s := &Server{cfg: cfg, deps: deps, log: cfg.Logger, m: newMetrics(cfg.Registerer), stopping: make(chan struct{})}
	s.limits, s.bytes = newLimits(&s.cfg, s.m), newByteLimit(s.cfg.MaxBytes, s.m)
	s.lanes.most, s.lanes.message = min(laneKeys, cfg.MaxBatchKeys), cfg.MaxMessageBytes
	s.byName = s.methods()
	s.copyPace.perSecond = float64(max(cfg.CopyBytesPerSecond, 0))
	opts := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.stream),
		// What is a little too large is refused by us, with a reason; the transport's limit is only the backstop.
		grpc.MaxRecvMsgSize(cfg.MaxMessageBytes + wire.MessageSlack),
		grpc.MaxHeaderListSize(64 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.StaticStreamWindowSize(wire.RequestWindowBytes),
		grpc.StaticConnWindowSize(wire.ConnectionWindowBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: wire.KeepaliveMinTime, PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: wire.ServerKeepaliveTime, Timeout: wire.KeepaliveTimeout,
		}),
		grpc.WaitForHandlers(true),
	}
	if cfg.TLS != nil {
		src, err := cfg.TLS.load(s.log)
		if err != nil {
			return nil, err
		}
		s.certs = src
		opts = append(opts, grpc.Creds(cfg.TLS.credentials(src)))
	}
	s.opts = opts
	s.health = health.NewServer()
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

// Run serves until ctx ends, then stops in order: health says NOT_SERVING, watches end, new calls are refused, and calls in
// flight have GracePeriod to end before they are cut off. It returns nil after that, and the error of a listener that
// failed. Every goroutine of the server has ended when it returns.
func (s *Server) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return errors.New("server: Run was called before")
	}
	lis, admin, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.grpc = s.services()
	g, ctx := errgroup.WithContext(ctx)
	if admin != nil {
		g.Go(func() error { return s.serveAdmin(ctx, admin) })
	}
	g.Go(func() error {
		if err := s.grpc.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve %s: %w", lis.Addr(), err)
		}
		return nil
	})
	s.setHealth(grpc_health_v1.HealthCheckResponse_SERVING)
	s.log.InfoContext(ctx, "serving queries", "address", lis.Addr().String(), "endpoint", s.cfg.Endpoint, "tls", s.cfg.TLS != nil)
	g.Go(func() error {
		<-ctx.Done()
		s.stop(ctx)
		return nil
	})
	return g.Wait()
}

// services makes the gRPC server. Its workers start with it and end when it stops, so this is for Run.
func (s *Server) services() *grpc.Server {
	g := grpc.NewServer(s.opts...)
	statemeshv1.RegisterQueryServiceServer(g, &queryService{s: s})
	statemeshv1.RegisterMetadataServiceServer(g, &metadataService{s: s})
	statemeshv1.RegisterMeshServiceServer(g, &meshService{s: s})
	statemeshv1.RegisterAdminServiceServer(g, &adminService{s: s})
	grpc_health_v1.RegisterHealthServer(g, s.health)
	reflection.Register(g)
	return g
}

// listen opens what was not handed over.
func (s *Server) listen(ctx context.Context) (lis, admin net.Listener, err error) {
	lis, admin = s.cfg.Listener, s.cfg.AdminListener
	var lc net.ListenConfig
	if lis == nil {
		if lis, err = lc.Listen(ctx, "tcp", s.cfg.Listen); err != nil {
			return nil, nil, fmt.Errorf("listen for queries: %w", err)
		}
	}
	if admin == nil && s.cfg.AdminListen != "" {
		if admin, err = lc.Listen(ctx, "tcp", s.cfg.AdminListen); err != nil {
			return nil, nil, errors.Join(fmt.Errorf("listen for admin: %w", err), lis.Close())
		}
	}
	return lis, admin, nil
}

// stop stops the gRPC server: politely at first.
func (s *Server) stop(ctx context.Context) {
	begin := time.Now()
	s.setHealth(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	close(s.stopping)
	s.log.InfoContext(ctx, "waiting for calls in flight", "at_most", s.cfg.GracePeriod)
	cut := time.AfterFunc(s.cfg.GracePeriod, func() {
		s.log.WarnContext(ctx, "calls in flight are cut off", "after", s.cfg.GracePeriod)
		s.grpc.Stop()
	})
	s.grpc.GracefulStop()
	cut.Stop()
	s.senders.Wait()
	s.health.Shutdown()
	s.log.InfoContext(ctx, "stopped serving queries", "took", time.Since(begin))
}

func (s *Server) setHealth(st grpc_health_v1.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", st)
	s.health.SetServingStatus(statemeshv1.QueryService_ServiceDesc.ServiceName, st)
	s.health.SetServingStatus(statemeshv1.MetadataService_ServiceDesc.ServiceName, st)
}
