package remotecache

import (
	"context"
	"errors"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// flight is one call under way. Its leader fills it and closes done; the others only read it after that.
type flight struct {
	done chan struct{}
	sent time.Duration    // when the call began, before its request was sent
	from *router.Snapshot // the metadata it began under
	// bound is the leader's: what was too old for it may do for whoever accepts more. Set by join.
	bound time.Duration

	waiters int // guarded by Cache.mu

	answer    Answer
	err       error
	abandoned bool // the leader's time was up, or fetch panicked: there is no answer
}

// stricter reports whether the call may have failed because its leader accepted less than the caller does.
func (f *flight) stricter(want *Want) bool {
	return f.bound < want.MaxStaleness && errors.Is(f.err, store.ErrNotReady)
}

// timeUp reports whether a call failed because its leader had no time left: its context has ended, or is about to, since a
// forwarded call gets a little less.
func timeUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded)
}

func (c *Cache) newFlight() *flight {
	return &flight{done: make(chan struct{}), sent: c.now(), from: c.table.Load()}
}

// join returns an entry that came in meanwhile, the call under way that may still satisfy the caller, or a new call which
// the caller leads. patience is how long ago a call may have been sent to be waited for, negative for none. A call that
// began under other metadata may be on its way to a former owner: nobody new waits for it.
func (c *Cache) join(key Key, want *Want, patience time.Duration) (e *entry, f *flight, leads bool) {
	next := c.newFlight()
	next.bound = want.MaxStaleness
	c.mu.Lock()
	defer c.mu.Unlock()
	if f = c.flights[key]; f != nil && f.from == next.from && next.sent-f.sent <= patience {
		f.waiters++
		return nil, f, false
	}
	// A call is taken off the list after its answer was kept: between the caller's look at the cache and this lock a
	// whole call may have ended.
	if e = c.lookup(key, want); e != nil {
		return e, nil, false
	}
	c.flights[key] = next // a newer call is the better one to wait for
	return nil, next, true
}

// lead makes the call, keeps its answer and hands it to whoever waits. It runs in the caller's goroutine: a call that is
// not shared costs nothing extra, and a caller that leaves takes no goroutine along.
func (c *Cache) lead(ctx context.Context, key Key, f *flight, fetch func(context.Context) (Answer, error)) (Answer, error) {
	f.abandoned = true // until fetch has returned
	defer close(f.done)
	defer c.leave(key, f) // also when fetch panics
	a, err := fetch(ctx)
	if err != nil {
		c.leave(key, f)
		f.err, f.abandoned = err, timeUp(ctx, err)
		return Answer{}, err
	}
	c.keep(key, &a, f.sent, f.from)
	if c.leave(key, f) > 0 {
		f.answer = a.clone()
	}
	f.abandoned = false
	return a, nil
}

// leave takes f off the calls that may be joined and returns how many wait for it.
func (c *Cache) leave(key Key, f *flight) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[key] == f {
		delete(c.flights, key)
	}
	return f.waiters
}

// share is the answer of f for one of those who waited, if it meets what that one insists on.
func (c *Cache) share(key Key, f *flight, want *Want) (Answer, bool) {
	if f.answer.Age < 0 {
		return Answer{}, false
	}
	age := f.answer.Age + c.now() - f.sent
	if age > want.MaxStaleness || !want.meets(key.Partition, &f.answer) {
		return Answer{}, false
	}
	a := f.answer.clone()
	a.Age, a.Role = age, store.RoleCache
	return a, true
}
