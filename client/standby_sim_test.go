package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

// standbys gives every partition a copy at the instance after its owner.
func (m *mesh) standbys(ids ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standby = make(map[store.Partition]string)
	for p := range store.Partition(m.partitions) {
		m.standby[p] = ids[(int(p)+1)%len(ids)]
	}
}

// TestStandbyForAPausedOwner: an owner that keeps its connections and says nothing costs a read that accepts a copy a quarter of a
// second, and the next reads nothing. Who insists on the owner, or accepts no copy, waits for it.
func TestStandbyForAPausedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b", "c")
		want := m.fill(40)
		m.standbys("a", "b", "c")
		c := m.client(nil)
		m.member("a").on(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		first := true
		for k, v := range want {
			begun := time.Now()
			r := wantValue(t, c, k, v, MaxStaleness(5*time.Second))
			paused := m.owner[r.Answer.Partition] == "a"
			if got := r.Answer.Facts.Role == store.RoleStandby; got != paused {
				t.Fatalf("%s of a partition of %s: answered by %s", k, m.owner[r.Answer.Partition], r.Answer.Facts.Role)
			}
			limit := time.Duration(0)
			if paused && first {
				limit, first = 250*time.Millisecond, false
			}
			if took := time.Since(begun); took != limit {
				t.Fatalf("%s took %s, want %s", k, took, limit)
			}
		}
		// The owner is looked at again after a while.
		m.member("a").on(func(context.Context, string) error { return nil })
		time.Sleep(time.Second)
		for k, v := range want {
			if r := wantValue(t, c, k, v, MaxStaleness(5*time.Second)); r.Answer.Facts.Role != store.RoleActive {
				t.Fatalf("%s answered by %s long after its owner is back", k, r.Answer.Facts.Role)
			}
		}
		m.member("a").on(func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() })
		key := keyOf(t, m, "a")
		for _, opts := range [][]Option{{}, {OnlyActive()}, {OnlyActive(), MaxStaleness(5 * time.Second)}} {
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := c.Get(ctx, counts, []byte(key), opts...)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 3*time.Second {
				t.Fatalf("%v after %s, want the deadline after 3s", err, time.Since(begun))
			}
		}
	})
}

// TestSlowEverywhere: when the copy is no faster than the owner, both have the time that the caller has.
func TestSlowEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a", "b")
		want := m.fill(10)
		m.standbys("a", "b")
		c := m.client(nil)
		for _, id := range []string{"a", "b"} {
			m.member(id).on(func(ctx context.Context, _ string) error {
				select {
				case <-time.After(time.Second):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		}
		for k, v := range want {
			begun := time.Now()
			wantValue(t, c, k, v, MaxStaleness(5*time.Second))
			if took := time.Since(begun); took > 1250*time.Millisecond {
				t.Fatalf("%s took %s", k, took)
			}
		}
	})
}

// TestStandbyForARestoringOwner: an owner that is not ready sends a read that accepts a copy to the copy, at once.
func TestStandbyForARestoringOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 4, "a", "b")
		want := m.fill(20)
		m.standbys("a", "b")
		c := m.client(nil)
		m.member("a").on(func(context.Context, string) error {
			return &store.NotReadyError{Store: counts, Partition: 0, Reason: "restoring", RetryAfter: time.Second}
		})
		key := keyOf(t, m, "a")
		begun := time.Now()
		if r := wantValue(t, c, key, want[key], MaxStaleness(5*time.Second)); r.Answer.Facts.Role != store.RoleStandby || time.Since(begun) != 0 {
			t.Fatalf("answered by %s after %s", r.Answer.Facts.Role, time.Since(begun))
		}
	})
}

// keyOf returns a key of partition 0, which must belong to an instance.
func keyOf(t *testing.T, m *mesh, owner string) string {
	t.Helper()
	if m.owner[0] != owner {
		t.Fatalf("partition 0 is with %s", m.owner[0])
	}
	for key := range m.data[0] {
		return key
	}
	t.Fatal("no key")
	return ""
}
