package layered

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
)

// openReads knows every iterator and snapshot that is open, so that one that is left open is found, reported and closed.
// What is closed before the next look pays two constant-time steps under the lock of one shard, and never asks for the
// time.
type openReads struct {
	shards [readShards]readShard
	// expired counts what was closed for its users.
	expired atomic.Int64
	// began is where ages are counted from.
	began time.Time
}

const readShards = 8

type readShard struct {
	mu        sync.Mutex
	head      tracked // of a ring
	snapshots int64   // in the ring
	_         [64]byte
}

// tracked is an open read. It is part of what it tracks, and small: a query allocates one.
type tracked struct {
	read  openRead
	shard *readShard
	// The rest is guarded by shard.mu.
	prev, next *tracked
	user       string        // who reads, for reports
	place      *callers      // that opened it, where that is known
	since      time.Duration // from openReads.began to the first look that found it; 0 before
}

// openRead is an iterator or a snapshot.
type openRead interface {
	// what it is, and which store it reads.
	what() (kind string, name store.Name)
	// over returns why it may end although its user has not closed it, nil if it may not. limit is the cause when it is too
	// old.
	over(limit error) error
	// expire ends it with cause and reports whether it was open. It does not wait for a read that is in the middle.
	expire(cause error) bool
}

func newOpenReads() *openReads {
	r := &openReads{began: time.Now()}
	for i := range r.shards {
		head := &r.shards[i].head
		head.prev, head.next = head, head
	}
	return r
}

// add begins to track t.
func (r *openReads) add(t *tracked, read openRead, user string) {
	draw := rand.Uint32()
	s := &r.shards[draw%readShards]
	t.read, t.user, t.place, t.shard = read, user, opener(draw/readShards), s
	s.mu.Lock()
	defer s.mu.Unlock()
	head := &s.head
	t.prev, t.next = head.prev, head
	t.prev.next, head.prev = t, t
	s.count(t, 1)
}

// snapshots counts those that are tracked.
func (r *openReads) snapshots() (n int64) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		n += s.snapshots
		s.mu.Unlock()
	}
	return n
}

// name says who reads.
func (t *tracked) name(user string) {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	t.user = user
}

// remove ends the tracking of t, if it ever began and goes on, and reports whether it did.
func (t *tracked) remove() bool {
	if t.shard == nil {
		return false
	}
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	if t.next == nil {
		return false
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.prev, t.next = nil, nil
	t.shard.count(t, -1)
	return true
}

func (s *readShard) count(t *tracked, n int64) {
	if _, ok := t.read.(*Snapshot); ok {
		s.snapshots += n
	}
}

// found is a tracked read as a look found it.
type found struct {
	read        openRead
	kind        string
	name        store.Name
	user, place string
	age         time.Duration
}

// look visits what is open. The age of a read counts from the first look that found it.
func (r *openReads) look(now time.Time, visit func(t *tracked, age time.Duration)) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for t := s.head.next; t != &s.head; t = t.next {
			if t.since == 0 {
				t.since = max(now.Sub(r.began), 1)
			}
			visit(t, now.Sub(r.began)-t.since)
		}
		s.mu.Unlock()
	}
}

// oldest is the age of the oldest read of a kind, at least.
func (r *openReads) oldest(kind string) time.Duration {
	var oldest time.Duration
	r.look(time.Now(), func(t *tracked, age time.Duration) {
		if k, _ := t.read.what(); k == kind {
			oldest = max(oldest, age)
		}
	})
	return oldest
}

// expire ends the reads that are over: those older than limit, and iterators whose context has ended but that were open
// at the look before too.
func (r *openReads) expire(now time.Time, limit time.Duration) (ended []found) {
	var old []found
	r.look(now, func(t *tracked, age time.Duration) {
		if age == 0 {
			return
		}
		var tooOld error
		if age >= limit {
			tooOld = store.ErrOpenTooLong
		}
		if t.read.over(tooOld) != nil {
			kind, name := t.read.what()
			old = append(old, found{read: t.read, kind: kind, name: name, user: t.user, place: describe(t.place), age: age})
		}
	})
	for _, f := range old {
		var tooOld error
		if f.age >= limit {
			tooOld = store.ErrOpenTooLong
		}
		if cause := f.read.over(tooOld); cause != nil && f.read.expire(cause) {
			ended = append(ended, f)
		}
	}
	r.expired.Add(int64(len(ended)))
	return ended
}

// watchReads ends reads that were left open, until ctx ends.
func (s *Stores) watchReads(ctx context.Context) {
	limit := s.cfg.IteratorMaxAge
	if limit < 0 {
		return
	}
	tick := time.NewTicker(max(limit/10, 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, f := range s.reads.expire(time.Now(), limit) {
			s.cfg.Logger.ErrorContext(ctx, "closed a read that was left open",
				"what", f.kind, "store", f.name, "user", f.user, "place", f.place, "age", f.age)
		}
	}
}
