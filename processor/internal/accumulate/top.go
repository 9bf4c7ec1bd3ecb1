package accumulate

import (
	"slices"
	"time"
)

// top is the state of top_k: the values with the greatest by.
type top struct {
	by      kind // of by, which the first entry decides; 0 before
	entries []entry
}

type entry struct{ value, by value }

// byKind is the kind of an order; 0 for what orders nothing.
func byKind(x any) kind {
	switch x.(type) {
	case int64:
		return kindInt
	case float64:
		return kindDouble
	case time.Time:
		return kindTimestamp
	case time.Duration:
		return kindDuration
	default:
		return 0
	}
}

// check returns why by cannot order an entry; empty when it can.
func (t *top) check(by any) (reason string) {
	k := byKind(by)
	if k == 0 || t.by != 0 && t.by != k {
		return ReasonType
	}
	return k.check(by)
}

// add puts a value in, with an order that was checked, or gives it that order.
func (t *top) add(c *column, v value, by any) {
	t.by = byKind(by)
	t.put(c, entry{v, valueOf(by)})
}

func (t *top) put(c *column, e entry) {
	if i := t.find(c, e.value); i >= 0 {
		t.entries = slices.Delete(t.entries, i, i+1)
	}
	at, _ := slices.BinarySearchFunc(t.entries, e, func(a, b entry) int { return t.compare(c, a, b) })
	if at == c.k {
		return
	}
	if len(t.entries) == c.k {
		t.entries = t.entries[:c.k-1]
	}
	t.entries = slices.Insert(t.entries, at, e)
}

// find returns where a value is, -1 for nowhere.
func (t *top) find(c *column, v value) int {
	return slices.IndexFunc(t.entries, func(e entry) bool { return c.kind.compare(e.value, v) == 0 })
}

// compare is the order of entries: the greatest by first, of equal ones the least value.
func (t *top) compare(c *column, a, b entry) int {
	if order := t.by.compare(b.by, a.by); order != 0 {
		return order
	}
	return c.kind.compare(a.value, b.value)
}

// merge takes over the entries of another one, and of a value that both have the greater by: which of them came last is not known.
// Orders of different kinds cannot be merged.
func (t *top) merge(c *column, other *top) (reason string) {
	switch {
	case other.by == 0:
		return ""
	case t.by == 0:
		t.by = other.by
	case t.by != other.by:
		return ReasonType
	}
	for _, e := range other.entries {
		if i := t.find(c, e.value); i < 0 || t.by.compare(e.by, t.entries[i].by) > 0 {
			t.put(c, e)
		}
	}
	return ""
}

// appendJSON appends the list of a result.
func (t *top) appendJSON(dst []byte, c *column) []byte {
	dst = append(dst, '[')
	for i, e := range t.entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"value":`...)
		dst = c.kind.appendJSON(dst, e.value)
		dst = append(dst, `,"by":`...)
		dst = t.by.appendJSON(dst, e.by)
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
