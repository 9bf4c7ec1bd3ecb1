package streams

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// finality is what Suppress must know of an aggregation of windows that its table is made of. K is the table's type of keys.
type finality[K any] struct {
	// closes is the stream time from which a key changes no more.
	closes func(key K) int64
	// time decides about that.
	time *sharedTime
	// spec is the store, which is declared when the topology is built.
	spec *store.Spec
}

// finalitiesOf finds them for the keys of a table: in what the table is made of, as far as that has the same keys.
func finalitiesOf[K any](n *graphNode) []finality[K] {
	if f, ok := n.final.(finality[K]); ok {
		return []finality[K]{f}
	}
	var all []finality[K]
	for _, p := range n.parents {
		for _, f := range finalitiesOf[K](p) {
			if !slices.ContainsFunc(all, func(g finality[K]) bool { return g.time == f.time }) {
				all = append(all, f)
			}
		}
	}
	return all
}

// StoreOfWindows is the store that a table of windows or sessions is kept in, or was made from: its kind, the size of its windows, and how
// long it keeps them, for another store that holds something of each. ok is false for a table of something else. What is put behind
// the table later (UntilWindowCloses behind a join of several) may lengthen the retention.
func StoreOfWindows[K, V any](t *Table[serde.Windowed[K], V]) (spec store.Spec, ok bool) {
	all := finalitiesOf[serde.Windowed[K]](t.node)
	if len(all) == 0 {
		return store.Spec{}, false
	}
	return *all[0].spec, true
}

// together makes several of them one: a key changes no more when none of them changes it. They share a time, else one could change what is
// final for what is behind another one that is ahead; none has a record cache, which would let go of all changes of one before those of the
// next; and each keeps its windows as long as another one may change them, for a join reads them then.
func together[K any](all []finality[K]) (closes func(key K) int64) {
	var kept time.Duration
	for _, f := range all {
		f.time.join(all[0].time)
		kept = max(kept, f.spec.Retention)
	}
	if len(all) > 1 {
		for _, f := range all {
			f.spec.Caching, f.spec.Retention = false, kept
		}
	}
	return func(key K) int64 {
		at := all[0].closes(key)
		for _, f := range all[1:] {
			at = max(at, f.closes(key))
		}
		return at
	}
}

// sharedTime is the stream time of an operator while the topology is put together: that of its store's name, or of another operator.
type sharedTime struct {
	name store.Name
	as   *sharedTime
}

// join makes both one, of which the other is the first.
func (t *sharedTime) join(other *sharedTime) {
	if a, b := t.first(), other.first(); a != b {
		a.as = b
	}
}

func (t *sharedTime) first() *sharedTime {
	for t.as != nil {
		t = t.as
	}
	return t
}

// in is the time in a task.
func (t *sharedTime) in(ctx *processor.Context) (*processor.ObservedTime, error) {
	return ctx.ObservedTime(string(t.first().name))
}
