package layered

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/statemesh/statemesh/store/engine"
)

// table holds recent values of one store: a hash table of rows, each with a short chain of versions, newest first. A row
// is a segment and a key; a key-value store has only segment 0. One goroutine writes; any number read without locks. A reader at tick T sees of each key the newest version whose
// tick is at most T, so commits and snapshots cost a constant and copy nothing.
//
// Entries are only added. A table is given up as a whole, after all it holds has moved to the engine.
type table struct {
	seed maphash.Seed
	// slots are open addressing: the upper half of a hash beside the number of an entry plus one; 0 is free.
	slots atomic.Pointer[[]atomic.Uint64]
	// chunks hold the entries in the order of their insertion. A slot is stored after its entry is in place.
	chunks atomic.Pointer[[]*chunk]
	// count of entries. Readers use the count that their view was published with.
	count atomic.Int64
	// bytes is what the table costs in memory, roughly; what it wastes included.
	bytes atomic.Int64

	arena    arena     // writer only
	versions []version // writer only: room for new versions
	free     *version  // writer only: versions to use again

	indexMu sync.Mutex
	index   atomic.Pointer[tableIndex]
	// order takes the place of index in stores with segments; nil elsewhere.
	order *order
}

const (
	chunkEntries = 128
	firstSlots   = 64
	// entryCost and versionCost are what an entry and a version cost beside the bytes of key and value.
	entryCost   = 72
	versionCost = 64
)

type chunk [chunkEntries]entry

// entry is one row. key, segment and hash never change.
type entry struct {
	key     []byte
	segment engine.Segment
	hash    uint64
	head    atomic.Pointer[version]
	node    uint32 // of the row in the record cache, 0 for none; writer only
}

// version is one value of a key. tick and next are set before the version can be reached. data, timestamp and live
// change only while the version's tick is the writer's current one, which no reader looks at.
type version struct {
	tick      uint64
	next      *version
	timestamp int64
	data      []byte
	live      bool // false: deleted
	silent    bool // need not go to the changelog: came from there, or is the delete of what never was
}

// at returns the version that a reader at tick sees, or nil when this table says nothing about the key.
func (e *entry) at(tick uint64) *version {
	v := e.head.Load()
	for v != nil && v.tick > tick {
		v = v.next
	}
	return v
}

// marks are the ticks that decide what a write may do to a chain.
type marks struct {
	// current is the tick of new versions.
	current uint64
	// published is the tick of the last commit: newer versions belong to the overlay.
	published uint64
	// oldest is the oldest tick that any reader may still look at. Invariant: oldest <= published.
	oldest uint64
}

func newTable(seed maphash.Seed) *table {
	t := &table{seed: seed}
	slots := make([]atomic.Uint64, firstSlots)
	t.slots.Store(&slots)
	t.chunks.Store(new([]*chunk))
	return t
}

// newOrderedTable returns a table that is sorted at all times.
func newOrderedTable(seed maphash.Seed) *table {
	t := newTable(seed)
	t.order = newOrder()
	return t
}

// hash of a row's key. Rows of one key in several segments share it: there are never many.
func (t *table) hash(key []byte) uint64 { return maphash.Bytes(t.seed, key) }

// find returns the entry of a row, or nil.
func (t *table) find(segment engine.Segment, key []byte, hash uint64) *entry {
	slots := *t.slots.Load()
	mask := uint64(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := slots[i].Load()
		if s == 0 {
			return nil
		}
		if uint32(s>>32) != uint32(hash>>32) {
			continue
		}
		if e := t.entry(int(uint32(s)) - 1); e.segment == segment && bytes.Equal(e.key, key) {
			return e
		}
	}
}

// entry returns the entry with number i, counted from 0.
func (t *table) entry(i int) *entry {
	return &(*t.chunks.Load())[i/chunkEntries][i%chunkEntries]
}

// enter returns the entry of a row, a new one when there is none. Writer only.
func (t *table) enter(segment engine.Segment, key []byte, hash uint64) *entry {
	if e := t.find(segment, key, hash); e != nil {
		return e
	}
	return t.insert(segment, key, hash)
}

