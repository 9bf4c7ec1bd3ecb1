package layered

import (
	"bytes"
	"slices"
	"sort"
)

// sorted returns entries of the table in the order of their keys: at least the first n, perhaps more. What a reader may
// not see has no version for it. The order is kept, so entries are sorted once and merged in; a table whose keys do not
// grow costs a scan nothing.
func (t *table) sorted(n int) []*entry {
	if idx := t.index.Load(); idx != nil && len(*idx) >= n {
		return *idx
	}
	t.indexMu.Lock() // whoever sorts now saves the others the work
	defer t.indexMu.Unlock()
	return t.sort(n)
}

// sortedNow is sorted for the writer, which does not wait for a reader that is sorting.
func (t *table) sortedNow(n int) []*entry {
	if idx := t.index.Load(); idx != nil && len(*idx) >= n {
		return *idx
	}
	if !t.indexMu.TryLock() {
		return t.extend(n)
	}
	defer t.indexMu.Unlock()
	return t.sort(n)
}

// sort extends the index to n entries. t.indexMu is held.
func (t *table) sort(n int) []*entry {
	if n == 0 {
		return nil
	}
	idx := t.extend(n)
	t.index.Store(&idx)
	return idx
}

// extend merges the entries up to n into those already sorted.
func (t *table) extend(n int) []*entry {
	var old []*entry
	if idx := t.index.Load(); idx != nil {
		old = *idx
	}
	if len(old) >= n {
		return old
	}
	fresh := make([]*entry, 0, n-len(old))
	for i := len(old); i < n; i++ {
		fresh = append(fresh, t.entry(i))
	}
	slices.SortFunc(fresh, func(a, b *entry) int { return bytes.Compare(a.key, b.key) })
	if len(old) == 0 {
		return fresh
	}
	out := make([]*entry, 0, n)
	for len(old) > 0 && len(fresh) > 0 {
		if bytes.Compare(old[0].key, fresh[0].key) < 0 {
			out, old = append(out, old[0]), old[1:]
		} else {
			out, fresh = append(out, fresh[0]), fresh[1:]
		}
	}
	return append(append(out, old...), fresh...)
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
