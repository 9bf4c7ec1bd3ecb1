package statemesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newStateBox()
		wait := func(ctx context.Context, want State) <-chan error {
			done := make(chan error, 1)
			go func() { done <- b.wait(ctx, want, func(s State) bool { return s == want }) }()
			return done
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		serving, closing, late := wait(t.Context(), Serving), wait(t.Context(), Closing), wait(short, Stopped)
		time.Sleep(time.Minute)
		select {
		case err := <-serving:
			t.Fatalf("nothing has happened: %v", err)
		default:
		}
		if err := <-late; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the caller's time: %v", err)
		}
		for _, s := range []State{Starting, Rebalancing, Serving, Rebalancing, Serving} {
			if !b.become(s) {
				t.Fatalf("%s cannot follow %s", s, b.get())
			}
			synctest.Wait()
		}
		if err := <-serving; err != nil {
			t.Error(err)
		}
		if b.become(Failed); <-closing == nil {
			t.Error("CLOSING was reported, which can no longer come")
		}
		if b.become(Serving) || b.get() != Failed {
			t.Errorf("%s followed FAILED", b.get())
		}
	})
}
