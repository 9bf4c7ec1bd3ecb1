package remotecache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Config of a cache. Zero values switch off, they do not mean a default: see [Default].
type Config struct {
	// TTL is how long an answer is kept, from the moment its request was sent. Not positive: no cache.
	TTL time.Duration
	// NegativeTTL is the same for "not found", which the next write of the key makes wrong. Not positive: absence is not
	// kept. Never longer than TTL.
	NegativeTTL time.Duration
	// MaxBytes bounds what entries cost in memory, keys and overhead included. Not positive: no cache.
	MaxBytes int64
	// Clock tells the time since some fixed moment. Default: the monotonic clock. A clock that also counts the time a
	// machine is suspended is better where there is one.
	Clock func() time.Duration
	// Registerer takes the metrics; nil: none.
	Registerer prometheus.Registerer
}

// Default is the configuration of an instance that was told nothing: 5s, because that is also the staleness a request
// without a bound accepts; 1s for absence; 32 MiB, about 70,000 small answers.
func Default() Config {
	return Config{TTL: 5 * time.Second, NegativeTTL: time.Second, MaxBytes: 32 << 20}
}

// Key says what was asked and who asked it: two requests share an answer only if all of it is equal.
type Key struct {
	Store     store.Name
	Partition store.Partition
	// Query is the canonical form of the query: its kind and arguments. Any bytes.
	Query string
	// Isolation and Principal keep apart what may be answered differently. Empty where there is no difference.
	Isolation, Principal string
}

// Want is what the caller insists on.
type Want struct {
	// MaxStaleness is the caller's bound, after defaults. Not positive: only an answer fetched for this very call.
	MaxStaleness time.Duration
	// Fresh also asks for an answer fetched for this very call: the caller insists on the owner. The answer replaces what
	// is cached, so that nobody who reads both sees time go backwards.
	Fresh bool
	// AtLeast is what the answer must contain: the part of a token that concerns the partition.
	AtLeast store.Token
	// Patient means that fetch may wait until a replica has AtLeast. Nobody else is made to wait for such a call.
	Patient bool
}

// meets reports whether an answer contains what is asked for. One of a changelog that was recreated does not say.
func (w *Want) meets(p store.Partition, a *Answer) bool {
	if want, ok := w.AtLeast.Cuts[p]; ok {
		have, ok := a.Token.Cuts[p]
		if !ok || have.TopicID != want.TopicID || have.Next < want.Next {
			return false
		}
	}
	return a.Position.Meets(w.AtLeast.Inputs, p)
}

// Answer is what an instance said about a key.
type Answer struct {
	// Value is meaningful when Found.
	Value store.Value
	Found bool
	// Start and End of the window, session or version, as store.Entry has them; 0 in key-value stores.
	Start, End int64
	// Sequence and Position of the state that answered.
	Sequence store.Sequence
	Position store.Position
	// Token and Isolation of the state that answered.
	Token     store.Token
	Isolation store.Isolation
	// Age is the proven upper limit of the state's age when the answer was sent; negative: not proven, so not kept.
	Age time.Duration
	// Epoch of the metadata by which the answer was given.
	Epoch router.Epoch
	// Role of the copy; RoleCache when the answer was not fetched for this call.
	Role store.Role
	// Instance that answered.
	Instance string
}

func (a *Answer) clone() Answer {
	c := *a
	if a.Value.Data != nil {
		c.Value.Data = append(make([]byte, 0, len(a.Value.Data)), a.Value.Data...)
	}
	c.Position = a.Position.Clone()
	c.Token = a.Token.Clone()
	return c
}

// Cache of remote answers. Safe for concurrent use.
type Cache struct {
	ttl, negTTL time.Duration
	maxBytes    int64
	now         func() time.Duration
	table       *router.Table
	m           *metrics

	// lru has its own lock. It is made without a TTL, because the goroutine that expirable starts for one can never be
	// stopped (v2.0.7); entries carry their own times, and only Get decides whether one is fresh.
	lru   *expirable.LRU[Key, *entry]
	bytes atomic.Int64
	count atomic.Int64

	// add makes a check of the metadata and the insert that rests on it one step. Nothing blocks while it is held.
	add sync.Mutex

	// mu guards flights. Nothing blocks while it is held.
	mu      sync.Mutex
	flights map[Key]*flight
}

// entry is immutable once it is in the cache.
type entry struct {
	answer Answer
	owner  router.Replica
	// sent is when the request was sent; the state is as old as answer.Age + (now - sent).
	sent, expires time.Duration
	size          int64
}

// asOf is a lower limit of the moment the state was current.
func (e *entry) asOf() time.Duration { return e.sent - e.answer.Age }

// New returns a cache for the owners in table, or nil when cfg says that there is none. It starts nothing.
func New(cfg Config, table *router.Table) *Cache {
	if cfg.TTL <= 0 || cfg.MaxBytes <= 0 {
		return nil
	}
	c := &Cache{
		ttl: cfg.TTL, negTTL: min(cfg.NegativeTTL, cfg.TTL), maxBytes: cfg.MaxBytes,
		now: cfg.Clock, table: table, flights: make(map[Key]*flight),
	}
	if c.now == nil {
		start := time.Now()
		c.now = func() time.Duration { return time.Since(start) }
	}
	c.m = newMetrics(cfg.Registerer, c)
	// The callback runs under the lock of the LRU: it counts and never touches the cache.
	c.lru = expirable.NewLRU(0, func(_ Key, e *entry) {
		c.bytes.Add(-e.size)
		c.count.Add(-1)
	}, 0)
	return c
}

