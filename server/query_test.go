package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func get(key []byte, o ...func(*statemeshv1.GetRequest)) *statemeshv1.GetRequest {
	r := &statemeshv1.GetRequest{Store: string(testStore), Key: key}
	for _, f := range o {
		f(r)
	}
	return r
}

func within(d time.Duration) func(*statemeshv1.GetRequest) {
	return func(r *statemeshv1.GetRequest) {
		r.Options = &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(d)}
	}
}

// Any instance answers any key; the answer says who gave it. SE-14: an empty value, a value and no value are three
// answers on every path. GN-10: keys are bytes.
func TestAnyInstanceAnswersAnyKey(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 6, func(p int) int { return p % 3 }, withCache)
	values := map[string][]byte{"\xff\xfe\x00": {0xff, 0, 0xfe}, "empty": {}}
	for i := range 60 {
		values[fmt.Sprintf("k%d", i)] = fmt.Appendf(nil, "v%d", i)
	}
	for k, v := range values {
		m.put([]byte(k), v)
	}
	for _, n := range m.nodes {
		for pass := range 2 { // the second one out of the cache where there is one
			for k, v := range values {
				resp, err := n.query().Get(t.Context(), get([]byte(k)))
				if err != nil {
					t.Fatalf("%s: get %q: %v", n.id, k, err)
				}
				owner := m.owner(m.partition([]byte(k)))
				role, by := statemeshv1.Role_ROLE_ACTIVE, owner.id
				if owner != n && pass > 0 {
					role, by = statemeshv1.Role_ROLE_CACHE, n.id
				}
				a := resp.GetAnswer()
				if string(resp.GetValue().GetData()) != string(v) || resp.GetValue().GetTimestampMs() != 42 {
					t.Fatalf("%s: get %q = %v", n.id, k, resp.GetValue())
				}
				if a.GetRole() != role || a.GetAnsweredBy().GetId() != by || a.GetAnsweredBy().GetEndpoint() != endpointOf(by) ||
					a.GetEpoch() != 1 || a.GetSequence() != 7 || a.GetPosition().GetTopics()[0].GetTopic() != "in" ||
					a.GetPartition() != int32(m.partition([]byte(k))) {
					t.Fatalf("%s pass %d: get %q answered by %v, want %s of %s", n.id, pass, k, a, role, by)
				}
			}
			_, err := n.query().Get(t.Context(), get([]byte("absent\xff")))
			absent, ok := errors.AsType[*wire.AbsentError](asErr(t, err, statemeshv1.Reason_REASON_KEY_NOT_FOUND))
			if !ok || absent.Answer.Facts.Sequence != 7 || absent.Answer.Instance == "" {
				t.Fatalf("%s: an absence without a proof: %v", n.id, err)
			}
		}
	}
}

func TestBatchGet(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 6, func(p int) int { return p % 3 })
	req := &statemeshv1.BatchGetRequest{Store: string(testStore)}
	for i := range 90 {
		key := fmt.Appendf(nil, "k%d", i)
		req.Keys = append(req.Keys, key)
		if i%3 > 0 {
			m.put(key, fmt.Appendf(nil, "v%d", i)[:i%3]) // "v" or "v" and a digit
		}
	}
	req.Keys = append(req.Keys, req.GetKeys()[1], []byte("\xff\xfe\x00")) // twice, and no text
	resp, err := m.node("a").query().BatchGet(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resp.GetResults() {
		want := ""
		switch {
		case i == 90:
			want = "v"
		case i < 90 && i%3 > 0:
			want = fmt.Sprintf("v%d", i)[:i%3]
		}
		if string(r.GetValue().GetData()) != want || (r.GetValue() == nil) != (want == "") || r.GetPartition() != int32(m.partition(req.GetKeys()[i])) {
			t.Errorf("key %s: %v", req.GetKeys()[i], r)
		}
	}
	if len(resp.GetAnswers()) != 6 {
		t.Errorf("%d answers, want one per partition: %v", len(resp.GetAnswers()), resp.GetAnswers())
	}
	for p, a := range resp.GetAnswers() {
		if a.GetPartition() != int32(p) || a.GetAnsweredBy().GetId() != m.owner(store.Partition(p)).id {
			t.Errorf("answer %d: %v", p, a)
		}
	}
	for _, n := range m.nodes {
		if r := n.stores.reads.Load(); r != 2 {
			t.Errorf("%s: %d reads, want one per partition", n.id, r)
		}
	}
	if resp, err := m.node("a").query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore)}); err != nil || len(resp.GetResults()) > 0 {
		t.Errorf("no keys: %v, %v", resp, err)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 6, func(p int) int { return p % 3 })
	for i := range 100 {
		m.put(fmt.Appendf(nil, "k%d", i), []byte("v"))
	}
	resp, err := m.node("b").query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)})
	if err != nil || resp.GetApproximateCount() != 100 || len(resp.GetAnswers()) != 6 {
		t.Errorf("%v, %v", resp, err)
	}
	var sum int64
	for p := range int32(6) {
		resp, err := m.node("c").query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Partitions: []int32{p}})
		if err != nil {
			t.Fatal(err)
		}
		sum += resp.GetApproximateCount()
	}
	if sum != 100 {
		t.Errorf("the partitions have %d", sum)
	}
}

