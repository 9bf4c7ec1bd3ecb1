package remotecache

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

const testStore store.Name = "counts"

// testMap is a map of one store with two partitions: owner of partition 0 is given, b owns partition 1.
func testMap(tb testing.TB, epoch router.Epoch, owner, incarnation string) *router.Snapshot {
	tb.Helper()
	d := router.Data{
		Application: "app", Epoch: epoch,
		Stores: []router.StoreInfo{{Name: testStore, Kind: store.KindKeyValue, Partitions: 2}},
	}
	for _, id := range []string{"a", "b", "c"} {
		in := router.Instance{ID: id, Incarnation: "1", Endpoint: id + ":1"}
		if id == owner {
			in.Incarnation = incarnation
			in.Active = append(in.Active, store.TaskID{Partition: 0})
		}
		if id == "b" {
			in.Active = append(in.Active, store.TaskID{Partition: 1})
		}
		d.Instances = append(d.Instances, in)
	}
	s, err := router.NewSnapshot(d)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

type harness struct {
	*Cache
	t     testing.TB
	table *router.Table
	reg   *prometheus.Registry
	calls atomic.Int64
}

func newHarness(tb testing.TB, mod func(*Config)) *harness {
	tb.Helper()
	h := &harness{t: tb, table: router.NewTable(), reg: prometheus.NewRegistry()}
	h.publish(1, "b", "1")
	cfg := Default()
	cfg.Registerer = h.reg
	if mod != nil {
		mod(&cfg)
	}
	h.Cache = New(cfg, h.table)
	return h
}

func (h *harness) publish(epoch router.Epoch, owner, incarnation string) {
	h.t.Helper()
	if err := h.table.Publish(testMap(h.t, epoch, owner, incarnation)); err != nil {
		h.t.Fatal(err)
	}
}

func key(s string) Key { return Key{Store: testStore, Query: s} }

func found(value string, age time.Duration) Answer {
	pos := store.Position{}
	pos.Set("in", 0, 7)
	return Answer{
		Value: store.Value{Data: []byte(value), Timestamp: 5}, Found: true, Position: pos, Age: age,
		Epoch: 1, Role: store.RoleActive, Instance: "b",
	}
}

// ask gets key within bound; a fetch answers a.
func (h *harness) ask(k Key, bound time.Duration, a Answer) Answer {
	h.t.Helper()
	got, err := h.Get(h.t.Context(), k, Want{MaxStaleness: bound}, func(context.Context) (Answer, error) {
		h.calls.Add(1)
		return a, nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return got
}

// wantCalls checks how many fetches there were since the last check.
func (h *harness) wantCalls(n int64) {
	h.t.Helper()
	if got := h.calls.Swap(0); got != n {
		h.t.Fatalf("fetches: %d, want %d", got, n)
	}
}

// metric is the value of a metric with one label value, or of one without labels.
func (h *harness) metric(name, label string) float64 {
	h.t.Helper()
	families, err := h.reg.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			switch l := m.GetLabel(); {
			case label == "" && m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case len(l) == 1 && l[0].GetValue() == label:
				return m.GetCounter().GetValue()
			}
		}
	}
	h.t.Fatalf("no metric %s{%s}", name, label)
	return 0
}

// CA-09: what comes from the cache says so, with its age.
// The time that the request was under way counts: nobody knows when within it the answer was given.
// A slow answer of an older state must not replace a newer one.
// CA-03: zero and negative mean off, never "for ever" or "unlimited".
// CA-04: expired entries are misses, and leave memory without anybody asking for them.
// CA-05: every way an entry leaves runs the callback of the LRU under its lock; none may come back to the cache.
// One answer does not push out everybody else's.
func TestHugeAnswerIsNotKept(t *testing.T) {
	h := newHarness(t, func(c *Config) { c.MaxBytes = 64 << 10 })
	h.ask(key("k"), time.Minute, found("v", 0))
	h.ask(key("huge"), time.Minute, found(string(make([]byte, 8<<10)), 0))
	h.wantCalls(2)
	h.ask(key("huge"), time.Minute, found("v", 0))
	h.ask(key("k"), time.Minute, found("v", 0))
	h.wantCalls(1)
}

// CA-06: entries of a moved partition are unusable at once, with or without Run; those of others stay.
func TestOwnerChangeDrops(t *testing.T) {
	for _, tc := range []struct {
		name               string
		owner, incarnation string
		calls              int64
	}{
		{"another owner", "c", "1", 1},
		{"the same owner restarted", "b", "2", 1},
		{"the same owner, new epoch", "b", "1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHarness(t, func(c *Config) { c.TTL = 30 * time.Second })
			h.ask(key("k"), time.Minute, found("v", 0))
			h.wantCalls(1)
			h.publish(2, tc.owner, tc.incarnation)
			h.ask(key("k"), time.Minute, found("v2", 0))
			h.wantCalls(tc.calls)
		})
	}
}

