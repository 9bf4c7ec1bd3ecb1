package restore

import (
	"context"
	"sync"
)

// budget hands out bytes, first come, first served. An answer may turn out larger than what was acquired for it (a
// broker always sends one whole batch): charge takes the difference without waiting, and the budget is overdrawn by at
// most one batch per fetch.
type budget struct {
	all     int64
	mu      sync.Mutex
	free    int64
	waiting []waiter
}

type waiter struct {
	bytes int64
	ready chan struct{}
}

func newBudget(bytes int64) *budget { return &budget{all: bytes, free: bytes} }

func (b *budget) acquire(ctx context.Context, bytes int64) error {
	b.mu.Lock()
	if len(b.waiting) == 0 && b.free >= bytes {
		b.free -= bytes
		b.mu.Unlock()
		return nil
	}
	w := waiter{bytes: bytes, ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		b.forget(w)
		return context.Cause(ctx)
	}
}

// used is how much is handed out.
func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all - b.free
}

// charge takes bytes that are in use already.
func (b *budget) charge(bytes int64) { b.release(-bytes) }

func (b *budget) release(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += bytes
	b.grant()
}

func (b *budget) forget(w waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.waiting {
		if b.waiting[i].ready == w.ready {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.grant()
			return
		}
	}
	b.free += w.bytes // it was granted meanwhile
	b.grant()
}

func (b *budget) grant() {
	for len(b.waiting) > 0 && b.free >= b.waiting[0].bytes {
		b.free -= b.waiting[0].bytes
		close(b.waiting[0].ready)
		b.waiting = b.waiting[1:]
	}
}

// Bytes is what was fetched and is not applied yet.
func (r *Restorer) Bytes() int64 { return r.budget.used() }