// Get answers from the cache, from a call that is under way for the same key, or with fetch, which is called in this
// goroutine with ctx. The answer of fetch is returned as it is: whether it meets the bound is for the caller to check,
// as with any other answer of a peer. Errors are not kept, but those who wait for the same call share them, unless it
// was the time of the caller in front that was up, or something only that one insisted on. A nil Cache just fetches.
func (c *Cache) Get(ctx context.Context, key Key, want Want, fetch func(context.Context) (Answer, error)) (Answer, error) {
	if c == nil {
		return fetch(ctx)
	}
	if want.Fresh || want.MaxStaleness <= 0 {
		c.m.bypassed.Inc()
		return c.lead(ctx, key, c.newFlight(), fetch)
	}
	e := c.lookup(key, &want)
	if e == nil && want.Patient {
		c.m.misses.Inc()
		return c.lead(ctx, key, c.newFlight(), fetch)
	}
	patience, passed := want.MaxStaleness, false
	for {
		var f *flight
		var leads bool
		if e == nil {
			e, f, leads = c.join(key, &want, patience)
		}
		switch {
		case e != nil:
			c.m.hits.Inc()
			return c.serve(e), nil
		case leads:
			c.m.misses.Inc()
			return c.lead(ctx, key, f, fetch)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		}
		switch {
		case f.abandoned: // whoever was in front gave up; that says nothing about the answer
			continue
		case errors.Is(f.err, store.ErrBehind): // behind what whoever was in front asked for
			patience = -1
			continue
		case f.stricter(&want): // maybe too old for whoever was in front; together once more, then alone
			if passed {
				patience = -1
			}
			passed = true
			continue
		case f.err != nil:
			c.m.collapsed.Inc()
			return Answer{}, f.err
		}
		if a, ok := c.share(key, f, &want); ok {
			c.m.collapsed.Inc()
			return a, nil
		}
		patience = -1 // an answer came, too old for this caller: ask for one of its own
	}
}

// Bytes is the memory of what is cached.
func (c *Cache) Bytes() int64 { return c.bytes.Load() }

// lookup returns an entry that is fresh and meets what the caller insists on, or nil.
func (c *Cache) lookup(key Key, want *Want) *entry {
	e, ok := c.lru.Get(key)
	if !ok {
		return nil
	}
	now := c.now()
	if now >= e.expires {
		c.lru.Remove(key) // if a fresh one took its place in between, that is one miss more
		c.m.expired.Inc()
		return nil
	}
	if now-e.asOf() > want.MaxStaleness || !want.meets(key.Partition, &e.answer) {
		return nil // others may accept it
	}
	if s := c.table.Load(); s == nil || !c.owns(s, key, e.owner) {
		c.lru.Remove(key)
		c.m.moved.Inc()
		return nil
	}
	return e
}

// serve copies an entry for a caller, with its age of now. The nanoseconds since lookup are in the label; the bound is
// checked once more where the answer is sent.
func (c *Cache) serve(e *entry) Answer {
	a := e.answer.clone()
	a.Age, a.Role = c.now()-e.asOf(), store.RoleCache
	return a
}

// owns reports whether owner, in its incarnation, still owns the partition of key.
func (c *Cache) owns(s *router.Snapshot, key Key, owner router.Replica) bool {
	have, ok := s.Active(key.Store, key.Partition)
	return ok && have.Instance == owner.Instance && have.Incarnation == owner.Incarnation
}

// keep inserts an answer whose request was sent under the metadata from, unless something newer is known.
func (c *Cache) keep(key Key, a *Answer, sent time.Duration, from *router.Snapshot) {
	ttl := c.ttl
	if !a.Found {
		ttl = c.negTTL
	}
	e := &entry{sent: sent, expires: sent + ttl}
	e.size = entrySize(key, a)
	if from == nil || a.Age < 0 || c.now() >= e.expires || e.size > c.maxBytes/8 {
		return // the last: one answer must not push out everybody else's
	}
	var ok bool
	if e.owner, ok = from.Active(key.Store, key.Partition); !ok {
		return
	}
	e.answer = a.clone()

	c.add.Lock()
	defer c.add.Unlock()
	if s := c.table.Load(); s.Epoch() != from.Epoch() || !c.owns(s, key, e.owner) {
		return
	}
	if old, ok := c.lru.Peek(key); ok {
		if old.asOf() > e.asOf() && c.owns(from, key, old.owner) {
			return
		}
		c.lru.Remove(key) // Add would replace it without the callback, and its bytes would count for ever
	}
	c.bytes.Add(e.size)
	c.count.Add(1)
	c.lru.Add(key, e)
	for c.bytes.Load() > c.maxBytes {
		if _, _, ok := c.lru.RemoveOldest(); !ok {
			return
		}
		c.m.evictions.Inc()
	}
}

// entryOverhead is what an entry costs beside its bytes: the entry itself, two map slots, a list element.
const entryOverhead = 448

func entrySize(key Key, a *Answer) int64 {
	n := entryOverhead + len(key.Store) + len(key.Query) + len(key.Isolation) + len(key.Principal) + len(a.Value.Data) + len(a.Instance)
	for topic, parts := range a.Position {
		n += 64 + len(topic) + 32*len(parts)
	}
	n += 64 * len(a.Token.Cuts)
	return int64(n)
}
