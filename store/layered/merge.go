package layered

import (
	"bytes"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// merge reads several layers in one order; of the layers that say something about a row the newest counts.
type merge struct {
	rowScan
	kind   store.Kind
	tick   uint64
	stop   func() error  // asked now and then while rows are passed over
	tables []tableCursor // newest first
	engine engineRows
	err    error
	passed int
}

// newMerge begins a merge without layers.
func newMerge(kind store.Kind, sc rowScan, tick uint64) *merge {
	return &merge{kind: kind, rowScan: sc, tick: tick, stop: func() error { return nil }}
}

// tableCursor walks the entries of a table, or of a run of them, that have a version at the merge's tick, in the order of their rows.
type tableCursor struct {
	rest  []*entry // not yet walked; used where the table has no order
	order *order
	at    *node // not yet walked, with order

	key     []byte // nil at the end
	segment engine.Segment
	ver     *version
}

// row is what the newest layer says about a row. Its slices are valid until the next step.
type row struct {
	key     []byte
	segment engine.Segment
	ver     *version // nil: the value is the engine's
}

// add adds the next older table, of which the first n entries count.
func (m *merge) add(t *table, n int) {
	if t.order != nil {
		m.addOrder(t.order)
	} else if !m.sp.empty {
		m.addSorted(t.sorted(n))
	}
}

// addNow is add for the writer.
func (m *merge) addNow(t *table, n int) {
	if t.order != nil {
		m.addOrder(t.order)
	} else if !m.sp.empty {
		for _, run := range t.sortedNow(n) {
			m.addSorted(run)
		}
	}
}

func (m *merge) addSorted(entries []*entry) {
	m.start(tableCursor{rest: within(entries, m.sp.lo, m.sp.hi)})
}

func (m *merge) addOrder(o *order) {
	if m.sp.empty {
		return
	}
	c := tableCursor{order: o}
	switch {
	case !m.sp.reverse:
		c.at = o.from(m.sp.lo)
	case m.sp.hi == nil:
		c.at = o.last()
	default:
		c.at = o.before(m.sp.hi, 0)
	}
	m.start(c)
}

func (m *merge) start(c tableCursor) {
	m.tables = append(m.tables, c)
	m.step(&m.tables[len(m.tables)-1])
}

// addEngine adds the lowest layer. The merge closes it, also when there is an error.
func (m *merge) addEngine(snap engine.Snapshot, id engine.StoreID) error {
	m.engine = engineRows{merge: m, snap: snap, id: id, heads: segmentHeap{merge: m}}
	return m.engine.open()
}

// next returns the next row, deletes included; false at the end and after an error.
func (m *merge) next() (row, bool) {
	if m.err != nil {
		return row{}, false
	}
	r := row{key: m.engine.key, segment: m.engine.segment}
	for i := range m.tables {
		c := &m.tables[i]
		if c.key == nil {
			continue
		}
		// A table is newer than the engine, and than the tables after it.
		if order := m.compare(c.key, c.segment, r.key, r.segment); r.key == nil || order < 0 || order == 0 && r.ver == nil {
			r = row{key: c.key, segment: c.segment, ver: c.ver}
		}
	}
	return r, r.key != nil
}

// pass moves every layer beyond the row that next returned.
func (m *merge) pass(r row) {
	for i := range m.tables {
		if c := &m.tables[i]; c.key != nil && c.segment == r.segment && bytes.Equal(c.key, r.key) {
			m.step(c)
		}
	}
	// Last, for r.key may be the engine's own.
	if m.engine.key != nil && m.engine.segment == r.segment && bytes.Equal(m.engine.key, r.key) {
		m.engine.step()
	}
}

// compare compares rows in the direction of the scan.
func (m *merge) compare(key []byte, segment engine.Segment, other []byte, otherSegment engine.Segment) int {
	c := compareRows(key, segment, other, otherSegment)
	if m.sp.reverse {
		return -c
	}
	return c
}

// entry copies a row for the caller into e, key and value together; false when the row is a delete. An entry that it
// returned instead would cost a piece of heap per row, because of shape.
func (m *merge) entry(r row, e *store.Entry) (live bool, err error) {
	var raw []byte
	switch {
	case r.ver == nil:
		raw = m.engine.value()
	case r.ver.live:
		raw = r.ver.data
	default:
		return false, nil
	}
	n := len(r.key)
	b := make([]byte, n+len(raw))
	copy(b, r.key)
	copy(b[n:], raw)
	v := store.Value{Data: b[n:], Timestamp: noTimestamp}
	switch {
	case r.ver == nil:
		if v, err = stored(m.kind, v.Data); err != nil {
			return false, err
		}
	case timestamped(m.kind):
		v.Timestamp = r.ver.timestamp
	}
	e.Key, e.Value, e.Start, e.End = b[:n:n], v, 0, 0
	e.Cursor = e.Key
	if m.shape == nil {
		return true, nil
	}
	return true, m.shape.split(e)
}

func (m *merge) close() {
	m.engine.close()
	m.tables = nil
}

// step moves a table's cursor to the next entry that has a version and that the scan selects.
func (m *merge) step(c *tableCursor) {
	for m.err == nil {
		e := c.pull(m)
		if e == nil {
			break
		}
		if v := e.at(m.tick); v != nil && m.selects(e.segment, e.key) {
			c.key, c.segment, c.ver = e.key, e.segment, v
			return
		}
	}
	c.key, c.ver = nil, nil
}

// pull takes the next entry, whatever it holds; nil at the end of the range.
func (c *tableCursor) pull(m *merge) *entry {
	if c.order == nil {
		n := len(c.rest)
		switch {
		case n == 0:
			return nil
		case m.sp.reverse:
			e := c.rest[n-1]
			c.rest = c.rest[:n-1]
			return e
		default:
			e := c.rest[0]
			c.rest = c.rest[1:]
			return e
		}
	}
	n := c.at
	switch {
	case n == nil:
		return nil
	case m.sp.reverse:
		if m.sp.lo != nil && bytes.Compare(n.key, m.sp.lo) < 0 {
			return nil
		}
		c.at = c.order.previous(n)
	default:
		if m.sp.hi != nil && bytes.Compare(n.key, m.sp.hi) >= 0 {
			return nil
		}
		c.at = n.next[0].Load()
	}
	return n.entry
}

// selects reports whether the scan wants a row. Bounds let rows in that it does not want, so it may be long between two
// that it does.
func (m *merge) selects(segment engine.Segment, key []byte) bool {
	if m.shape == nil {
		return true
	}
	const between = 1024
	if m.passed++; m.passed%between == 0 {
		if m.err = m.stop(); m.err != nil {
			return false
		}
	}
	ok, err := m.shape.selects(segment, key)
	if err != nil {
		m.err = err
	}
	return ok
}
