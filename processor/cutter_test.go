package processor

import (
	"context"
	"errors"
	"net"
	"sync"
)

// cutter is an instance's network: it can be cut.
type cutter struct {
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	meddle func(net.Conn) net.Conn
	fault  func(kind string)
	mu     sync.Mutex
	dead   bool
	conns  []net.Conn
}

func (c *cutter) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return nil, &net.OpError{Op: "dial", Err: errors.New("the network is cut")}
	}
	dial := c.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, addr)
	if err == nil {
		if c.meddle != nil {
			conn = c.meddle(conn)
		}
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

// cut cuts it, as a fault.
func (c *cutter) cut() {
	c.fault("network cut")
	c.off()
}

func (c *cutter) off() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

func (c *cutter) mend() {
	c.fault("network back")
	c.on()
}

func (c *cutter) on() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = false
}
