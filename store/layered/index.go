package layered

import (
	"bytes"
	"slices"
	"sort"
)

// tableIndex is the first n entries of a table in the order of their keys, in runs. Immutable.
//
// Who looks at all of it has it in one run. A writer that scans while its table grows, as one that holds records back does, would have to copy
// the whole order for each scan; so it adds a run of what is new, and merges those of a similar length. Each run is more than runRatio
// times as long as the next, so there are few, and an entry is copied a number of times that grows with the logarithm of the table.
type tableIndex struct {
	n    int
	runs [][]*entry
}

const runRatio = 4

// sorted returns entries of the table in the order of their keys: at least the first n, perhaps more. What a reader may
// not see has no version for it. The order is kept, so entries are sorted once and merged in; a table whose keys do not
// grow costs a scan nothing.
func (t *table) sorted(n int) []*entry {
	if n == 0 {
		return nil
	}
	if idx := t.index.Load(); idx != nil && idx.n >= n && len(idx.runs) == 1 {
		return idx.runs[0]
	}
	t.indexMu.Lock() // whoever sorts now saves the others the work
	defer t.indexMu.Unlock()
	idx := t.extend(n).whole()
	t.index.Store(idx)
	return idx.runs[0]
}

// sortedNow is sorted in runs, for the writer, which does not wait for a reader that is sorting.
func (t *table) sortedNow(n int) [][]*entry {
	if n == 0 {
		return nil
	}
	if idx := t.index.Load(); idx != nil && idx.n >= n {
		return idx.runs
	}
	if !t.indexMu.TryLock() {
		return t.extend(n).runs
	}
	defer t.indexMu.Unlock()
	idx := t.extend(n)
	t.index.Store(idx)
	return idx.runs
}

// extend adds the entries up to n to those already sorted.
func (t *table) extend(n int) *tableIndex {
	var old tableIndex
	if idx := t.index.Load(); idx != nil {
		old = *idx
	}
	if old.n >= n {
		return &old
	}
	fresh := make([]*entry, 0, n-old.n)
	for i := old.n; i < n; i++ {
		fresh = append(fresh, t.entry(i))
	}
	slices.SortFunc(fresh, func(a, b *entry) int { return bytes.Compare(a.key, b.key) })
	rest := old.runs
	for len(rest) > 0 && len(rest[len(rest)-1]) <= runRatio*len(fresh) {
		fresh, rest = mergeRuns(rest[len(rest)-1], fresh), rest[:len(rest)-1]
	}
	return &tableIndex{n: n, runs: append(slices.Clip(rest), fresh)}
}

// whole is the index in one run.
func (idx *tableIndex) whole() *tableIndex {
	if len(idx.runs) == 1 {
		return idx
	}
	var all []*entry
	for _, run := range slices.Backward(idx.runs) { // the shortest first
		all = mergeRuns(run, all)
	}
	return &tableIndex{n: idx.n, runs: [][]*entry{all}}
}

// mergeRuns merges two runs, which have no key in common, into a third.
func mergeRuns(a, b []*entry) []*entry {
	out := make([]*entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if bytes.Compare(a[0].key, b[0].key) < 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// within cuts sorted entries to the keys from lo, inclusive, to hi, exclusive; nil is open.
func within(entries []*entry, lo, hi []byte) []*entry {
	if hi != nil {
		entries = entries[:sort.Search(len(entries), func(i int) bool { return bytes.Compare(entries[i].key, hi) >= 0 })]
	}
	if lo != nil {
		entries = entries[sort.Search(len(entries), func(i int) bool { return bytes.Compare(entries[i].key, lo) >= 0 }):]
	}
	return entries
}
