package client

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The retry budget: retries are paced, not cut off, because a caller with time left would rather wait for a fail-over
// than see it. A tenth of the calls, but at least retryRate a second, so that a client with few calls is not starved.
const (
	retryRate  = 10.0 // tokens a second
	retryShare = 0.1  // tokens a call
	retryBurst = 20.0
)

// budget is a token bucket that may run into debt: who takes a token that is not there yet waits until it would be.
type budget struct {
	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func newBudget(now time.Time) *budget { return &budget{tokens: retryBurst, at: now} }

// called credits a call.
func (b *budget) called() {
	b.mu.Lock()
	b.tokens = min(b.tokens+retryShare, retryBurst)
	b.mu.Unlock()
}

// take takes the token of one retry and returns how long to wait for it, or false, having taken nothing, when that is
// longer than patience.
func (b *budget) take(now time.Time, patience time.Duration) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+retryRate*now.Sub(b.at).Seconds(), retryBurst)
	b.at = now
	wait := time.Duration(0)
	if b.tokens < 1 {
		wait = time.Duration((1 - b.tokens) / retryRate * float64(time.Second))
	}
	if wait > patience {
		return 0, false
	}
	b.tokens--
	return wait, true
}

// Back-off between attempts: long enough for a rebalance with everybody alive to pass in a few, short enough to notice.
const (
	backoffBase = 20 * time.Millisecond
	backoffMax  = time.Second
)

// backoffFor is the wait before the n-th retry (from 0): exponential, between half of it and all of it at random.
func backoffFor(n int) time.Duration {
	d := backoffMax
	if n < 6 {
		d = min(backoffBase<<n, backoffMax)
	}
	return d/2 + rand.N(d/2+1)
}

// atLeast spreads a wait that the other end asked for: never shorter, up to a quarter longer.
func atLeast(d time.Duration) time.Duration { return d + rand.N(d/4+1) }
