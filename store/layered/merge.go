package layered

import (
	"bytes"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// merge reads several layers in one order; of the layers that say something about a key the newest counts.
type merge struct {
	kind   store.Kind
	sp     span
	tick   uint64
	tables []tableCursor // newest first
	engine engineCursor
	err    error
}

// tableCursor walks the sorted entries of a table that have a version at the merge's tick.
type tableCursor struct {
	rest []*entry // not yet walked, in key order
	key  []byte   // nil at the end
	ver  *version
}

// engineCursor walks an engine.
type engineCursor struct {
	it  engine.Iterator // nil when the merge reads no engine
	key []byte          // nil at the end
}

// row is what the newest layer says about a key. Its slices are valid until the next step.
type row struct {
	key []byte
	ver *version // nil: the value is the engine's
}

// add adds the next older table.
func (m *merge) add(entries []*entry) {
	if m.sp.empty {
		return
	}
	m.tables = append(m.tables, tableCursor{rest: within(entries, m.sp.lo, m.sp.hi)})
	m.step(&m.tables[len(m.tables)-1])
}

// addEngine adds the lowest layer. The merge closes it.
func (m *merge) addEngine(it engine.Iterator) {
	m.engine.it = it
	m.engine.step()
}

// next returns the next row, deletes included; false at the end and after an error.
func (m *merge) next() (row, bool) {
	key := m.engine.key
	best := -1
	for i := range m.tables {
		k := m.tables[i].key
		if k == nil {
			continue
		}
		if key == nil || m.before(k, key) {
			key, best = k, i
		} else if best < 0 && bytes.Equal(k, key) {
			best = i // a table is newer than the engine
		}
	}
	if m.engine.it != nil {
		if err := m.engine.it.Err(); err != nil {
			// The engine's end is not known, so neither is the next key.
			m.err = err
			return row{}, false
		}
	}
	if key == nil {
		return row{}, false
	}
	if best < 0 {
		return row{key: key}, true
	}
	return row{key: key, ver: m.tables[best].ver}, true
}

// pass moves every layer beyond the row that next returned.
func (m *merge) pass(r row) {
	for i := range m.tables {
		if c := &m.tables[i]; c.key != nil && bytes.Equal(c.key, r.key) {
			m.step(c)
		}
	}
	// Last, for r.key may be the engine's own.
	if m.engine.key != nil && bytes.Equal(m.engine.key, r.key) {
		m.engine.step()
	}
}

func (m *merge) before(a, b []byte) bool {
	if m.sp.reverse {
		return bytes.Compare(a, b) > 0
	}
	return bytes.Compare(a, b) < 0
}

// entry copies a row for the caller; false when the row is a delete.
func (m *merge) entry(r row) (store.Entry, bool, error) {
	if r.ver != nil {
		v, err := r.ver.value(m.kind)
		if err != nil {
			return store.Entry{}, false, nil //nolint:nilerr // the only error is that the version is a delete
		}
		return store.Entry{Key: bytes.Clone(r.key), Value: v}, true, nil
	}
	raw := m.engine.it.Value()
	b := make([]byte, len(r.key)+len(raw))
	copy(b, r.key)
	copy(b[len(r.key):], raw)
	v, err := stored(m.kind, b[len(r.key):])
	return store.Entry{Key: b[:len(r.key):len(r.key)], Value: v}, true, err
}

func (m *merge) close() {
	if m.engine.it != nil {
		m.engine.it.Close()
	}
	m.tables, m.engine.key = nil, nil
}

// step moves a table's cursor to the next entry that has a version.
func (m *merge) step(c *tableCursor) {
	for len(c.rest) > 0 {
		var e *entry
		if m.sp.reverse {
			e, c.rest = c.rest[len(c.rest)-1], c.rest[:len(c.rest)-1]
		} else {
			e, c.rest = c.rest[0], c.rest[1:]
		}
		if v := e.at(m.tick); v != nil {
			c.key, c.ver = e.key, v
			return
		}
	}
	c.key, c.ver = nil, nil
}

func (c *engineCursor) step() {
	if c.it.Next() {
		c.key = c.it.Key()
	} else {
		c.key = nil
	}
}
