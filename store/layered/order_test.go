package layered

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/statemesh/statemesh/store/engine"
)

// orderRow is a row as the tests write it down.
type orderRow struct {
	key     string
	segment engine.Segment
}

func (r orderRow) compare(o orderRow) int {
	return compareRows([]byte(r.key), r.segment, []byte(o.key), o.segment)
}

func orderEntry(r orderRow) *entry { return &entry{key: []byte(r.key), segment: r.segment} }

func randomRow(rng *rand.Rand) orderRow {
	key := make([]byte, 1+rng.IntN(4))
	for i := range key {
		key[i] = []byte{0, 1, 'a', 0xff}[rng.IntN(4)]
	}
	return orderRow{string(key), engine.Segment(rng.IntN(3))}
}

// TestOrder compares the order with a sorted slice: forward, backward, and from any row.
func TestOrder(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	o := newOrder()
	if o.last() != nil || o.from(nil) != nil || o.from([]byte("a")) != nil || o.before([]byte("a"), 0) != nil {
		t.Error("an empty order has rows")
	}
	var want []orderRow
	for range 800 {
		r := randomRow(rng)
		at, found := slices.BinarySearchFunc(want, r, orderRow.compare)
		if !found {
			o.insert(orderEntry(r))
			want = slices.Insert(want, at, r)
		}
		probe := randomRow(rng)
		at, _ = slices.BinarySearchFunc(want, probe, orderRow.compare)
		switch n := o.before([]byte(probe.key), probe.segment); {
		case n == nil && at > 0, n != nil && (at == 0 || rowOf(n) != want[at-1]):
			t.Fatalf("seed %d: before %v there is %v of %v", seed, probe, n, want)
		}
		at, _ = slices.BinarySearchFunc(want, orderRow{probe.key, 0}, orderRow.compare)
		switch n := o.from([]byte(probe.key)); {
		case n == nil && at < len(want), n != nil && (at == len(want) || rowOf(n) != want[at]):
			t.Fatalf("seed %d: from %v there is %v of %v", seed, probe, n, want)
		}
	}
	var forward, backward []orderRow
	for n := o.from(nil); n != nil; n = n.next[0].Load() {
		forward = append(forward, rowOf(n))
	}
	for n := o.last(); n != nil; n = o.previous(n) {
		backward = append(backward, rowOf(n))
	}
	slices.Reverse(backward)
	if !slices.Equal(forward, want) || !slices.Equal(backward, want) {
		t.Fatalf("seed %d: %d rows forward, %d backward, want %d", seed, len(forward), len(backward), len(want))
	}
}

func rowOf(n *node) orderRow { return orderRow{string(n.key), n.segment} }

// TestOrderConcurrent: readers that walk while rows are inserted miss nothing that was there when they began, in either
// direction. Run it with -race.
func TestOrderConcurrent(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	o := newOrder()
	perm := rand.Perm(rows)
	var inserted atomic.Int64
	var wg sync.WaitGroup
	key := func(i int) []byte { return fmt.Appendf(nil, "%08d", i) }
	for reader := range 4 {
		wg.Go(func() {
			for {
				n := int(inserted.Load())
				there := make(map[string]bool, n)
				for _, i := range perm[:n] {
					there[string(key(i))] = true
				}
				var last []byte
				step := func(nd *node) *node { return nd.next[0].Load() }
				at := o.from(nil)
				if reader%2 == 1 {
					at, step = o.last(), o.previous
				}
				for ; at != nil; at = step(at) {
					if c := bytes.Compare(at.key, last); last != nil && (c == 0 || c < 0 != (reader%2 == 1)) {
						t.Errorf("%q comes after %q", at.key, last)
						return
					}
					last = at.key
					delete(there, string(last))
				}
				if len(there) > 0 {
					t.Errorf("%d of %d rows were missed", len(there), n)
					return
				}
				if n == rows {
					return
				}
			}
		})
	}
	for i, r := range perm {
		o.insert(orderEntry(orderRow{key: string(key(r))}))
		inserted.Store(int64(i + 1))
	}
	wg.Wait()
}