// Malformed, oversized, unknown-store and wrong-partition requests: typed errors, at once, and the server goes on.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 4, func(p int) int { return p % 2 })
	q := m.node("a").query()
	key := m.keyIn(2)
	m.put(key, []byte("v"))
	scanReq := func(f func(*statemeshv1.ScanRequest)) func(context.Context) error {
		return func(ctx context.Context) error {
			r := &statemeshv1.ScanRequest{Store: string(testStore)}
			f(r)
			s, err := q.Scan(ctx, r)
			if err == nil {
				_, _, _, err = drainScan(s)
			}
			return err
		}
	}
	getReq := func(f func(*statemeshv1.GetRequest)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := q.Get(ctx, get(key, f)); return err }
	}
	opts := func(o *statemeshv1.ReadOptions) func(context.Context) error {
		return getReq(func(r *statemeshv1.GetRequest) { r.Options = o })
	}
	unknown := protowire.AppendTag(nil, 99, protowire.BytesType)
	unknown = protowire.AppendBytes(unknown, []byte("token"))
	withUnknown := &statemeshv1.ReadOptions{}
	withUnknown.ProtoReflect().SetUnknown(unknown)
	bad := statemeshv1.Reason_REASON_INVALID_REQUEST
	for name, c := range map[string]struct {
		call func(context.Context) error
		want statemeshv1.Reason
	}{
		"no store":        {getReq(func(r *statemeshv1.GetRequest) { r.Store = "" }), bad},
		"long store":      {getReq(func(r *statemeshv1.GetRequest) { r.Store = strings.Repeat("x", 250) }), bad},
		"unknown store":   {getReq(func(r *statemeshv1.GetRequest) { r.Store = "../flights" }), statemeshv1.Reason_REASON_UNKNOWN_STORE},
		"no key":          {getReq(func(r *statemeshv1.GetRequest) { r.Key = nil }), statemeshv1.Reason_REASON_INVALID_KEY},
		"long key":        {getReq(func(r *statemeshv1.GetRequest) { r.Key = make([]byte, 1<<16) }), statemeshv1.Reason_REASON_TOO_LARGE},
		"wrong partition": {getReq(func(r *statemeshv1.GetRequest) { r.Partition = new(int32(1)) }), statemeshv1.Reason_REASON_WRONG_PARTITION},
		"staleness 0":     {opts(&statemeshv1.ReadOptions{MaxStaleness: durationpb.New(0)}), bad},
		"staleness -1":    {opts(&statemeshv1.ReadOptions{MaxStaleness: durationpb.New(-time.Second)}), bad},
		"staleness wild":  {opts(&statemeshv1.ReadOptions{MaxStaleness: &durationpb.Duration{Seconds: 1 << 62, Nanos: -5}}), bad},
		"token":           {opts(&statemeshv1.ReadOptions{AtLeast: [][]byte{[]byte("x")}}), bad},
		"isolation 99":    {opts(&statemeshv1.ReadOptions{Isolation: 99}), bad},
		"cache -1":        {opts(&statemeshv1.ReadOptions{Cache: -1}), bad},
		"role 7":          {opts(&statemeshv1.ReadOptions{Role: 7}), bad},
		"unknown option":  {opts(withUnknown), bad},
		"unknown field":   {getReq(func(r *statemeshv1.GetRequest) { r.ProtoReflect().SetUnknown(unknown) }), bad},
		"unknown in scan": {scanReq(func(r *statemeshv1.ScanRequest) {
			r.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
		}), bad},
		"partition 4":     {scanReq(func(r *statemeshv1.ScanRequest) { r.Partitions = []int32{4} }), bad},
		"partition -1":    {scanReq(func(r *statemeshv1.ScanRequest) { r.Partitions = []int32{-1} }), bad},
		"partition twice": {scanReq(func(r *statemeshv1.ScanRequest) { r.Partitions = []int32{1, 1} }), bad},
		"many partitions": {scanReq(func(r *statemeshv1.ScanRequest) { r.Partitions = make([]int32, 1000) }), bad},
		"limit 0":         {scanReq(func(r *statemeshv1.ScanRequest) { r.Limit = new(int64(0)) }), bad},
		"limit -1":        {scanReq(func(r *statemeshv1.ScanRequest) { r.Limit = new(int64(-1)) }), bad},
		"order 9":         {scanReq(func(r *statemeshv1.ScanRequest) { r.Order = 9 }), bad},
		"prefix and from": {scanReq(func(r *statemeshv1.ScanRequest) { r.Prefix, r.From = []byte("a"), []byte{} }), bad},
		"long bound":      {scanReq(func(r *statemeshv1.ScanRequest) { r.To = make([]byte, 1<<16) }), statemeshv1.Reason_REASON_TOO_LARGE},
		"no token":        {scanReq(func(r *statemeshv1.ScanRequest) { r.ResumeToken = []byte("x") }), bad},
		"count partitions": {func(ctx context.Context) error {
			_, err := q.Count(ctx, &statemeshv1.CountRequest{Store: string(testStore), Partitions: []int32{9}})
			return err
		}, bad},
		"batch empty key": {func(ctx context.Context) error {
			_, err := q.BatchGet(ctx, &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{key, {}}})
			return err
		}, statemeshv1.Reason_REASON_INVALID_KEY},
		"batch of 10,001": {func(ctx context.Context) error {
			_, err := q.BatchGet(ctx, &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: make([][]byte, 10_001)})
			return err
		}, statemeshv1.Reason_REASON_TOO_LARGE},
		"owner of no key": {func(ctx context.Context) error {
			_, err := m.node("a").meta().FindOwner(ctx, &statemeshv1.FindOwnerRequest{Store: string(testStore)})
			return err
		}, statemeshv1.Reason_REASON_INVALID_KEY},
		"instances of no store": {func(ctx context.Context) error {
			_, err := m.node("a").meta().ListInstances(ctx, &statemeshv1.ListInstancesRequest{Store: new("")})
			return err
		}, statemeshv1.Reason_REASON_UNKNOWN_STORE},
	} {
		wantErr(t, c.call(t.Context()), c.want)
		if t.Failed() {
			t.Log(name)
		}
	}
	if _, err := q.Get(t.Context(), get(key)); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// GN-09: every error of the stores, asked of the owner and by way of another instance. No Unknown anywhere.
