package server

import (
	"bytes"
	"cmp"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
)

// placeOf is where a row is in the order of its scan.
func placeOf(r *statemeshv1.Row) []byte {
	if c := r.GetCursor(); len(c) > 0 {
		return c
	}
	return r.GetKey()
}

// rowOrder compares rows in the order of a scan: by place, in its direction, then by partition.
type rowOrder func(a, b *statemeshv1.Row) int

func ascending(a, b *statemeshv1.Row) int {
	if c := bytes.Compare(placeOf(a), placeOf(b)); c != 0 {
		return c
	}
	return cmp.Compare(a.GetPartition(), b.GetPartition())
}

func descending(a, b *statemeshv1.Row) int {
	if c := bytes.Compare(placeOf(b), placeOf(a)); c != 0 {
		return c
	}
	return cmp.Compare(a.GetPartition(), b.GetPartition())
}

// merge merges cursors in order. The heap holds those that stand on a row, the least one first.
type merge struct {
	order   rowOrder
	cursors []cursor // all, to be closed
	heap    []cursor
	moved   bool // the first of the heap stands on a row that was handed out
	stopped statemeshv1.EndReason
}

// start puts every cursor on its first row.
func (m *merge) start() error {
	for _, c := range m.cursors {
		if err := m.settle(c); err != nil {
			return err
		}
	}
	return nil
}

// settle moves c on and puts it into the heap, unless it is at its end.
func (m *merge) settle(c cursor) error {
	ok, err := c.next()
	switch {
	case err != nil:
		return err
	case ok:
		m.heap = append(m.heap, c)
		m.up(len(m.heap) - 1)
	case c.end() != statemeshv1.EndReason_END_REASON_COMPLETE:
		m.stopped = c.end()
	}
	return nil
}

// next returns the next row, nil at the end: see end. A cursor that stops early stops the merge, because rows that it
// still has might come before those of the others.
func (m *merge) next() (*statemeshv1.Row, error) {
	if m.moved {
		m.moved = false
		c := m.heap[0]
		ok, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case ok:
			m.down(0)
		default:
			if c.end() != statemeshv1.EndReason_END_REASON_COMPLETE {
				m.stopped = c.end()
			}
			last := len(m.heap) - 1
			m.heap[0] = m.heap[last]
			m.heap = m.heap[:last]
			m.down(0)
		}
	}
	if m.stopped != statemeshv1.EndReason_END_REASON_UNSPECIFIED || len(m.heap) == 0 {
		return nil, nil //nolint:nilnil // the end is no error
	}
	m.moved = true
	return m.heap[0].row(), nil
}

// end is why there are no more rows.
func (m *merge) end() statemeshv1.EndReason {
	if m.stopped != statemeshv1.EndReason_END_REASON_UNSPECIFIED {
		return m.stopped
	}
	return statemeshv1.EndReason_END_REASON_COMPLETE
}

// worths says what the rows of all cursors are worth.
func (m *merge) worths() []worth {
	var out []worth
	for _, c := range m.cursors {
		out = append(out, c.worths()...)
	}
	return out
}

func (m *merge) close() {
	for _, c := range m.cursors {
		c.close()
	}
}

func (m *merge) less(i, j int) bool { return m.order(m.heap[i].row(), m.heap[j].row()) < 0 }

func (m *merge) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !m.less(i, parent) {
			return
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

func (m *merge) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if m.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}
