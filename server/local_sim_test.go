package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// withCopies is a mesh in which a owns every partition, the others have copies, and the values in them differ: "owner" and
// "copy".
func withCopies(tb testing.TB, n, parts int, adjust ...func(id string, c *Config, d *Deps)) *mesh {
	tb.Helper()
	m := newMesh(tb, n, parts, func(int) int { return 0 }, adjust...)
	d := m.data
	d.Epoch = 2
	for i := 1; i < n; i++ {
		for p := range parts {
			d.Instances[i].Standby = append(d.Instances[i].Standby, store.TaskID{Partition: store.Partition(p)})
		}
	}
	for _, nd := range m.nodes {
		m.publish(nd, d)
		value := "copy"
		if nd.id == "a" {
			value = "owner"
		} else {
			nd.stores.role = store.RoleStandby
		}
		for p := range parts {
			nd.stores.put(store.Partition(p), m.keyIn(store.Partition(p)), []byte(value))
		}
	}
	return m
}

// TestLocalCopy: who states a bound is answered by the copy of the instance that was asked, without a hop, if that is proven to be
// young enough at once. All others, and all who ask for more, are answered by the owner.
func TestLocalCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 3, 2)
		a, b := m.node("a"), m.node("b")
		key := m.keyIn(0)
		var seen atomic.Pointer[store.ReadOptions]
		var fail atomic.Pointer[error]
		b.stores.onOptions = func(_ store.Partition, o store.ReadOptions) error {
			seen.Store(&o)
			if err := fail.Load(); err != nil && o.Hasty {
				return *err
			}
			return nil
		}
		b.stores.age = func() time.Duration { return 100 * time.Millisecond }
		ask := func(want string, change ...func(*statemeshv1.GetRequest)) {
			t.Helper()
			resp, err := b.query().Get(t.Context(), get(key, change...))
			if err != nil || string(resp.GetValue().GetData()) != want {
				t.Fatalf("%v, %v: want the answer of the %s", resp, err, want)
			}
		}
		ask("copy", within(time.Second))
		if o := seen.Load(); !o.Hasty || o.MaxAge != 500*time.Millisecond || o.Wait != 0 {
			t.Errorf("the copy was asked with %+v", o)
		}
		if n := a.stores.reads.Load(); n != 0 {
			t.Errorf("the owner was asked %d times", n)
		}
		ask("owner")
		ask("owner", within(50*time.Millisecond)) // it turns out to be too old
		ask("owner", func(r *statemeshv1.GetRequest) {
			within(time.Second)(r)
			r.Options.Role = statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE
		})
		for _, err := range []error{
			&store.NotReadyError{Store: testStore, Reason: "age not proven"}, &store.BehindError{Store: testStore}, store.ErrClosed, store.ErrCorrupt,
			&store.MovedError{Store: testStore, Instance: "a", Endpoint: endpointOf("a"), Epoch: 2},
		} {
			fail.Store(&err)
			ask("owner", within(time.Second))
		}
		// Many at once, and rows.
		fail.Store(nil)
		batch, err := b.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{
			Store: string(testStore), Keys: [][]byte{m.keyIn(0), m.keyIn(1)}, Options: &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(time.Second)},
		})
		if err != nil || string(batch.GetResults()[0].GetValue().GetData()) != "copy" || string(batch.GetResults()[1].GetValue().GetData()) != "copy" {
			t.Errorf("%v, %v", batch, err)
		}
		stream, err := b.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Options: &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(time.Second)}})
		if err != nil {
			t.Fatal(err)
		}
		if rows, _, _, err := drainScan(stream); err != nil || len(rows) != 2 || string(rows[0].GetValue().GetData()) != "copy" {
			t.Errorf("%v, %v", rows, err)
		}
		if n := valueOf(t, b.srv.m.localCopy.WithLabelValues("answered")); n != 5 {
			t.Errorf("%v reads were answered by the copy here, want 5", n)
		}
	})
}

// A copy that was passed over in haste is asked in earnest when the owner cannot answer.
func TestLocalCopyInEarnest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := withCopies(t, 2, 1)
		m.node("a").stores.onRead = func(context.Context, store.Partition) error { return store.ErrShuttingDown }
		b := m.node("b")
		b.stores.onOptions = func(_ store.Partition, o store.ReadOptions) error {
			if o.Hasty {
				return &store.NotReadyError{Store: testStore, Reason: "age not proven"}
			}
			return nil
		}
		resp, err := b.query().Get(t.Context(), get(m.keyIn(0), within(time.Second)))
		if err != nil || string(resp.GetValue().GetData()) != "copy" {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

// Invariant 6: where a request without a bound accepts no age at all, what a former owner has kept does not answer it, although
// the map still takes it for the owner.
func TestFormerOwnerAndNoAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, standing := range []time.Duration{0, 5 * time.Second} {
			m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, c *Config, _ *Deps) { c.DefaultMaxStaleness = standing })
			a := m.node("a")
			a.stores.put(0, m.keyIn(0), []byte("v"))
			a.stores.role = store.RoleStandby
			a.stores.age = func() time.Duration { return time.Second }
			var only atomic.Bool
			a.stores.onOptions = func(_ store.Partition, o store.ReadOptions) error { only.Store(o.OnlyActive); return nil }
			resp, err := a.query().Get(t.Context(), get(m.keyIn(0)))
			if standing > 0 {
				if err != nil || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_STANDBY || only.Load() {
					t.Errorf("within the default bound: %v, %v", resp, err)
				}
				continue
			}
			wantErr(t, err, statemeshv1.Reason_REASON_NOT_ACTIVE)
			if !only.Load() {
				t.Error("the stores were not told that nobody but the owner may answer")
			}
		}
	})
}
