package layered

import (
	"errors"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// RecordCache is the record cache of one stream thread (upstream's ThreadCache): one budget for the caching stores of
// all its tasks. It holds no values. What a store has cached is in the overlay or in a recent commit; the cache knows in
// which order keys were used, which of them the store's flush listener has not heard of, and what it has heard last.
// It belongs to the stream thread.
type RecordCache struct {
	max    int64
	bytes  int64
	dirty  int64 // bytes of what is not flushed
	stores []*cached
	stats  cacheStats
	report *cacheMetrics
}

// NewRecordCache returns a cache of maxBytes. With 0 or 1 every put is flushed at once. It counts into the metrics of
// the Stores.
func (s *Stores) NewRecordCache(maxBytes int64) *RecordCache {
	return &RecordCache{max: maxBytes, report: &s.metrics.cache}
}

// Bytes is what the entries cost, as upstream counts it.
func (r *RecordCache) Bytes() int64 { return r.bytes }

// Resize changes the budget. What does not fit any more is evicted, of each store in turn, and flushed where it has to be: between
// commits nothing has to, and it cannot fail.
func (r *RecordCache) Resize(maxBytes int64) error {
	if r.max == maxBytes {
		return nil
	}
	r.max = maxBytes
	for more := true; more && r.bytes > r.max; {
		more = false
		for _, c := range r.stores {
			if r.bytes <= r.max {
				break
			}
			if c.count == 0 || c.flushing {
				continue
			}
			if err := c.evictEldest(); err != nil {
				return err
			}
			more = true
		}
	}
	r.publish()
	return nil
}

// Close takes every store out of the cache; nothing may be dirty that is to be told.
func (r *RecordCache) Close() {
	for _, c := range slices.Clone(r.stores) {
		c.detach()
	}
	r.publish()
}

// UseCache puts r before the stores of the task that ask for caching. Without one, and in stores that do not, every put
// is told to the flush listener at once. nil takes the task out of its cache, whose entries are forgotten. Writer only.
func (t *Task) UseCache(r *RecordCache) {
	for _, p := range t.parts {
		c := &p.cache
		c.detach()
		c.part = p
		if r != nil && p.spec.Caching {
			c.records = r
			r.stores = append(r.stores, c)
		}
	}
}

// OnFlush sets the listener of a store, or takes it away (nil). *store.UnknownStoreError; *store.WrongKindError for a
// versioned store, whose puts do not replace each other, and for a store that keeps duplicates. Writer only.
func (t *Task) OnFlush(name store.Name, fn store.FlushListener) error {
	p, err := t.part(name)
	if err != nil {
		return err
	}
	if p.spec.Kind == store.KindVersioned || p.spec.RetainDuplicates {
		return &store.WrongKindError{Store: name, Kind: p.spec.Kind, Query: "a flush listener"}
	}
	p.cache.part, p.cache.listener = p, fn
	return nil
}

// FlushCache tells the listener of a store everything that it has not heard of. It says whether there was anything.
// Before a commit every store is flushed, those first whose listeners write to others. Writer only.
func (t *Task) FlushCache(name store.Name) (bool, error) {
	p, err := t.part(name)
	if err != nil {
		return false, err
	}
	c := &p.cache
	if c.dirty == 0 || c.flushing {
		return false, nil
	}
	return true, c.flush(0, flushedAtCommit)
}

// cached is the share of one store of one task (upstream's NamedCache). Its entries are keys of the store's active
// table: when that is replaced, after a commit, they go with it.
type cached struct {
	part     *part
	records  *RecordCache // nil: nothing is kept back
	listener store.FlushListener
	table    *table

	// nodes[0] is the ring of uses and that of dirty nodes; free heads the list of unused ones.
	nodes    []cacheNode
	free     uint32
	count    int // nodes in use
	dirty    int // of them dirty
	flushing bool
	scratch  []byte
}

// nodeCost is what upstream counts for an entry beside key and value, when it has no topic name and no headers, which
// entries here do not keep. A node takes about twice that; key and value are the overlay's and not held again.
const nodeCost = 45

// flushReason says why entries were flushed; a metric label.
type flushReason uint8

const (
	flushedAtCommit flushReason = iota
	flushedByPressure
	flushedAtOnce // the store does not cache
	flushReasons
)

// on reports whether anybody wants to know of puts.
func (c *cached) on() bool { return c.records != nil || c.listener != nil }

// hit notes that the writer read a key that is in memory.
func (c *cached) hit(e *entry) {
	if c.records == nil {
		return
	}
	c.records.stats.hits++
	if e.node != 0 {
		c.use(e.node)
	}
}

// miss notes that the writer read a key that is not in the table.
func (c *cached) miss() {
	if c.records != nil {
		c.records.stats.misses++
	}
}

// before keeps what the listener knows of e, which is about to be put.
func (c *cached) before(e *entry) {
	if c.table != c.part.active {
		c.forget()
		c.table = c.part.active
	}
	if e.node != 0 && c.nodes[e.node].isDirty {
		return
	}
	i := e.node
	if i == 0 {
		i = c.add(e)
	}
	n := &c.nodes[i]
	head := e.head.Load()
	switch {
	case head == nil || head.tick <= c.part.task.marks.published:
		n.heard = heardCommitted
	case head.live: // flushed in this commit already
		n.heard, n.timestamp, n.data = heardValue, head.timestamp, append(n.data[:0], head.data...)
	case head.silent: // a delete of what never was
		n.heard = heardCommitted
	default:
		n.heard = heardDelete
	}
}

// after notes that e was put, and flushes what does not fit any more.
func (c *cached) after(e *entry) error {
	i := e.node
	n := &c.nodes[i]
	bytes := int64(len(e.key)+len(e.head.Load().data)) + nodeCost
	c.grow(bytes-n.bytes, 0)
	if n.isDirty {
		c.grow(0, bytes-n.bytes)
		c.unlinkDirty(i)
	} else {
		c.grow(0, bytes)
		n.isDirty = true
		c.dirty++
	}
	n.bytes = bytes
	last := c.nodes[0].before
	n.before, n.after = last, 0
	c.nodes[last].after, c.nodes[0].before = i, i
	c.use(i)
	if c.records == nil {
		return c.atOnce(i)
	}
	return c.evict()
}

// atOnce tells of a put of a store that does not cache, unless it is the listener that puts: that waits for the next
// flush.
func (c *cached) atOnce(i uint32) error {
	if c.flushing {
		return nil
	}
	c.flushing = true
	defer func() { c.flushing = false }()
	err := c.tell(i, flushedAtOnce)
	if e := c.nodes[i].e; e != nil && !c.nodes[i].isDirty {
		c.remove(i)
	}
	return err
}

// evict makes room, of this store's entries only: the put that needs it may come from the flush of another store. It
// takes away at most what there was at the start.
func (c *cached) evict() error {
	for n := c.count; n > 0 && c.count > 0 && c.records.bytes > c.records.max && !c.flushing; n-- {
		if err := c.evictEldest(); err != nil {
			return err
		}
	}
	return nil
}

// evictEldest takes away the entry that was not used for longest. When it is dirty all that is dirty is flushed, it
// first.
func (c *cached) evictEldest() error {
	i := c.nodes[0].newer
	e := c.nodes[i].e
	if c.nodes[i].isDirty {
		if err := c.flush(i, flushedByPressure); err != nil {
			return err
		}
	}
	c.records.stats.evictions++
	if e.node == i && !c.nodes[i].isDirty { // else it was a delete, or its listener has put it again
		c.remove(i)
	}
	return nil
}

// flush tells of first, unless that is 0, and then of all that is dirty now. What the listener writes to its own store
// meanwhile is left for the next flush.
func (c *cached) flush(first uint32, reason flushReason) error {
	c.flushing = true
	defer func() { c.flushing = false }()
	n := c.dirty
	if first != 0 {
		if err := c.tell(first, reason); err != nil {
			return err
		}
		n--
	}
	for ; n > 0 && c.dirty > 0; n-- {
		i := c.nodes[0].after
		if err := c.tell(i, reason); err != nil {
			return err
		}
		if e := c.nodes[i].e; c.records == nil && e != nil && !c.nodes[i].isDirty {
			c.remove(i)
		}
	}
	return nil
}

// tell makes a dirty node clean and tells the listener. Deletes leave the cache; of one that deletes nothing, neither
// the listener hears nor the changelog, unless it is where the store's time is.
func (c *cached) tell(i uint32, reason flushReason) error {
	n := &c.nodes[i]
	e, v := n.e, n.e.head.Load()
	c.clean(i)
	if c.records != nil {
		c.records.stats.flushed[reason]++
	}
	f := store.Flushed{New: store.Value{Timestamp: v.timestamp}}
	if c.listener == nil && v.live {
		return nil
	}
	var err error
	if f.Old, err = c.last(n); err != nil {
		return err
	}
	if f.Old.Data == nil && !v.live && c.part.spec.Caching {
		v.silent = n.heard == heardCommitted && !c.part.tellsTime(e.key)
		c.remove(i)
		return nil
	}
	// The listener may put the key again, so it is given copies.
	buf := append(append(append(c.scratch[:0], e.key...), v.data...), f.Old.Data...)
	c.scratch = nil
	key, data := len(e.key), len(v.data)
	if v.live {
		f.New.Data = buf[key : key+data : key+data]
	} else {
		c.remove(i)
	}
	if f.Old.Data != nil {
		f.Old.Data = buf[key+data:]
	}
	if f.Key, f.Start, f.End, err = c.part.split(buf[:key:key]); err == nil && c.listener != nil {
		err = c.listener(f)
	}
	c.scratch = buf
	return err
}

// last is what the listener heard last: nil Data when the key had no value then. The result is valid until the next put.
func (c *cached) last(n *cacheNode) (store.Value, error) {
	switch n.heard {
	case heardValue:
		return c.part.shared(&version{data: n.data, timestamp: n.timestamp, live: true}), nil
	case heardDelete:
		return store.Value{}, nil
	default:
		return c.part.committed(n.e)
	}
}

// committed is the value of e's key at the last commit, nil Data when it had none. The turn is held.
func (p *part) committed(e *entry) (store.Value, error) {
	if ver := e.at(p.task.marks.published); ver != nil {
		return p.shared(ver), nil
	}
	v, err := p.task.base.get(p.number, 1, e.segment, e.key, e.hash)
	if errors.Is(err, store.ErrNotFound) {
		return store.Value{}, nil
	}
	return v, err
}

// shared is the value of a version without a copy.
func (p *part) shared(v *version) store.Value {
	if !v.live {
		return store.Value{}
	}
	val := store.Value{Data: v.data, Timestamp: noTimestamp}
	if val.Data == nil {
		val.Data = []byte{}
	}
	if timestamped(p.spec.Kind) {
		val.Timestamp = v.timestamp
	}
	return val
}

// settle notes that a commit ended: whatever was dirty is committed.
func (c *cached) settle() {
	for c.dirty > 0 {
		i := c.nodes[0].after
		live := c.nodes[i].e.head.Load().live
		c.clean(i)
		if !live {
			c.remove(i)
		}
	}
	if c.records != nil {
		c.records.publish()
	}
}

// forget empties the cache: what was dirty was never there.
func (c *cached) forget() {
	for c.dirty > 0 {
		c.clean(c.nodes[0].after)
	}
	for c.count > 0 {
		c.remove(c.nodes[0].newer)
	}
	if c.records != nil {
		c.records.publish()
	}
}

// detach takes the store out of its cache.
func (c *cached) detach() {
	c.forget()
	if r := c.records; r != nil {
		r.stores = slices.DeleteFunc(r.stores, func(o *cached) bool { return o == c })
	}
	c.records, c.nodes, c.free, c.table, c.scratch = nil, nil, 0, nil, nil
}
