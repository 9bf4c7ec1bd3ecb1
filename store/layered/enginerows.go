package layered

import (
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
	heap  []*segmentCursor // those that are at a row, the next row first

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
	for len(e.later) > 0 && e.merge.err == nil && (!e.merge.inTurn || len(e.heap) == 0) {
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
			e.heap = append(e.heap, c)
			e.up(len(e.heap) - 1)
		}
	}
	e.settle()
}

// step moves beyond the current row.
func (e *engineRows) step() {
	if len(e.heap) == 0 {
		return
	}
	if !e.advance(e.heap[0]) {
		last := len(e.heap) - 1
		e.heap[0], e.heap[last] = e.heap[last], nil
		e.heap = e.heap[:last]
	}
	e.down(0)
	if len(e.heap) == 0 {
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
	if len(e.heap) == 0 || e.merge.err != nil {
		e.key = nil
		return
	}
	e.key, e.segment = e.heap[0].key, e.heap[0].segment
}

// fail ends the merge: the end of the segment is not known, so neither is the next row.
func (e *engineRows) fail(err error) {
	if e.merge.err == nil {
		e.merge.err = err
	}
}

// value of the current row.
func (e *engineRows) value() []byte { return e.heap[0].it.Value() }

func (e *engineRows) close() {
	for _, c := range e.heap {
		c.it.Close()
	}
	e.heap, e.later, e.key = nil, nil, nil
}

func (e *engineRows) less(i, j int) bool {
	a, b := e.heap[i], e.heap[j]
	return e.merge.compare(a.key, a.segment, b.key, b.segment) < 0
}

func (e *engineRows) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !e.less(i, parent) {
			return
		}
		e.heap[i], e.heap[parent] = e.heap[parent], e.heap[i]
		i = parent
	}
}

func (e *engineRows) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(e.heap) {
			return
		}
		if right := child + 1; right < len(e.heap) && e.less(right, child) {
			child = right
		}
		if !e.less(child, i) {
			return
		}
		e.heap[i], e.heap[child] = e.heap[child], e.heap[i]
		i = child
	}
}
