package processor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestAge walks through what may and may not prove the age of an owner.
func TestAge(t *testing.T) {
	const session = 40 * time.Second
	t.Run("a confirmed request proves its send time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAge(time.Now, session, func(context.Context) error { return errors.New("unused") })
			sent := time.Now()
			<-time.After(time.Second)
			a.confirm(sent)
			got, err := a.prove(t.Context(), 2*time.Second, time.Time{})
			if err != nil || !got.Equal(sent) {
				t.Fatalf("prove: %v, %v; want %v", got, err, sent)
			}
		})
	})
	t.Run("a commit on its way holds the proof back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			probes := 0
			a := newAge(time.Now, session, func(context.Context) error { probes++; return nil })
			ending := time.Now()
			a.commitEnding(ending)
			<-time.After(3 * time.Second)
			a.confirm(time.Now())
			if got, err := a.prove(t.Context(), 10*time.Second, time.Time{}); err != nil || !got.Equal(ending) {
				t.Fatalf("prove: %v, %v; want %v", got, err, ending)
			}
			// No heartbeat helps: what is on its way may be visible to others.
			if _, err := a.prove(t.Context(), time.Second, time.Time{}); !errors.Is(err, errAgeUnproven) {
				t.Fatalf("prove: %v, want unproven", err)
			}
			if probes != 1 {
				t.Fatalf("%d probes, want 1", probes)
			}
			a.commitPublished()
			if _, err := a.prove(t.Context(), time.Second, time.Time{}); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("queries cause at most one probe per interval", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			probes := 0
			a := newAge(time.Now, session, func(context.Context) error { probes++; return errors.New("no answer") })
			for range 50 {
				if _, err := a.prove(t.Context(), time.Millisecond, time.Time{}); !errors.Is(err, errAgeUnproven) {
					t.Fatalf("prove: %v, want unproven", err)
				}
				<-time.After(10 * time.Millisecond)
			}
			if probes < 2 || probes > 3 {
				t.Fatalf("%d probes in 500ms, want one per %s", probes, probeInterval)
			}
		})
	})
	t.Run("without a bound half the session counts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAge(time.Now, session, func(context.Context) error { return errors.New("no answer") })
			a.confirm(time.Now())
			<-time.After(session/2 - time.Second)
			if _, err := a.prove(t.Context(), 0, time.Time{}); err != nil {
				t.Fatal(err)
			}
			<-time.After(2 * time.Second)
			if _, err := a.prove(t.Context(), 0, time.Time{}); !errors.Is(err, errAgeUnproven) {
				t.Fatalf("prove: %v, want unproven", err)
			}
		})
	})
	t.Run("a lost member proves nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := newAge(time.Now, session, func(context.Context) error { return errNotMember })
			if _, err := a.prove(t.Context(), time.Second, time.Time{}); !errors.Is(err, errNotMember) {
				t.Fatalf("prove: %v, want not a member", err)
			}
			a.confirm(time.Now())
			if _, err := a.prove(t.Context(), time.Second, time.Time{}); !errors.Is(err, errNotMember) {
				t.Fatalf("prove: %v, want not a member", err)
			}
		})
	})
	t.Run("those who wait share a probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			probes := 0
			a := newAge(time.Now, session, func(ctx context.Context) error {
				probes++
				return sleep(ctx, 50*time.Millisecond)
			})
			errs := make(chan error, 20)
			for range cap(errs) {
				go func() {
					_, err := a.prove(t.Context(), time.Second, time.Time{})
					errs <- err
				}()
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if probes != 1 {
				t.Fatalf("%d probes, want 1", probes)
			}
		})
	})
}

// TestElapsed takes the longer of the two clocks: the monotonic one sleeps with the machine.
func TestElapsed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	if d := elapsed(now.Add(-time.Second), now); d != time.Second {
		t.Errorf("elapsed %s, want 1s", d)
	}
	slept := now.Add(time.Hour).Round(0) // the wall clock alone has moved
	if d := elapsed(now, slept); d != time.Hour {
		t.Errorf("elapsed %s after a suspend, want 1h", d)
	}
	if d := elapsed(now, now.Add(-time.Minute).Round(0)); d != 0 {
		t.Errorf("elapsed %s after the clock was set back, want 0", d)
	}
	if d := elapsed(time.Time{}, now); d < 1<<62 {
		t.Errorf("elapsed %s since never", d)
	}
}

// TestAgeAfter: who asks for a confirmation after a moment is not content with one from before it, however young.
func TestAgeAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		a := newAge(time.Now, 40*time.Second, func(context.Context) error {
			probes++
			<-time.After(time.Millisecond)
			return nil
		})
		a.confirm(time.Now())
		<-time.After(time.Second)
		arrived := time.Now()
		at, err := a.prove(t.Context(), 0, arrived)
		if err != nil || at.Before(arrived) || probes != 1 {
			t.Fatalf("prove: %v, %v after %d probes; want one sent after %v", at, err, probes, arrived)
		}
		<-time.After(10 * time.Millisecond)
		arrived = time.Now()
		if _, err := a.prove(t.Context(), 0, arrived); !errors.Is(err, errAgeUnproven) {
			t.Fatalf("prove within the probe interval: %v, want unproven", err)
		}
		// A commit that was sent before, and is not published, may be seen by others already.
		a.commitEnding(time.Now())
		<-time.After(time.Second)
		arrived = time.Now()
		if _, err := a.prove(t.Context(), 0, arrived); !errors.Is(err, errAgeUnproven) {
			t.Fatalf("prove with a commit on its way: %v, want unproven", err)
		}
		a.commitPublished()
		if at, err := a.prove(t.Context(), 0, arrived); err != nil || at.Before(arrived) {
			t.Fatalf("prove: %v, %v; want one sent after %v", at, err, arrived)
		}
	})
}
