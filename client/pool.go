package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

// ErrClosed reports the use of a Client or Pool after Close.
var ErrClosed = errors.New("client: closed")

// PoolConfig configures connections.
type PoolConfig struct {
	// TLS secures every connection; the server's name is the host of its endpoint. nil: plain text, which is refused
	// beyond loopback unless AllowInsecure is set.
	TLS *tls.Config
	// AllowInsecure permits plain text to any address. Everybody on the way can then read and change what is sent.
	AllowInsecure bool
	// MaxMessageBytes bounds a message in either direction. Default [wire.MaxMessageBytes], like the server's.
	MaxMessageBytes int
	// Dial replaces the TCP dialer, for tests and tunnels. addr is the endpoint.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Broken is told of every connection that could not be made or that was not ended from here, with the reason. It must not
	// block. With it, connections that nobody uses stay open: they tell when the other end is gone.
	Broken func(endpoint string, err error)
}

// Pool has one connection per endpoint, made when it is first used. It is no cache: a connection lives as long as its
// endpoint is wanted, and an endpoint that is not wanted any more loses it when its last call has ended. No call fails
// because of that. Safe for concurrent use.
type Pool struct {
	cfg  PoolConfig
	opts []grpc.DialOption

	// mu guards what follows. It is never held together with the mutex of a peer, nor over a blocking call.
	mu     sync.Mutex
	peers  map[string]*peer
	closed bool
}

// NewPool returns an empty pool. It connects to nobody and starts nothing.
func NewPool(cfg PoolConfig) *Pool {
	if cfg.MaxMessageBytes <= 0 {
		cfg.MaxMessageBytes = wire.MaxMessageBytes
	}
	p := &Pool{cfg: cfg, peers: make(map[string]*peer)}
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	p.opts = []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		// Neither a proxy of the environment nor a service config from DNS has a say within the mesh; who retries is
		// decided in one place, which is not the transport.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithStaticStreamWindowSize(wire.AnswerWindowBytes),
		grpc.WithStaticConnWindowSize(wire.ConnectionWindowBytes),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: wire.KeepaliveTime, Timeout: wire.KeepaliveTimeout, PermitWithoutStream: true,
		}),
		// A restarted peer is found again within a second or two, and not by everybody in the same moment. The connect
		// timeout is for hosts that answer nothing at all; grpc's own 20 s would pin callers to them.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: time.Second,
		}),
		// Fail fast: a call to a peer that is known to be down fails at once, with the reason, and goes elsewhere.
		grpc.WithDefaultCallOptions(
			grpc.WaitForReady(false),
			grpc.MaxCallRecvMsgSize(cfg.MaxMessageBytes),
			grpc.MaxCallSendMsgSize(cfg.MaxMessageBytes),
		),
	}
	switch {
	case cfg.Broken != nil:
		p.opts = append(p.opts, grpc.WithContextDialer(watching(cfg.Dial, cfg.Broken)), grpc.WithIdleTimeout(0))
	case cfg.Dial != nil:
		p.opts = append(p.opts, grpc.WithContextDialer(cfg.Dial))
	}
	return p
}

// Query returns the query service at "host:port". It does not wait for a connection: a peer that cannot be reached shows
// at the first call. Ask for it at each call rather than keep it: it stays good when the endpoint is let go, but then
// each of its calls makes a connection of its own.
func (p *Pool) Query(endpoint string) (statemeshv1.QueryServiceClient, error) {
	pe, err := p.peer(endpoint)
	if err != nil {
		return nil, err
	}
	return pe.query, nil
}

// Metadata returns the metadata service at "host:port", see [Pool.Query].
func (p *Pool) Metadata(endpoint string) (statemeshv1.MetadataServiceClient, error) {
	pe, err := p.peer(endpoint)
	if err != nil {
		return nil, err
	}
	return pe.metadata, nil
}

// Retain lets go of the connections to all endpoints that are not wanted. Those that are and could not be reached are
// tried again at once: they may be up by now.
func (p *Pool) Retain(wanted map[string]bool) {
	p.mu.Lock()
	var gone, kept []*peer
	for endpoint, pe := range p.peers {
		if wanted[endpoint] {
			kept = append(kept, pe)
			continue
		}
		delete(p.peers, endpoint)
		gone = append(gone, pe)
	}
	p.mu.Unlock()
	for _, pe := range gone {
		pe.retire()
	}
	for _, pe := range kept {
		pe.nudge()
	}
}

