package server

import (
	"bytes"
	"cmp"
	"container/heap"

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

// merge merges cursors in order.
type merge struct {
	cursors []cursor // all, to be closed
	heads   cursorHeap
	moved   bool // the first of heads stands on a row that was handed out
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
		heap.Push(&m.heads, c)
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
		c := m.heads.cursors[0]
		ok, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case ok:
			heap.Fix(&m.heads, 0)
		default:
			if c.end() != statemeshv1.EndReason_END_REASON_COMPLETE {
				m.stopped = c.end()
			}
			heap.Pop(&m.heads)
		}
	}
	if m.stopped != statemeshv1.EndReason_END_REASON_UNSPECIFIED || len(m.heads.cursors) == 0 {
		return nil, nil //nolint:nilnil // the end is no error
	}
	m.moved = true
	return m.heads.cursors[0].row(), nil
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

// cursorHeap is a heap.Interface over cursors that stand on a row, the least one first.
type cursorHeap struct {
	order   rowOrder
	cursors []cursor
}

func (h *cursorHeap) Len() int { return len(h.cursors) }

func (h *cursorHeap) Less(i, j int) bool { return h.order(h.cursors[i].row(), h.cursors[j].row()) < 0 }

func (h *cursorHeap) Swap(i, j int) { h.cursors[i], h.cursors[j] = h.cursors[j], h.cursors[i] }

func (h *cursorHeap) Push(c any) { h.cursors = append(h.cursors, c.(cursor)) }

func (h *cursorHeap) Pop() any {
	last := len(h.cursors) - 1
	c := h.cursors[last]
	h.cursors[last] = nil
	h.cursors = h.cursors[:last]
	return c
}
