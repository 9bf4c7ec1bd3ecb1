package remotecache

import (
	"context"
	"time"

	"github.com/statemesh/statemesh/router"
)

// Run gives back the memory of what no longer serves, until ctx ends: entries of former owners when new metadata is
// published, expired ones within two TTLs of their request. It only tidies up; Get is right without it. It returns nil.
func (c *Cache) Run(ctx context.Context) error {
	if c == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(c.ttl)
	defer tick.Stop()
	snap, changed := c.table.Watch()
	c.dropMoved(snap)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			snap, changed = c.table.Watch()
			c.dropMoved(snap)
		case <-tick.C:
			c.dropExpired()
		}
	}
}

// dropMoved removes the entries whose owner is not the owner any more.
func (c *Cache) dropMoved(s *router.Snapshot) {
	if s == nil {
		return // no metadata yet: nothing was kept
	}
	// Whoever checked the metadata before it changed has inserted once this lock was ours; all others see s.
	c.add.Lock()
	c.add.Unlock() //nolint:staticcheck // SA2001: a barrier, see above
	for _, key := range c.lru.Keys() {
		if e, ok := c.lru.Peek(key); ok && !c.owns(s, key, e.owner) {
			c.lru.Remove(key)
			c.m.moved.Inc()
		}
	}
}

// dropExpired removes expired entries from the old end of the LRU, up to the first that is not. Whatever expired before
// that one was used after it, so the next pass, at most one TTL later, finds all of them.
func (c *Cache) dropExpired() {
	for {
		key, e, ok := c.lru.GetOldest()
		if !ok || c.now() < e.expires {
			return
		}
		c.lru.Remove(key)
		c.m.expired.Inc()
	}
}
