package server

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

func cutAt(next store.Offset) store.Token {
	return store.Token{Cuts: map[store.Partition]store.Cut{1: {TopicID: [16]byte{9}, Next: next}}}
}

func atLeast(t store.Token) *statemeshv1.ReadOptions {
	return &statemeshv1.ReadOptions{AtLeast: [][]byte{wire.FromToken(testStore, t)}}
}

// reached makes a store that has come as far as its token: it answers whoever wants less, and is behind for the others.
func (f *fakeStores) reached(next func() store.Offset) {
	f.token = func(p store.Partition) store.Token {
		return store.Token{Cuts: map[store.Partition]store.Cut{p: {TopicID: [16]byte{9}, Next: next()}}}
	}
	f.onOptions = func(p store.Partition, o store.ReadOptions) error {
		if want := o.AtLeast.Cuts[p].Next; want > next() {
			return &store.BehindError{Store: testStore, Partition: p, Have: f.token(p), Want: o.AtLeast, RetryAfter: 70 * time.Millisecond}
		}
		return nil
	}
}

// What a caller insists on reaches each partition, here and over a hop: of a token its own part.
func TestEachPartitionGetsItsPart(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 4, func(p int) int { return p % 2 })
	var mu sync.Mutex
	got := map[store.Partition]store.ReadOptions{}
	for _, n := range m.nodes {
		n.stores.onOptions = func(p store.Partition, o store.ReadOptions) error {
			mu.Lock()
			defer mu.Unlock()
			got[p] = o
			return nil
		}
	}
	tok := store.Token{
		Cuts:   map[store.Partition]store.Cut{0: {TopicID: [16]byte{1}, Next: 5}, 1: {TopicID: [16]byte{1}, Next: 6}, 99: {Next: 1}},
		Inputs: store.Position{"in": {1: 10, 2: 20}, "other": {3: 30}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := m.node("a").query().Count(ctx, &statemeshv1.CountRequest{Store: string(testStore), Options: &statemeshv1.ReadOptions{
		Isolation: statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED, AtLeast: atLeast(tok).GetAtLeast(),
		Wait: durationpb.New(time.Hour),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for p := range store.Partition(4) {
		o := got[p]
		if !reflect.DeepEqual(o.AtLeast, tok.At(p)) || o.Isolation != store.ReadUncommitted || o.Wait <= 59*time.Minute || o.Wait > time.Hour {
			t.Errorf("partition %d: %+v, want %s", p, o, tok.At(p))
		}
		if a := resp.GetAnswers()[p]; a.GetIsolation() != statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED {
			t.Errorf("partition %d: shown at %s", p, a.GetIsolation())
		}
	}
}

// Who is behind says so, with how far it is, also over a hop.
func TestBehind(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	m.node("b").stores.reached(func() store.Offset { return 5 })
	key := m.keyIn(1)
	m.put(key, []byte("1"))
	for _, n := range m.nodes {
		resp, err := n.query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = atLeast(cutAt(5)) }))
		if err != nil {
			t.Fatal(err)
		}
		name, tok, err := wire.ToToken(resp.GetAnswer().GetToken())
		if err != nil || name != testStore || !reflect.DeepEqual(tok, cutAt(5)) {
			t.Errorf("%s: answered with token %s of %s, %v", n.id, tok, name, err)
		}
		_, err = n.query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = atLeast(cutAt(6)) }))
		e, ok := errors.AsType[*store.BehindError](asErr(t, err, statemeshv1.Reason_REASON_BEHIND))
		if !ok || !reflect.DeepEqual(e.Have, cutAt(5)) || !reflect.DeepEqual(e.Want, cutAt(6)) || e.RetryAfter != 70*time.Millisecond || e.Partition != 1 {
			t.Errorf("%s: %v", n.id, err)
		}
	}
	// Of several copies that are behind, or cannot be reached, the caller hears who is behind.
	d := m.data
	d.Epoch = 2
	d.Instances[0].Standby = []store.TaskID{{Partition: 1}}
	m.publish(m.node("a"), d)
	m.node("a").stores.hold(1)
	m.node("a").stores.reached(func() store.Offset { return 3 })
	_, err := m.node("a").query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = atLeast(cutAt(6)) }))
	wantErr(t, err, statemeshv1.Reason_REASON_BEHIND)
}

// A copy that is behind is passed over for one that is not.
func TestBehindIsPassedOver(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 1, func(int) int { return 1 })
	m.data.Epoch = 2
	m.data.Instances[0].Standby = []store.TaskID{{Partition: 0}}
	for _, n := range m.nodes {
		m.publish(n, m.data)
	}
	m.put([]byte("k"), []byte("new"))
	a, b := m.node("a").stores, m.node("b").stores
	a.put(0, []byte("k"), []byte("old"))
	a.role = store.RoleStandby
	tok := store.Token{Cuts: map[store.Partition]store.Cut{0: {TopicID: [16]byte{9}, Next: 6}}}
	ask := func() *statemeshv1.GetResponse {
		t.Helper()
		resp, err := m.node("c").query().Get(t.Context(), get([]byte("k"), func(r *statemeshv1.GetRequest) { r.Options = atLeast(tok) }))
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	a.reached(func() store.Offset { return 6 })
	b.reached(func() store.Offset { return 5 })
	if resp := ask(); string(resp.GetValue().GetData()) != "old" || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_STANDBY {
		t.Errorf("with an owner that is behind: %v", resp)
	}
	a.reached(func() store.Offset { return 5 })
	b.reached(func() store.Offset { return 6 })
	if resp := ask(); string(resp.GetValue().GetData()) != "new" {
		t.Errorf("with a standby that is behind: %v", resp)
	}
}

