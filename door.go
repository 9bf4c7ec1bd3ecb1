package statemesh

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// door is the listener of the query API. It stays open from before the group is joined until after it is left: a refused
// connection then means that the process is gone, which lets others take over without waiting for a session timeout.
// The server, which stops before the group is left, closes its own view of it only.
type door struct {
	net.Listener

	shut atomic.Bool // the server has closed its view
}

// deadliner is what every TCP and Unix listener has.
type deadliner interface{ SetDeadline(time.Time) error }

// Accept hands out connections until the server closes its view.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	switch {
	case !d.shut.Load():
		return conn, err
	case err == nil:
		return nil, errors.Join(net.ErrClosed, conn.Close())
	default:
		return nil, net.ErrClosed
	}
}

// Close ends the server's view: an Accept under way returns, the address stays open.
func (d *door) Close() error {
	if d.shut.Swap(true) {
		return nil
	}
	if l, ok := d.Listener.(deadliner); ok {
		return l.SetDeadline(time.Unix(1, 0))
	}
	return d.Listener.Close()
}

// turnAway closes every connection that still comes, so that callers learn at once to go elsewhere. It returns when the
// listener itself is closed.
func (d *door) turnAway() {
	for {
		conn, err := d.Listener.Accept()
		switch {
		case err == nil:
			_ = conn.Close()
		case errors.Is(err, os.ErrDeadlineExceeded):
			if l, ok := d.Listener.(deadliner); !ok || l.SetDeadline(time.Time{}) != nil {
				return
			}
		default:
			return
		}
	}
}
