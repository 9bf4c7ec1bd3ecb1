//go:build chaos

package chaos

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is the way to somebody: from an instance to the broker, or from peers and clients to an instance. It is a proxy that
// can be cut in every way in which links are cut. Those who dial are in front of it, whom it leads to is behind it.
type link struct {
	addr string
	to   string // where the one behind listens
	lis  net.Listener
	all  sync.WaitGroup

	mu    sync.Mutex
	cut   cut
	moved chan struct{} // closed when cut changes
	conns map[net.Conn]struct{}
	ended bool
}

// cut is what is wrong with a link.
type cut uint8

const (
	whole   cut = iota
	silent      // nothing gets through, in no direction, and nobody is told: the bytes come when it is mended
	deaf        // who dials is heard, and does not hear
	mute        // who dials hears, and is not heard
	refused     // connections are reset and refused
	hole        // silent, and what is sent meanwhile is lost: when it is mended the connections are reset
	slow        // everything takes a while longer
	cuts        // how many there are
)

// delay is how much longer a piece takes on a slow link.
const delay = 150 * time.Millisecond

func (c cut) String() string {
	return [...]string{"whole", "silent", "deaf", "mute", "refused", "black-holed", "slow"}[c]
}

func newLink(t *testing.T) *link {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &link{addr: lis.Addr().String(), lis: lis, moved: make(chan struct{}), conns: make(map[net.Conn]struct{})}
}

// run leads connections on until the test ends.
func (l *link) run(t *testing.T, to string) {
	t.Helper()
	l.to = to
	l.all.Go(func() {
		for {
			conn, err := l.lis.Accept()
			if err != nil {
				return
			}
			l.all.Go(func() { l.lead(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.lis.Close()
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.become(refused)
		l.all.Wait()
	})
}

// become cuts the link, or mends it.
func (l *link) become(c cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.cut
	l.cut = c
	close(l.moved)
	l.moved = make(chan struct{})
	if c == refused || before == hole {
		for conn := range l.conns {
			reset(conn)
		}
	}
}

// reset closes a connection without an orderly end: clients take an end before the first answer for a mistake in their settings.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// keep notes a connection, false when the link refuses it.
func (l *link) keep(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.cut == refused {
		reset(conn)
		return false
	}
	l.conns[conn] = struct{}{}
	return true
}

func (l *link) lead(in net.Conn) {
	if !l.keep(in) {
		return
	}
	out, err := net.DialTimeout("tcp", l.to, 5*time.Second)
	if err != nil {
		reset(in) // nobody is there: the nearest to a refusal that one who has accepted can do
		return
	}
	if !l.keep(out) {
		_ = in.Close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(out, in, mute) })
	both.Go(func() { l.copy(in, out, deaf) })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, in)
	delete(l.conns, out)
}

// copy passes bytes on in one direction, unless the link is silent or cut in that direction.
func (l *link) copy(to, from net.Conn, way cut) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !l.pass(way) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return
			}
			l.pass(way) // the end, too, comes only when the link lets it
			return
		}
	}
}

// pass waits until bytes may go this way; false when the connection is over.
func (l *link) pass(way cut) bool {
	for {
		l.mu.Lock()
		c, moved := l.cut, l.moved
		l.mu.Unlock()
		switch c {
		case refused:
			return false
		case slow:
			select {
			case <-time.After(delay):
				return true
			case <-moved:
			}
		case silent, hole, way:
			<-moved
		default:
			return true
		}
	}
}
