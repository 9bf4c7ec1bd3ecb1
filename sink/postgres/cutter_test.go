package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

type connection = net.Conn

var errCut = errors.New("cut")

// cutter makes connections that break at a statement: the messages Execute and Query of all of them are counted.
type cutter struct {
	mu sync.Mutex
	n  int
	// at says what becomes of the n-th, counted from 1; nil: nothing.
	at func(n int) cut
	// broke is called when it did.
	broke func()
}

// cut is where a connection breaks.
type cut uint8

const (
	uncut cut = iota
	// before the statement has reached the server.
	before
	// after it has, and before anything of the answer has come back.
	after
)

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

func (c *cutter) next() cut {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.at == nil {
		return uncut
	}
	return c.at(c.n)
}

func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

type cutConn struct {
	net.Conn
	c       *cutter
	started bool // the first message has no type
	broken  bool
}

// Write passes whole messages on, up to where the connection breaks.
func (c *cutConn) Write(b []byte) (int, error) {
	if c.broken {
		return 0, errCut
	}
	if !c.started {
		c.started = true
		return c.Conn.Write(b)
	}
	for at := 0; at+5 <= len(b); {
		end := at + 1 + int(binary.BigEndian.Uint32(b[at+1:]))
		if kind := b[at]; kind == 'E' || kind == 'Q' {
			switch c.c.next() {
			case before:
				_, _ = c.Conn.Write(b[:at])
				return 0, c.snap()
			case after:
				_, _ = c.Conn.Write(b[:min(end, len(b))])
				if kind == 'Q' { // answered at once, and so the statement is done
					_ = c.Conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					_, _ = c.Conn.Read(make([]byte, 4096))
				}
				return 0, c.snap()
			case uncut:
			}
		}
		at = end
	}
	return c.Conn.Write(b)
}

func (c *cutConn) snap() error {
	c.broken = true
	_ = c.Conn.Close()
	if c.c.broke != nil {
		c.c.broke()
	}
	return errCut
}
