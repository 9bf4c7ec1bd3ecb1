package remotecache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

func cut(next store.Offset) store.Token {
	return store.Token{Cuts: map[store.Partition]store.Cut{0: {TopicID: [16]byte{1}, Next: next}}}
}

// An entry serves who asks for no more than it contains; the token of another changelog, or none, proves nothing.
func TestEntryMeetsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		next := store.Offset(5)
		ask := func(want store.Token) store.Role {
			t.Helper()
			a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Hour, AtLeast: want}, func(context.Context) (Answer, error) {
				h.calls.Add(1)
				a := found("v", 0)
				a.Token, a.Position = cut(next), store.Position{"in": {0: 9}}
				return a, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return a.Role
		}
		other := store.Token{Cuts: map[store.Partition]store.Cut{0: {TopicID: [16]byte{2}, Next: 1}}}
		for i, step := range []struct {
			want store.Token
			role store.Role
		}{
			{store.Token{}, store.RoleActive},
			{cut(5), store.RoleCache},
			{cut(6), store.RoleActive}, // whether the answer has it is for the caller to know
			{other, store.RoleActive},
			{store.Token{Inputs: store.Position{"in": {0: 9}}}, store.RoleCache},
			{store.Token{Inputs: store.Position{"in": {0: 10}}}, store.RoleActive},
			{store.Token{Inputs: store.Position{"new": {0: 0}}}, store.RoleActive},
			{store.Token{Inputs: store.Position{"in": {1: 10}}}, store.RoleCache}, // of another partition
			{store.Token{}, store.RoleCache},
		} {
			if role := ask(step.want); role != step.role {
				t.Errorf("step %d: %s, want %s", i, role, step.role)
			}
		}
	})
}

// Who waits for a token makes nobody else wait, and what is behind for one is no error of another.
func TestWaitingForATokenIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		get := func(want Want, after time.Duration, err error) (Answer, error) {
			want.MaxStaleness = time.Hour
			return h.Get(t.Context(), key("k"), want, func(context.Context) (Answer, error) {
				h.calls.Add(1)
				time.Sleep(after)
				return found("v", 0), err
			})
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := get(Want{AtLeast: cut(9), Patient: true}, time.Minute, &store.BehindError{}); !errors.Is(err, store.ErrBehind) {
				t.Error(err)
			}
		})
		synctest.Wait()
		start := time.Now()
		if _, err := get(Want{}, time.Second, nil); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		wg.Wait()
		h.wantCalls(2)

		// One that does not wait may be joined; if it is behind, who joined asks for itself.
		time.Sleep(2 * time.Hour)
		wg.Go(func() {
			if _, err := get(Want{AtLeast: cut(9)}, time.Second, &store.BehindError{}); !errors.Is(err, store.ErrBehind) {
				t.Error(err)
			}
		})
		synctest.Wait()
		for range 3 {
			wg.Go(func() {
				if _, err := get(Want{}, time.Second, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// An answer that a joined call brought is checked against the token of each who waited.
func TestSharedAnswerMeetsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, nil)
		get := func(want store.Token, next store.Offset) (Answer, error) {
			return h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Hour, AtLeast: want}, func(context.Context) (Answer, error) {
				h.calls.Add(1)
				time.Sleep(time.Second)
				a := found("v", 0)
				a.Token = cut(next)
				return a, nil
			})
		}
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = get(store.Token{}, 5) })
		synctest.Wait()
		for want, role := range map[store.Offset]store.Role{5: store.RoleCache, 6: store.RoleActive} {
			wg.Go(func() {
				a, err := get(cut(want), 6)
				if err != nil || a.Role != role || a.Token.Cuts[0].Next < want {
					t.Errorf("want %d: %s with %s, %v", want, a.Role, a.Token, err)
				}
			})
		}
		wg.Wait()
		h.wantCalls(2)
	})
}
