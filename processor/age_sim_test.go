package processor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSimImpatientReader: a reader that has less time than a heartbeat takes does not leave those without an answer who wait
// for the same heartbeat, or come after it.
func TestSimImpatientReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAge(time.Now, 45*time.Second, func(ctx context.Context) error {
			select {
			case <-time.After(20 * time.Millisecond): // a round trip
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		for range 50 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
				defer cancel()
				_, _ = a.prove(ctx, 100*time.Millisecond, time.Time{})
			}()
			time.Sleep(time.Millisecond)
			if _, err := a.prove(t.Context(), 100*time.Millisecond, time.Time{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(210 * time.Millisecond)
		}
	})
}