func TestErrorsOfStores(t *testing.T) {
	t.Parallel()
	notReady := &store.NotReadyError{Store: testStore, Partition: 1, Reason: "restoring", Restored: 3, Total: 9, RetryAfter: time.Second}
	for name, c := range map[string]struct {
		err       error
		here, far statemeshv1.Reason
	}{
		"not ready":    {notReady, statemeshv1.Reason_REASON_NOT_READY, statemeshv1.Reason_REASON_NOT_READY},
		"wrapped":      {fmt.Errorf("read: %w", notReady), statemeshv1.Reason_REASON_NOT_READY, statemeshv1.Reason_REASON_NOT_READY},
		"closed":       {fmt.Errorf("snapshot: %w", store.ErrClosed), statemeshv1.Reason_REASON_NO_REPLICA, statemeshv1.Reason_REASON_NO_REPLICA},
		"stopping":     {store.ErrShuttingDown, statemeshv1.Reason_REASON_SHUTTING_DOWN, statemeshv1.Reason_REASON_SHUTTING_DOWN},
		"corrupt":      {fmt.Errorf("block 7: %w", store.ErrCorrupt), statemeshv1.Reason_REASON_CORRUPT, statemeshv1.Reason_REASON_CORRUPT},
		"wrong kind":   {&store.WrongKindError{Store: testStore, Kind: 9, Query: "get"}, statemeshv1.Reason_REASON_WRONG_STORE_KIND, statemeshv1.Reason_REASON_WRONG_STORE_KIND},
		"no such":      {&store.UnknownStoreError{Store: testStore}, statemeshv1.Reason_REASON_UNKNOWN_STORE, statemeshv1.Reason_REASON_UNKNOWN_STORE},
		"too large":    {&store.TooLargeError{Store: testStore, What: "key", Size: 2, Limit: 1}, statemeshv1.Reason_REASON_TOO_LARGE, statemeshv1.Reason_REASON_TOO_LARGE},
		"overloaded":   {&store.OverloadedError{Limit: "x", RetryAfter: time.Second}, statemeshv1.Reason_REASON_OVERLOADED, statemeshv1.Reason_REASON_OVERLOADED},
		"deadline":     {context.DeadlineExceeded, statemeshv1.Reason_REASON_DEADLINE_EXCEEDED, statemeshv1.Reason_REASON_DEADLINE_EXCEEDED},
		"engine":       {errors.New("engine: disk on fire, value canary-9"), statemeshv1.Reason_REASON_INTERNAL, statemeshv1.Reason_REASON_INTERNAL},
		"moved nobody": {&store.MovedError{Store: testStore, Partition: 1, Epoch: 1}, statemeshv1.Reason_REASON_NO_REPLICA, statemeshv1.Reason_REASON_NO_REPLICA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMesh(t, 2, 2, func(p int) int { return p })
			m.node("b").stores.onRead = func(context.Context, store.Partition) error { return c.err }
			for id, want := range map[string]statemeshv1.Reason{"b": c.here, "a": c.far} {
				_, err := m.node(id).query().Get(t.Context(), get(m.keyIn(1)))
				got := asErr(t, err, want)
				if strings.Contains(fmt.Sprint(status.Convert(err).Proto()), "canary") {
					t.Errorf("%s: the error shows data: %v", id, err)
				}
				if n, ok := errors.AsType[*store.NotReadyError](c.err); ok {
					if g, ok := errors.AsType[*store.NotReadyError](got); !ok || *g != *n {
						t.Errorf("%s: %#v, want %#v", id, got, n)
					}
				}
				_, err = m.node(id).query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{m.keyIn(1), m.keyIn(0)}})
				wantErr(t, err, want)
				s, err := m.node(id).query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
				if err == nil {
					_, _, _, err = drainScan(s)
				}
				wantErr(t, err, want)
			}
		})
	}
}

