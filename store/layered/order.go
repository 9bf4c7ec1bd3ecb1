package layered

import (
	"bytes"
	"cmp"
	"sync/atomic"

	"github.com/statemesh/statemesh/store/engine"
)

// order is a skip list over the entries of a table: always sorted, for stores whose writer scans at every record. One
// goroutine inserts; any number read without locks. Nodes are only added, so a reader may stand on one for as long as it
// likes. What a reader may not see has no version for it, so it does not matter whether it meets a node that was inserted
// after it began.
type order struct {
	head   node
	height atomic.Int32 // of the tallest node

	// Writer only.
	random uint64
	nodes  []node
	links  []atomic.Pointer[node]
}

// maxHeight is enough for 4^12 entries; more only make the top level longer.
const maxHeight = 12

// orderCost is what an entry costs in an order: its node and 4/3 links.
const orderCost = 88

// node is an entry in the order. key and segment are the entry's, to save a step at each comparison.
type node struct {
	key     []byte
	segment engine.Segment
	entry   *entry
	next    []atomic.Pointer[node] // one per level; the lowest holds all nodes
	// prev is the node before, or one further before while a node is being inserted between; the head before the first.
	prev atomic.Pointer[node]
}

func newOrder() *order {
	o := &order{random: 0x9e3779b97f4a7c15}
	o.head.next = make([]atomic.Pointer[node], maxHeight)
	o.height.Store(1)
	return o
}

// compareRows orders rows: by key, then segment.
func compareRows(key []byte, segment engine.Segment, other []byte, otherSegment engine.Segment) int {
	if c := bytes.Compare(key, other); c != 0 {
		return c
	}
	return cmp.Compare(segment, otherSegment)
}

// insert adds an entry that is not there yet. Writer only.
func (o *order) insert(e *entry) {
	var before [maxHeight]*node
	height := int(o.height.Load())
	at := &o.head
	for level := height - 1; level >= 0; level-- {
		at = o.walk(at, level, e.key, e.segment)
		before[level] = at
	}
	tall := o.draw()
	for ; height < tall; height++ {
		before[height] = &o.head
	}
	n := o.node(tall)
	n.key, n.segment, n.entry = e.key, e.segment, e
	for level := range tall {
		n.next[level].Store(before[level].next[level].Load())
	}
	n.prev.Store(before[0])
	// From below, so that whoever meets the node can go on at every level.
	for level := range tall {
		before[level].next[level].Store(n)
	}
	if after := n.next[0].Load(); after != nil {
		after.prev.Store(n)
	}
	if tall > int(o.height.Load()) {
		o.height.Store(int32(tall))
	}
}

// walk goes along a level from at to the last node before the row.
func (o *order) walk(at *node, level int, key []byte, segment engine.Segment) *node {
	for {
		n := at.next[level].Load()
		if n == nil || compareRows(n.key, n.segment, key, segment) >= 0 {
			return at
		}
		at = n
	}
}

// before returns the last node before the row, nil when there is none.
func (o *order) before(key []byte, segment engine.Segment) *node {
	at := &o.head
	for level := int(o.height.Load()) - 1; level >= 0; level-- {
		at = o.walk(at, level, key, segment)
	}
	if at == &o.head {
		return nil
	}
	return at
}

// from returns the first node whose key is at least key; nil key: the first of all.
func (o *order) from(key []byte) *node {
	if key == nil {
		return o.head.next[0].Load()
	}
	if at := o.before(key, 0); at != nil {
		return at.next[0].Load()
	}
	return o.head.next[0].Load()
}

// previous returns the node before n, nil when n is the first.
func (o *order) previous(n *node) *node {
	if p := n.prev.Load(); p != &o.head {
		return p
	}
	return nil
}

// last returns the last node, nil when there is none.
func (o *order) last() *node {
	at := &o.head
	for level := int(o.height.Load()) - 1; level >= 0; level-- {
		for n := at.next[level].Load(); n != nil; n = at.next[level].Load() {
			at = n
		}
	}
	if at == &o.head {
		return nil
	}
	return at
}

// draw draws a height: each level has a quarter of the nodes of the one below.
func (o *order) draw() int {
	o.random ^= o.random << 13
	o.random ^= o.random >> 7
	o.random ^= o.random << 17
	height := 1
	for bits := o.random >> 16; height < maxHeight && bits&3 == 0; bits >>= 2 {
		height++
	}
	return height
}

// node takes room for a node, from blocks so that the collector has few objects to look at.
func (o *order) node(height int) *node {
	const block = 128
	if len(o.nodes) == 0 {
		o.nodes = make([]node, block)
	}
	if len(o.links) < height {
		o.links = make([]atomic.Pointer[node], block+maxHeight)
	}
	n := &o.nodes[0]
	o.nodes = o.nodes[1:]
	n.next, o.links = o.links[:height:height], o.links[height:]
	return n
}