// CA-06: with Run, an entry does not come back to life when the partition returns to its former owner.
// An answer whose request crossed a change of the metadata is handed out, not kept.
func TestMoveDuringTheCall(t *testing.T) {
	for name, publish := range map[string]func(*harness){
		"owner": func(h *harness) { h.publish(2, "c", "1") },
		"epoch": func(h *harness) { h.publish(2, "b", "1") },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			a, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Minute}, func(context.Context) (Answer, error) {
				publish(h)
				return found("v", 0), nil
			})
			if err != nil || string(a.Value.Data) != "v" {
				t.Fatal(a, err)
			}
			if h.count.Load() != 0 {
				t.Fatal("kept")
			}
		})
	}
}

// CA-07, SE-06: what a caller got is the caller's; what it gave is copied.
func TestCallersOwnTheirBytes(t *testing.T) {
	h := newHarness(t, nil)
	src := found("value", 0)
	spoil := func(a Answer) {
		for i := range a.Value.Data {
			a.Value.Data[i] = 'X'
		}
		a.Position.Set("in", 0, 1<<40)
		a.Position.Set("other", 3, 1)
	}
	spoil(h.ask(key("k"), time.Minute, src))
	for range 3 {
		a := h.ask(key("k"), time.Minute, found("x", 0))
		if string(a.Value.Data) != "value" || a.Position["in"][0] != 7 || len(a.Position) != 1 {
			t.Fatalf("spoilt: %+v", a)
		}
		spoil(a)
	}
	h.wantCalls(1)
}

// An empty value is a value (SE-14).
func TestEmptyValueStaysOne(t *testing.T) {
	h := newHarness(t, nil)
	for range 2 {
		if a := h.ask(key("k"), time.Minute, found("", 0)); !a.Found || a.Value.Data == nil {
			t.Fatalf("%+v", a)
		}
	}
}

// Keys differ in everything that may make answers differ.
func TestKeysAreApart(t *testing.T) {
	h := newHarness(t, nil)
	keys := []Key{
		{Store: testStore, Query: "k"},
		{Store: testStore, Query: "k", Partition: 1},
		{Store: testStore, Query: "k", Principal: "alice"},
		{Store: testStore, Query: "k", Isolation: "READ_UNCOMMITTED"},
		{Store: testStore, Query: "\xff\xfe\x00"},
	}
	for i, k := range keys {
		h.ask(k, time.Minute, found(strconv.Itoa(i), 0))
	}
	h.wantCalls(int64(len(keys)))
	for i, k := range keys {
		if a := h.ask(k, time.Minute, found("x", 0)); string(a.Value.Data) != strconv.Itoa(i) {
			t.Fatalf("key %d: %s", i, a.Value.Data)
		}
	}
	h.wantCalls(0)
}

func TestErrorsAreNotKept(t *testing.T) {
	h := newHarness(t, nil)
	want := &store.OverloadedError{Limit: "x"}
	_, err := h.Get(t.Context(), key("k"), Want{MaxStaleness: time.Minute}, func(context.Context) (Answer, error) {
		return Answer{}, want
	})
	if !errors.Is(err, store.ErrOverloaded) {
		t.Fatal(err)
	}
	h.ask(key("k"), time.Minute, found("v", 0))
	h.wantCalls(1)
}

func BenchmarkHit(b *testing.B) {
	h := newHarness(b, func(c *Config) { c.TTL = time.Hour })
	k := key("some-key")
	h.ask(k, time.Hour, found("a value of some thirty-two bytes.", 0))
	want := Want{MaxStaleness: time.Hour}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Get(b.Context(), k, want, nil); err != nil {
			b.Fatal(err)
		}
	}
}