// MR-08: what cannot be answered is never "not there".
func TestNeverAbsentWithoutProof(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 3, func(p int) int { return p - 1 }) // partition 0 has no owner
	for _, n := range m.nodes {
		_, err := n.query().Get(t.Context(), get(m.keyIn(0)))
		wantErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
		s, err := n.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
		if err == nil {
			_, _, _, err = drainScan(s)
		}
		wantErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
		_, err = n.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)})
		wantErr(t, err, statemeshv1.Reason_REASON_NO_REPLICA)
		// A part that is owned is answered.
		if _, err := n.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Partitions: []int32{1, 2}}); err != nil {
			t.Error(err)
		}
	}
	// The owner by the map that does not have the partition open.
	m.node("a").stores.drop(1)
	for _, n := range m.nodes {
		_, err := n.query().Get(t.Context(), get(m.keyIn(1)))
		wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
	}
}

// MR-11: the replica that answers and the instance that forwards both check the bound, and nobody answers beyond it.
func TestBoundIsCheckedWhereTheAnswerIsGiven(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, withCache)
	b := m.node("b")
	b.stores.age = func() time.Duration { return 3 * time.Second }
	key := m.keyIn(1)
	m.put(key, []byte("v"))
	for _, n := range m.nodes {
		got := asErr(t, func() error { _, err := n.query().Get(t.Context(), get(key, within(2*time.Second))); return err }(),
			statemeshv1.Reason_REASON_NOT_READY)
		if !strings.Contains(got.Error(), "above 2s") {
			t.Errorf("%s: %v", n.id, got)
		}
		_, err := n.query().Get(t.Context(), get([]byte(string(key)+"x"), within(time.Millisecond)))
		if err == nil {
			t.Error("an age beyond the bound was answered")
		}
		resp, err := n.query().Get(t.Context(), get(key, within(time.Hour)))
		if err != nil || resp.GetAnswer().GetAge().AsDuration() < 3*time.Second {
			t.Errorf("%s: %v, %v", n.id, resp, err)
		}
	}
	// The cached answer is more than 3 s old: it does not serve a tighter bound, and the owner does not either.
	_, err := m.node("a").query().Get(t.Context(), get(key, within(time.Second)))
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
}

// Only the owner, never a cache.
func TestRoleActiveAndBypass(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, withCache)
	key := m.keyIn(1)
	m.put(key, []byte("1"))
	q := m.node("a").query()
	if _, err := q.Get(t.Context(), get(key)); err != nil {
		t.Fatal(err)
	}
	m.put(key, []byte("2"))
	for _, o := range []*statemeshv1.ReadOptions{
		{Cache: statemeshv1.CacheMode_CACHE_MODE_BYPASS}, {Role: statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE},
	} {
		resp, err := q.Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = o }))
		if err != nil || string(resp.GetValue().GetData()) != "2" || resp.GetAnswer().GetRole() != statemeshv1.Role_ROLE_ACTIVE {
			t.Errorf("%v: %v, %v", o, resp, err)
		}
	}
	m.node("b").stores.role = store.RoleStandby
	_, err := q.Get(t.Context(), get(key, func(r *statemeshv1.GetRequest) {
		r.Options = &statemeshv1.ReadOptions{Role: statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE}
	}))
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_ACTIVE)
}

func TestNoMetadataYet(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, _ *Config, d *Deps) { d.Table = router.NewTable() })
	_, err := m.node("a").query().Get(t.Context(), get([]byte("k")))
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
	_, err = m.node("a").meta().ListStores(t.Context(), &statemeshv1.ListStoresRequest{})
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
	if c := status.Code(err); c != codes.Unavailable {
		t.Error(c)
	}
}
