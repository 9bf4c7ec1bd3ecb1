package restore

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Fence ends the open transaction of each id, if it has one, and bars its producer, as a restore that names the ids does, but
// side by side. It repeats InitProducerId until it succeeds or FenceTimeout is over; then the error is a *FenceError.
func (r *Restorer) Fence(ctx context.Context, ids []string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, id := range ids {
		g.Go(func() error { return r.fence(ctx, []string{id}) })
	}
	return g.Wait()
}
