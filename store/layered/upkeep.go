package layered

import (
	"context"
	"errors"
	"time"

	"github.com/statemesh/statemesh/store"
)

const (
	// reclaimPause is how long it takes until what has readers is looked at again.
	reclaimPause = time.Second
	// reclaimRetry is that after an error: what cannot be removed now costs space and nothing else.
	reclaimRetry = 10 * time.Second
)

// keepUp gives back what was dropped, has expired or was deleted, after moves and until nothing is left to wait for. It is
// a goroutine of its own: it may take long, and moves do not wait for it but for short turns.
func (s *Stores) keepUp(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.moved:
		case <-timer.C:
		}
		if wait := s.reclaim(ctx); wait > 0 {
			timer.Reset(wait)
		}
	}
}

// reclaim gives back what it can, and says how long to wait before it is called again, 0 when nothing waits.
func (s *Stores) reclaim(ctx context.Context) (wait time.Duration) {
	for _, e := range s.engines() {
		pending, err := e.Reclaim(ctx)
		if pending {
			wait = max(wait, reclaimPause)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
			s.cfg.Logger.ErrorContext(ctx, "give space back", "error", err)
			wait = reclaimRetry
		}
	}
	return wait
}
