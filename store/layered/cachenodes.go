package layered

// cacheNode is one key.
type cacheNode struct {
	e     *entry
	bytes int64
	// heard says where the value is that the listener heard last; data and timestamp hold it when it was overwritten.
	heard     heard
	isDirty   bool
	timestamp int64
	data      []byte
	// newer and older make the ring of uses: nodes[0].older is the newest.
	newer, older uint32
	// before and after make the ring of dirty nodes, in order of their last put: nodes[0].after was put first.
	before, after uint32
}

// heard says what a listener heard of a key last.
type heard uint8

const (
	heardCommitted heard = iota // what is committed
	heardValue                  // the node's data
	heardDelete
)

// use makes a node the newest.
func (c *cached) use(i uint32) {
	if c.nodes[0].older == i {
		return
	}
	c.unlinkUse(i)
	c.linkUse(i)
}

func (c *cached) linkUse(i uint32) {
	newest := c.nodes[0].older
	c.nodes[i].newer, c.nodes[i].older = 0, newest
	c.nodes[newest].newer, c.nodes[0].older = i, i
}

func (c *cached) unlinkUse(i uint32) {
	n := &c.nodes[i]
	c.nodes[n.newer].older, c.nodes[n.older].newer = n.older, n.newer
}

func (c *cached) unlinkDirty(i uint32) {
	n := &c.nodes[i]
	c.nodes[n.before].after, c.nodes[n.after].before = n.after, n.before
}

// add takes a node for e and makes it the newest.
func (c *cached) add(e *entry) uint32 {
	if len(c.nodes) == 0 {
		c.nodes = append(c.nodes, cacheNode{})
	}
	i := c.free
	if i == 0 {
		i = uint32(len(c.nodes))
		c.nodes = append(c.nodes, cacheNode{})
	} else {
		c.free = c.nodes[i].older
	}
	c.nodes[i] = cacheNode{e: e, data: c.nodes[i].data}
	e.node = i
	c.count++
	c.linkUse(i)
	return i
}

// remove gives a clean node back.
func (c *cached) remove(i uint32) {
	n := &c.nodes[i]
	c.grow(-n.bytes, 0)
	c.unlinkUse(i)
	n.e.node = 0
	const keep = 256
	if cap(n.data) > keep {
		n.data = nil
	}
	n.e, n.older = nil, c.free
	c.free = i
	c.count--
}

// clean takes a node out of the dirty ones.
func (c *cached) clean(i uint32) {
	n := &c.nodes[i]
	c.unlinkDirty(i)
	n.isDirty = false
	c.dirty--
	c.grow(0, -n.bytes)
}

// grow accounts for bytes of entries, and of dirty ones.
func (c *cached) grow(bytes, dirty int64) {
	if c.records != nil {
		c.records.bytes += bytes
		c.records.dirty += dirty
	}
}
