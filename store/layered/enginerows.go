package layered

import (
	"container/heap"
	"slices"

	"github.com/statemesh/statemesh/store/engine"
)

// engineRows walks the segments of a store in an engine in the order of the rows' keys: a heap of iterators, one per
// segment, or one after the other where the scan says that this is the same.
type engineRows struct {
	merge *merge
	snap  engine.Snapshot
	id    engine.StoreID

	later []engine.Segment // not yet opened
	heads segmentHeap      // those that are at a row

	key     []byte // nil at the end
	segment engine.Segment
}

// segmentCursor walks one segment.
type segmentCursor struct {
	it      engine.Iterator
	segment engine.Segment
	key     []byte
}

// open goes to the first row.
func (e *engineRows) open() error {
	e.later = e.merge.segments
	if e.merge.sp.reverse {
		e.later = slices.Clone(e.later)
		slices.Reverse(e.later)
	}
	e.more()
	return e.merge.err
}

// more opens the segments whose turn has come: all of them, or the next that has a row.
func (e *engineRows) more() {
	for len(e.later) > 0 && e.merge.err == nil && (!e.merge.inTurn || len(e.heads.cursors) == 0) {
		segment := e.later[0]
		e.later = e.later[1:]
		sp := e.merge.sp
		it, err := e.snap.Iterate(engine.Range{Store: e.id, Segment: segment, From: sp.lo, To: sp.hi, Reverse: sp.reverse})
		if err != nil {
			e.fail(err)
			return
		}
		c := &segmentCursor{it: it, segment: segment}
		if e.advance(c) {
			heap.Push(&e.heads, c)
		}
	}
	e.settle()
}

// step moves beyond the current row.
func (e *engineRows) step() {
	if len(e.heads.cursors) == 0 {
		return
	}
	if !e.advance(e.heads.cursors[0]) {
		heap.Pop(&e.heads)
	} else if len(e.heads.cursors) > 1 {
		heap.Fix(&e.heads, 0)
	}
	if len(e.heads.cursors) == 0 {
		e.more()
		return
	}
	e.settle()
}

// advance moves c to its next row that the scan selects; at the end it closes c.
func (e *engineRows) advance(c *segmentCursor) bool {
	for c.it.Next() {
		if c.key = c.it.Key(); e.merge.selects(c.segment, c.key) {
			return true
		}
		if e.merge.err != nil {
			break
		}
	}
	if err := c.it.Err(); err != nil {
		e.fail(err)
	}
	c.it.Close()
	return false
}

// settle makes the first of the heap the current row.
func (e *engineRows) settle() {
	if len(e.heads.cursors) == 0 || e.merge.err != nil {
		e.key = nil
		return
	}
	e.key, e.segment = e.heads.cursors[0].key, e.heads.cursors[0].segment
}

// fail ends the merge: the end of the segment is not known, so neither is the next row.
func (e *engineRows) fail(err error) {
	if e.merge.err == nil {
		e.merge.err = err
	}
}

// value of the current row.
func (e *engineRows) value() []byte { return e.heads.cursors[0].it.Value() }

func (e *engineRows) close() {
	for _, c := range e.heads.cursors {
		c.it.Close()
	}
	e.heads.cursors, e.later, e.key = nil, nil, nil
}

// segmentHeap is a heap.Interface over cursors that are at a row, the next row of the merge first.
type segmentHeap struct {
	merge   *merge
	cursors []*segmentCursor
}

func (h *segmentHeap) Len() int { return len(h.cursors) }

func (h *segmentHeap) Less(i, j int) bool {
	a, b := h.cursors[i], h.cursors[j]
	return h.merge.compare(a.key, a.segment, b.key, b.segment) < 0
}

func (h *segmentHeap) Swap(i, j int) { h.cursors[i], h.cursors[j] = h.cursors[j], h.cursors[i] }

func (h *segmentHeap) Push(c any) { h.cursors = append(h.cursors, c.(*segmentCursor)) }

func (h *segmentHeap) Pop() any {
	last := len(h.cursors) - 1
	c := h.cursors[last]
	h.cursors[last] = nil
	h.cursors = h.cursors[:last]
	return c
}
