package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/statemesh/statemesh/router"
)

// Down reports whether the last attempt to connect to an endpoint failed, and none has succeeded since. The first call after
// a connection broke finds out; until then it is not down.
func (p *Pool) Down(endpoint string) bool {
	p.mu.Lock()
	pe := p.peers[endpoint]
	p.mu.Unlock()
	return pe != nil && pe.down()
}

func (pe *peer) down() bool {
	pe.mu.Lock()
	conn := pe.conn
	pe.mu.Unlock()
	return conn != nil && conn.GetState() == connectivity.TransientFailure
}

// reachable is the first of the candidates that is neither down nor slow, else the first that is not down, else the first of all:
// no call pays for finding out again what the one before it did.
func (p *Pool) reachable(candidates []router.Replica) router.Replica {
	if len(candidates) == 1 { // the usual case
		return candidates[0]
	}
	best := -1
	for i, c := range candidates {
		switch {
		case p.Down(c.Endpoint):
		case !p.doubted(c.Endpoint):
			return c
		case best < 0:
			best = i
		}
	}
	return candidates[max(best, 0)]
}

// doubt has others asked before an endpoint for a while: it did not answer in time.
func (p *Pool) doubt(endpoint string, d time.Duration) {
	p.mu.Lock()
	pe := p.peers[endpoint]
	p.mu.Unlock()
	if pe != nil {
		pe.doubtedUntil.Store(time.Now().Add(d).UnixNano())
	}
}

func (p *Pool) doubted(endpoint string) bool {
	p.mu.Lock()
	pe := p.peers[endpoint]
	p.mu.Unlock()
	return pe != nil && pe.doubtedUntil.Load() > time.Now().UnixNano()
}

type dialFunc = func(ctx context.Context, addr string) (net.Conn, error)

// watching tells broken of each attempt that fails and each connection that the other end, or the network, ends.
func watching(dial dialFunc, broken func(endpoint string, err error)) dialFunc {
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dial(ctx, addr)
		if err != nil {
			if ctx.Err() == nil || errors.Is(context.Cause(ctx), context.DeadlineExceeded) { // else the attempt was called off
				broken(addr, err)
			}
			return nil, err
		}
		return &watchedConn{Conn: conn, broken: func(err error) { broken(addr, err) }}, nil
	}
}

// watchedConn tells when it is ended by anybody but its owner. The transport always has a read under way.
type watchedConn struct {
	net.Conn

	broken func(error)
	closed atomic.Bool
	once   sync.Once
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !c.closed.Load() {
		if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
			c.once.Do(func() { c.broken(err) })
		}
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
