package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

func newClient(t *testing.T, f *fleet) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Seeds: f.seeds(), Application: application})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The client and the server that it is made for: every key from every side, before and after partitions move, with and
// without an old map, and after an instance has left.
func TestAgainstRealServers(t *testing.T) {
	f := startFleet("a", "b", "c")
	defer f.close()
	want := map[string]int64{}
	var keys []string
	for i := range 300 {
		key := fmt.Sprintf("carrier-%03d", i)
		want[key] = int64(i) * 7
		keys = append(keys, key)
		f.put(key, want[key])
	}
	c := newClient(t, f)
	view := client.NewView(c, flights, serde.String(), serde.Int64())
	all := func(what string) {
		t.Helper()
		for _, opts := range [][]client.Option{nil, {client.ViaAny()}, {client.NoCache()}, {client.OnlyActive()}, {client.MaxStaleness(time.Minute)}} {
			for _, key := range keys[:60] {
				if v, err := view.Get(t.Context(), key, opts...); err != nil || v != want[key] {
					t.Fatalf("%s: %s: %d, %v", what, key, v, err)
				}
			}
		}
		items, err := view.BatchGet(t.Context(), append([]string{"absent"}, keys...))
		if err != nil || items[0].Found {
			t.Fatal(what, err)
		}
		for _, it := range items[1:] {
			if !it.Found || it.Value != want[it.Key] || it.Timestamp != timestamp {
				t.Fatalf("%s: %+v", what, it)
			}
		}
		for _, reverse := range []bool{false, true} {
			var got []string
			for it, err := range view.Scan(t.Context(), client.ScanQuery{Reverse: reverse}) {
				if err != nil {
					t.Fatal(what, err)
				}
				got = append(got, it.Key)
			}
			if reverse {
				slices.Reverse(got)
			}
			if !slices.Equal(got, keys) {
				t.Fatalf("%s: scan of %d rows", what, len(got))
			}
		}
		n, err := c.Count(t.Context(), flights)
		if err != nil || n.Approximate != int64(len(keys)) {
			t.Fatal(what, n.Approximate, err)
		}
		if _, err := view.Get(t.Context(), "absent"); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(what, err)
		}
	}
	all("at rest")

	f.move("b", f.owned("a")...) // only the stores know
	all("moved, maps are old")
	f.publish("a", "b", "c")
	all("moved, the client's map is old")

	f.move("c", f.owned("b")...)
	f.publish("a", "b", "c")
	f.move("a", f.owned("c")[:4]...)
	f.publish("a", "b", "c")
	f.nodes["b"].stop() // holds nothing by now
	f.move("a")         // nothing: a new epoch
	f.publish("a", "c")
	all("b has left")

	if ins, err := c.Instances(t.Context()); err != nil || len(ins) != 2 {
		t.Fatal(ins, err)
	}
	if _, err := view.Get(t.Context(), keys[0], client.InPartition(11)); !errors.Is(err, store.ErrWrongPartition) {
		t.Fatal(err)
	}
}

// A scan goes on over moves at the very tokens of the server.
func TestScanAgainstRealServersWhilePartitionsMove(t *testing.T) {
	f := startFleet("a", "b", "c")
	defer f.close()
	var keys []string
	for i := range 20_000 {
		key := fmt.Sprintf("carrier-%05d-%s", i, "some padding so that a scan takes many messages")
		keys = append(keys, key)
		f.put(key, int64(i))
	}
	c := newClient(t, f)
	view := client.NewView(c, flights, serde.String(), serde.Int64())
	n := 0
	for it, err := range view.Scan(t.Context(), client.ScanQuery{}) {
		if err != nil {
			t.Fatalf("row %d: %v", n, err)
		}
		if it.Key != keys[n] || it.Value != int64(n) {
			t.Fatalf("row %d is %s", n, it.Key)
		}
		if n++; n%4000 == 0 {
			from := []string{"a", "b", "c"}[n/4000%3]
			to := []string{"b", "c", "a"}[n/4000%3]
			f.move(to, f.owned(from)...)
			f.publish("a", "b", "c")
		}
	}
	if n != len(keys) {
		t.Fatalf("%d rows of %d", n, len(keys))
	}
}

// Readers see no error while instances are drained one after the other.
func TestRollingMovesAreNotSeen(t *testing.T) {
	f := startFleet("a", "b", "c")
	defer f.close()
	for i := range 100 {
		f.put(fmt.Sprint(i), int64(i))
	}
	c := newClient(t, f)
	view := client.NewView(c, flights, serde.String(), serde.Int64())
	ctx, cancel := context.WithCancel(t.Context())
	var follow, readers sync.WaitGroup
	follow.Go(func() { _ = c.Run(ctx) })
	for r := range 8 {
		readers.Go(func() {
			for i := range 2000 {
				k := (i*7 + r) % 100
				if v, err := view.Get(ctx, fmt.Sprint(k)); err != nil || v != int64(k) {
					t.Errorf("%d: %d, %v", k, v, err)
					return
				}
			}
		})
	}
	for i := range 30 {
		ids := []string{"a", "b", "c"}
		f.move(ids[(i+1)%3], f.owned(ids[i%3])...)
		f.publish(ids...)
	}
	readers.Wait()
	cancel()
	follow.Wait()
}

// BenchmarkGet shows what the client costs beside the generated stub, against the same server.
func BenchmarkGet(b *testing.B) {
	f := startFleet("a")
	defer f.close()
	f.put("UA", 58665)
	c, err := client.New(client.Config{Seeds: f.seeds()})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	p := client.NewPool(client.PoolConfig{})
	defer func() { _ = p.Close() }()
	b.Run("stub", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			q, err := p.Query(f.seeds()[0])
			if err != nil {
				b.Fatal(err)
			}
			if _, err := q.Get(b.Context(), &statemeshv1.GetRequest{Store: string(flights), Key: []byte("UA")}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("client", func(b *testing.B) {
		ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // as callers do; without one there is a timer per call
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Get(ctx, flights, []byte("UA")); err != nil {
				b.Fatal(err)
			}
		}
	})
}
