package server

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// byteLimit bounds the memory of all requests in flight: what came in, what is gathered, what goes out. It is taken as
// things grow, so one value that is being read may be above it. Like a limiter it refuses and never makes wait.
type byteLimit struct {
	max      int64
	n        atomic.Int64
	rejected prometheus.Counter
}

const bytesLimit = "server.max.bytes"

func newByteLimit(limit int64, m *metrics) *byteLimit {
	return &byteLimit{max: limit, rejected: m.rejected.WithLabelValues(bytesLimit)}
}

// take takes bytes as long as not more than most are taken, or reports *[store.OverloadedError].
func (l *byteLimit) take(bytes, most int64) error {
	if l.n.Add(bytes) > most {
		l.n.Add(-bytes)
		l.rejected.Inc()
		return &store.OverloadedError{Limit: bytesLimit, RetryAfter: retryOverloaded}
	}
	return nil
}

func (l *byteLimit) give(bytes int64) { l.n.Add(-bytes) }

// What a request costs before anything of it is known: goroutine, stream, contexts.
const requestCost = 8 << 10

// hold takes bytes for as long as the call lasts. The last quarter is for peers: the instance that sent them has taken theirs in.
func (c *call) hold(bytes int64) error {
	if c.bytes == nil || bytes <= 0 {
		return nil
	}
	most := c.bytes.max
	if c.origin != router.OriginPeer {
		most -= most / 4
	}
	if err := c.bytes.take(bytes, most); err != nil {
		return err
	}
	c.held.Add(bytes)
	return nil
}

// holdAnswer is hold for a part of the answer.
func (c *call) holdAnswer(bytes int64) error {
	if err := c.hold(bytes); err != nil {
		return err
	}
	c.answer.Add(bytes)
	return nil
}

// letGo gives back all that the call holds.
func (c *call) letGo() {
	if c.bytes != nil {
		c.bytes.give(c.held.Swap(0))
	}
}

// Bytes is the memory of the requests in flight.
func (s *Server) Bytes() int64 { return s.bytes.n.Load() }