// Follow keeps the connections to the instances of the newest metadata and lets go of others, until ctx ends. It returns
// nil.
func (p *Pool) Follow(ctx context.Context, table *router.Table) error {
	for {
		s, changed := table.Watch()
		if s != nil {
			p.Retain(endpointsOf(s))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Close closes every connection at once; calls in flight fail. Idempotent.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	peers := slices.Collect(maps.Values(p.peers))
	clear(p.peers)
	p.mu.Unlock()
	errs := make([]error, 0, len(peers))
	for _, pe := range peers {
		errs = append(errs, pe.close())
	}
	return errors.Join(errs...)
}

func (p *Pool) peer(endpoint string) (*peer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if pe, ok := p.peers[endpoint]; ok {
		return pe, nil
	}
	if p.cfg.TLS == nil && !p.cfg.AllowInsecure && p.cfg.Dial == nil && !certs.Loopback(endpoint) {
		return nil, fmt.Errorf("client: %s: plain text beyond loopback: give a TLS configuration, or allow insecure", endpoint)
	}
	pe := &peer{pool: p, endpoint: endpoint}
	pe.query = statemeshv1.NewQueryServiceClient(pe)
	pe.metadata = statemeshv1.NewMetadataServiceClient(pe)
	p.peers[endpoint] = pe
	return pe, nil
}

// peer is the connection to one endpoint, as a grpc.ClientConnInterface that outlives its connections.
type peer struct {
	pool     *Pool
	endpoint string
	query    statemeshv1.QueryServiceClient
	metadata statemeshv1.MetadataServiceClient

	// doubtedUntil is until when others are asked first, Unix nanoseconds.
	doubtedUntil atomic.Int64

	mu sync.Mutex
	// Invariant: conn is not nil while calls > 0, unless the peer is closed.
	conn    *grpc.ClientConn
	calls   int
	retired bool // not wanted: the connection ends with its last call
	closed  bool
}

// Invoke makes a unary call.
func (pe *peer) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, err := pe.acquire()
	if err != nil {
		return err
	}
	defer pe.release()
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream opens a stream; the connection is held until the stream has ended.
func (pe *peer) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := pe.acquire()
	if err != nil {
		return nil, err
	}
	release := sync.OnceFunc(pe.release)
	opts = append(slices.Clip(opts), grpc.OnFinish(func(error) { release() }))
	st, err := conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		release()
		return nil, err
	}
	return st, nil
}

func (pe *peer) acquire() (*grpc.ClientConn, error) {
	pe.mu.Lock()
	defer pe.mu.Unlock()
	if pe.closed {
		return nil, ErrClosed
	}
	if pe.conn == nil {
		// The dialer resolves names at each attempt, so a name that got another address is found again, and an address
		// needs no look-up at all; grpc's DNS resolver would ask at most every 30 s.
		conn, err := grpc.NewClient("passthrough:///"+pe.endpoint, pe.pool.opts...)
		if err != nil {
			return nil, fmt.Errorf("client: %s: %w", pe.endpoint, err)
		}
		pe.conn = conn
	}
	pe.calls++
	return pe.conn, nil
}

func (pe *peer) release() {
	pe.mu.Lock()
	pe.calls--
	conn := pe.takeIdle()
	pe.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nothing is in flight; the only error is a second Close
	}
}

func (pe *peer) retire() {
	pe.mu.Lock()
	pe.retired = true
	conn := pe.takeIdle()
	pe.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // as above
	}
}

// takeIdle takes the connection of a retired peer without calls. A later call makes a new one, for itself.
func (pe *peer) takeIdle() *grpc.ClientConn {
	if !pe.retired || pe.calls > 0 {
		return nil
	}
	conn := pe.conn
	pe.conn = nil
	return conn
}

// nudge ends the back-off of a connection that could not be made.
func (pe *peer) nudge() {
	pe.mu.Lock()
	conn := pe.conn
	pe.mu.Unlock()
	if conn != nil && conn.GetState() == connectivity.TransientFailure {
		conn.ResetConnectBackoff()
	}
}

func (pe *peer) close() error {
	pe.mu.Lock()
	pe.closed = true
	conn := pe.conn
	pe.conn = nil
	pe.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

func endpointsOf(s *router.Snapshot) map[string]bool {
	m := make(map[string]bool)
	for _, in := range s.Instances() {
		if in.Endpoint != "" { // else it answers nobody
			m[in.Endpoint] = true
		}
	}
	return m
}
