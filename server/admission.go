package server

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
)

// limiter counts requests in flight and refuses what is above its limit. Nothing queues: a request that waits holds
// memory like one that runs, and one that waited while it held a slot elsewhere could wait in a circle.
type limiter struct {
	name     string
	max      int64
	n        atomic.Int64
	inFlight prometheus.Gauge
	rejected prometheus.Counter
}

// retryOverloaded is what a refused caller is told to wait: a few times the length of a usual request.
const retryOverloaded = 50 * time.Millisecond

func newLimiter(name string, limit int, m *metrics) *limiter {
	return &limiter{
		name: name, max: int64(limit), inFlight: m.inFlight.WithLabelValues(name), rejected: m.rejected.WithLabelValues(name),
	}
}

// acquire takes a slot, or reports *[store.OverloadedError]. release gives it back.
func (l *limiter) acquire() error {
	if l.n.Add(1) > l.max {
		l.n.Add(-1)
		l.rejected.Inc()
		return &store.OverloadedError{Limit: l.name, RetryAfter: retryOverloaded}
	}
	l.inFlight.Inc()
	return nil
}

// acquireOf is acquire for a class of callers that may take only so many of the slots. Who is refused is not counted meanwhile, so nobody
// is refused on its behalf.
func (l *limiter) acquireOf(most int64) error {
	for {
		n := l.n.Load()
		if n >= min(most, l.max) {
			l.rejected.Inc()
			return &store.OverloadedError{Limit: l.name, RetryAfter: retryOverloaded}
		}
		if l.n.CompareAndSwap(n, n+1) {
			l.inFlight.Inc()
			return nil
		}
	}
}

func (l *limiter) release() {
	l.n.Add(-1)
	l.inFlight.Dec()
}

// limits has a limiter for each class of requests. Peers have theirs apart from clients: what an instance forwards must
// not wait for what clients ask of the receiver, or two instances that ask each other would wait for each other.
type limits struct {
	requests, scans, peerRequests, peerScans, watches, copies *limiter
}

func newLimits(c *Config, m *metrics) limits {
	return limits{
		requests:     newLimiter("server.max.requests", c.MaxRequests, m),
		scans:        newLimiter("server.max.scans", c.MaxScans, m),
		peerRequests: newLimiter("server.max.peer.requests", c.MaxPeerRequests, m),
		peerScans:    newLimiter("server.max.peer.scans", c.MaxPeerScans, m),
		watches:      newLimiter("server.max.watches", c.MaxWatches, m),
		copies:       newLimiter("server.max.copies", c.MaxCopies, m),
	}
}
