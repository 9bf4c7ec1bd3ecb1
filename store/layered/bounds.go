package layered

import (
	"bytes"

	"github.com/statemesh/statemesh/store"
)

// span is a scan as the layers read it: lo inclusive, hi exclusive, nil open.
type span struct {
	lo, hi  []byte
	reverse bool
	empty   bool
}

// spanOf translates the bounds of a scan. *store.InvalidRequestError when they contradict each other.
func spanOf(s store.Scan) (span, error) {
	sp := span{lo: s.From, reverse: s.Reverse}
	if s.Prefix != nil {
		if s.From != nil || s.To != nil {
			return span{}, &store.InvalidRequestError{Field: "prefix", Reason: "may not be combined with from or to"}
		}
		sp.lo, sp.hi = s.Prefix, afterPrefix(s.Prefix)
	}
	if s.To != nil {
		sp.hi = next(s.To)
	}
	// The caller may go on to use its slices; the scan is read later.
	sp.lo, sp.hi = bytes.Clone(sp.lo), bytes.Clone(sp.hi)
	return sp.behind(s.After), nil
}

// behind cuts sp to what lies behind a cursor.
func (sp span) behind(after []byte) span {
	switch {
	case after == nil:
	case sp.reverse:
		if sp.hi == nil || bytes.Compare(after, sp.hi) < 0 {
			sp.hi = bytes.Clone(after)
		}
	case bytes.Compare(after, sp.lo) >= 0:
		sp.lo = next(after)
	}
	sp.empty = sp.hi != nil && bytes.Compare(sp.lo, sp.hi) >= 0
	return sp
}

// rowSpan is the span of rows from lo to hi, both inclusive and not used elsewhere, nil open, behind the cursor after.
func rowSpan(lo, hi, after []byte, reverse bool) span {
	sp := span{lo: lo, reverse: reverse}
	if hi != nil {
		sp.hi = append(hi, 0)
	}
	return sp.behind(after)
}

// next is the smallest key above key.
func next(key []byte) []byte { return append(append(make([]byte, 0, len(key)+1), key...), 0) }

// afterPrefix is the smallest key above every key that starts with prefix, nil when there is none. Upstream keeps the
// length while it carries, so its bound for 61 ff is 62 00 and lets the key 62 in; trailing ff must go instead.
func afterPrefix(prefix []byte) []byte {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	if n == 0 {
		return nil
	}
	end := bytes.Clone(prefix[:n])
	end[n-1]++
	return end
}