// put sets the value of e; a nil data deletes. It reports whether this is the first version above m.published. Writer
// only.
func (t *table) put(e *entry, data []byte, timestamp int64, m marks) bool {
	head := e.head.Load()
	if head != nil && head.tick == m.current {
		t.fill(head, data, timestamp)
		return false
	}
	v := t.version(head, m.oldest)
	v.tick, v.next, v.silent = m.current, head, false
	t.fill(v, data, timestamp)
	e.head.Store(v)
	return head == nil || head.tick <= m.published
}

// rollback takes away every version above published.
func (e *entry) rollback(published uint64) { e.head.Store(e.at(published)) }

func (t *table) insert(segment engine.Segment, key []byte, hash uint64) *entry {
	n := int(t.count.Load())
	chunks := *t.chunks.Load()
	if n == len(chunks)*chunkEntries {
		grown := append(chunks, new(chunk)) // may write behind the end of what readers hold, where they do not look
		t.chunks.Store(&grown)
	}
	e := t.entry(n)
	e.key, e.segment, e.hash = t.arena.copy(key, 0), segment, hash
	if slots := *t.slots.Load(); (n+1)*5 > len(slots)*3 {
		t.grow(slots)
	}
	place(*t.slots.Load(), hash, n)
	t.count.Store(int64(n + 1))
	t.bytes.Add(int64(len(key)) + entryCost)
	if t.order != nil {
		t.order.insert(e)
		t.bytes.Add(orderCost)
	}
	return e
}

// grow doubles the slots. Readers that still have the old ones find in them all that they may see.
func (t *table) grow(old []atomic.Uint64) {
	slots := make([]atomic.Uint64, 2*len(old))
	for i := range int(t.count.Load()) {
		place(slots, t.entry(i).hash, i)
	}
	t.slots.Store(&slots)
}

func place(slots []atomic.Uint64, hash uint64, number int) {
	mask := uint64(len(slots) - 1)
	i := hash & mask
	for slots[i].Load() != 0 {
		i = (i + 1) & mask
	}
	slots[i].Store(hash>>32<<32 | uint64(uint32(number+1)))
}

// version returns room for a new version on top of head. What no reader can reach any more is used again: a reader at
// oldest or later stops at the first version that is not newer than oldest.
func (t *table) version(head *version, oldest uint64) *version {
	v := head
	for v != nil && v.tick > oldest {
		v = v.next
	}
	if v != nil && v.next != nil {
		free := v.next
		v.next = nil
		t.keep(free.next)
		return free
	}
	if v := t.free; v != nil {
		t.free = v.next
		return v
	}
	if len(t.versions) == 0 {
		t.versions = make([]version, min(256, max(8, t.count.Load())))
	}
	v = &t.versions[0]
	t.versions = t.versions[1:]
	t.bytes.Add(versionCost)
	return v
}

// keep takes a chain that no reader can reach. A chain grows while a long read, or a move, holds back the oldest tick; the
// versions that it needs no longer serve other keys.
func (t *table) keep(chain *version) {
	for chain != nil {
		v := chain
		chain = v.next
		v.next, t.free = t.free, v
	}
}

// fill sets the value of a version that no reader looks at.
func (t *table) fill(v *version, data []byte, timestamp int64) {
	v.timestamp, v.live = timestamp, data != nil
	if v.data != nil && len(data) <= cap(v.data) { // an empty value is not nil
		v.data = append(v.data[:0], data...)
		return
	}
	v.data = t.arena.copy(data, len(data)+len(data)/4)
	t.bytes.Add(int64(cap(v.data)))
}

// arena hands out small pieces of large blocks, so that the collector has few objects to look at.
type arena struct {
	block []byte
	size  int
}

const (
	firstBlock = 1 << 10
	lastBlock  = 64 << 10
)

// copy returns a copy of b with room for at least size bytes.
func (a *arena) copy(b []byte, size int) []byte {
	size = (max(size, len(b), 1) + 7) &^ 7
	if size > lastBlock/8 {
		return append(make([]byte, 0, size), b...)
	}
	if size > len(a.block) {
		a.size = min(lastBlock, max(firstBlock, 2*a.size, size))
		a.block = make([]byte, a.size)
	}
	c := append(a.block[:0:size], b...)
	a.block = a.block[size:]
	return c
}