// A cached answer serves only who it satisfies: with a token, what contains it; at an isolation level, what was read at it.
func TestCacheMeetsTokenAndIsolation(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, withCache)
	next := store.Offset(5)
	b := m.node("b").stores
	b.reached(func() store.Offset { return next })
	key := m.keyIn(1)
	ask := func(o *statemeshv1.ReadOptions) (string, statemeshv1.Role) {
		t.Helper()
		resp, err := m.node("a").query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = o }))
		if err != nil {
			t.Fatal(err)
		}
		return string(resp.GetValue().GetData()), resp.GetAnswer().GetRole()
	}
	uncommitted := &statemeshv1.ReadOptions{Isolation: statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED}
	const cached, active = statemeshv1.Role_ROLE_CACHE, statemeshv1.Role_ROLE_ACTIVE
	for i, step := range []struct {
		next  store.Offset
		write string
		o     *statemeshv1.ReadOptions
		want  string
		role  statemeshv1.Role
	}{
		{5, "1", nil, "1", active},
		{6, "2", nil, "1", cached},
		{6, "2", atLeast(cutAt(5)), "1", cached},
		{6, "2", atLeast(cutAt(6)), "2", active},
		{6, "2", atLeast(cutAt(6)), "2", cached},
		{6, "2", nil, "2", cached},
		{7, "3", uncommitted, "3", active},
		{7, "3", nil, "2", cached},
		{8, "4", uncommitted, "3", cached},
		// A changelog that was recreated does not compare.
		{8, "4", atLeast(store.Token{Cuts: map[store.Partition]store.Cut{1: {TopicID: [16]byte{8}, Next: 1}}}), "4", active},
		// Input positions: the state says 99 of partition 1.
		{8, "5", &statemeshv1.ReadOptions{AtLeastPosition: wire.FromPosition(store.Position{"in": {1: 99}})}, "4", cached},
	} {
		next = step.next
		m.put(key, []byte(step.write))
		if got, role := ask(step.o); got != step.want || role != step.role {
			t.Fatalf("step %d: %q from %s, want %q from %s", i, got, role, step.want, step.role)
		}
	}
	before := b.reads.Load()
	_, err := m.node("a").query().Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) {
		r.Options = &statemeshv1.ReadOptions{AtLeastPosition: wire.FromPosition(store.Position{"in": {1: 100}}), Wait: durationpb.New(time.Nanosecond)}
	}))
	if err != nil || b.reads.Load() != before+1 {
		t.Errorf("beyond the cached position: %d reads, %v", b.reads.Load()-before, err)
	}
}

// A copy that shows what is not committed to a read at READ_COMMITTED is a defect, and its answer is not sent.
func TestIsolationOfAnswersIsChecked(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p })
	key := m.keyIn(1)
	m.put(key, []byte("1"))
	m.node("b").stores.shown = store.ReadUncommitted
	_, err := m.node("a").query().Get(t.Context(), get(key))
	wantErr(t, err, statemeshv1.Reason_REASON_INTERNAL)
}

// GN-15: a wait ends at once when the partition has moved, and goes on at the new owner within the same deadline.
func TestWaitFollowsAMove(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 1, func(int) int { return 1 })
	waiting := make(chan struct{})
	moved := make(chan struct{})
	m.node("b").stores.onOptions = func(p store.Partition, _ store.ReadOptions) error {
		close(waiting)
		<-moved // woken by the revocation
		return &store.MovedError{Store: testStore, Partition: p, Instance: "c", Endpoint: endpointOf("c"), Epoch: 2}
	}
	var left time.Duration
	m.node("c").stores.onOptions = func(_ store.Partition, o store.ReadOptions) error {
		left = o.Wait
		return nil
	}
	m.node("c").stores.put(0, []byte("k"), []byte("v"))
	go func() {
		<-waiting
		m.publish(m.node("c"), m.moved(2, 0, "c"))
		close(moved)
	}()
	o := atLeast(store.Token{Inputs: store.Position{"in": {0: 5}}})
	o.Wait = durationpb.New(time.Hour)
	resp, err := m.node("a").query().Get(t.Context(), get([]byte("k"), func(r *statemeshv1.GetRequest) { r.Options = o }))
	if err != nil || resp.GetAnswer().GetAnsweredBy().GetId() != "c" || left <= 0 || left >= time.Hour {
		t.Errorf("%v, %v, %s left to wait", resp, err, left)
	}
}
