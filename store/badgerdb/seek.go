package badgerdb

import "bytes"

// seek goes to the first key of the range in its direction and notes where it ends. Badger's reverse seek goes to the
// last key at or below its argument, so an exclusive upper bound is sought itself and passed when it is there; the end of
// the whole prefix is the next prefix, which is never a key.
func (it *iterator) seek() {
	full := func(key []byte) []byte {
		p := make([]byte, 0, prefixBytes+len(key))
		return append(appendSegment(p, it.snap.space.id, it.rng.Store, it.rng.Segment), key...)
	}
	if !it.rng.Reverse {
		if it.rng.To != nil {
			it.end = full(it.rng.To)
		}
		it.it.Seek(full(it.rng.From))
		return
	}
	if it.rng.From != nil {
		it.end = full(it.rng.From)
	}
	if it.rng.To == nil {
		it.it.Seek(successor(full(nil)))
		return
	}
	to := full(it.rng.To)
	it.it.Seek(to)
	if it.it.Valid() && bytes.Equal(it.it.Item().Key(), to) {
		it.it.Next()
	}
}

// before reports whether key lies before the end of the range: below an exclusive upper bound, or at or above an
// inclusive lower one.
func (it *iterator) before(key []byte) bool {
	if it.rng.Reverse {
		return bytes.Compare(key, it.end) >= 0
	}
	return bytes.Compare(key, it.end) < 0
}

// common is the prefix that a and b have in common, and with them every key between them.
func common(a, b []byte) []byte {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return a[:i]
		}
	}
	return a[:n]
}

// successor is the next prefix of the same length. The first byte is never ff, so there is one.
func successor(prefix []byte) []byte {
	out := bytes.Clone(prefix)
	for i := len(out) - 1; i >= 0; i-- {
		out[i]++
		if out[i] != 0 {
			break
		}
	}
	return out
}
