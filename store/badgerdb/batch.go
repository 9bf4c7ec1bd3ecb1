package badgerdb

import (
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"

	"github.com/statemesh/statemesh/store/engine"
)

// batch collects writes at one timestamp and hands them to Badger in their order, a portion at a time. Badger's own batch would
// put a portion into a map first, and then into its memtable in no order: sorted rows go to places that are next to each other.
// It would make a transaction of each portion, too, which a batch of several portions has no use for.
//
// Each portion has a loader of its own, which it fits into: one that sends more than once may wait for ever after an error.
type batch struct {
	db *badger.DB
	// full is room for one full key, which the loader copies. Values it keeps until they are written, so they are copied into
	// blocks that nobody uses again.
	full  []byte
	block []byte
	count int

	loader *badger.KVLoader
	row    pb.KV // the loader copies it
	rows   int64 // in loader
	bytes  int64 // in loader
	// underWay holds a token while a portion is being written.
	underWay chan struct{}
	failed   atomic.Pointer[error] // what a portion failed with
	err      error
}

const batchBlock = 64 << 10

// deleted is how Badger marks a tombstone, in logs, tables and backups.
var deleted = []byte{flagDelete}

func newBatch(db *badger.DB, ts uint64) *batch {
	b := &batch{db: db, underWay: make(chan struct{}, 1)}
	b.row.Version = ts
	return b
}

// key builds the full key of a write. It is valid until the next one.
func (b *batch) key(space engine.SpaceID, w engine.Write) []byte {
	b.full = append(appendSegment(b.full[:0], space, w.Store, w.Segment), w.Key...)
	return b.full
}

// copy returns a copy of v that is never nil.
func (b *batch) copy(v []byte) []byte {
	if cap(b.block)-len(b.block) < len(v) {
		b.block = make([]byte, 0, max(batchBlock, len(v)))
	}
	c := append(b.block[len(b.block):len(b.block):len(b.block)+len(v)], v...)
	b.block = b.block[:len(b.block)+len(v)]
	return c
}

// set writes a value that nobody changes any more; the key is the caller's.
func (b *batch) set(key, value []byte) { b.add(key, value, nil) }

// delete writes a tombstone; the key is the caller's.
func (b *batch) delete(key []byte) { b.add(key, nil, deleted) }

// flush writes what is left and waits for all of it.
func (b *batch) flush() error {
	b.send()
	b.wait()
	return b.err
}

// cancel ends a batch that was not flushed, and waits for what is under way; after a flush it does nothing.
func (b *batch) cancel() { b.wait() }

func (b *batch) add(key, value, meta []byte) {
	const slack = 32 // timestamp and flags
	b.count++
	size := int64(len(key) + len(value) + slack)
	if b.err == nil && size >= min(b.db.MaxBatchSize(), maxInline) {
		b.err = badger.ErrTxnTooBig // a larger value would go to the value log
	}
	if b.rows > 0 && (b.rows+1 >= b.db.MaxBatchCount() || b.bytes+size >= b.db.MaxBatchSize()) {
		b.send()
	}
	if b.err != nil {
		return
	}
	if b.loader == nil {
		b.loader = b.db.NewKVLoader(1)
	}
	b.row.Key, b.row.Value, b.row.Meta = key, value, meta
	b.err = b.loader.Set(&b.row)
	b.rows, b.bytes = b.rows+1, b.bytes+size
}

// send has what was collected written while more is collected.
func (b *batch) send() {
	l := b.loader
	b.loader, b.rows, b.bytes = nil, 0, 0
	if b.err != nil || l == nil {
		return
	}
	b.underWay <- struct{}{}
	if failed := b.failed.Load(); failed != nil {
		b.err = *failed
		<-b.underWay
		return
	}
	go func() {
		if err := l.Finish(); err != nil {
			b.failed.CompareAndSwap(nil, &err)
		}
		<-b.underWay
	}()
}

// wait returns when nothing is under way.
func (b *batch) wait() {
	for range cap(b.underWay) {
		b.underWay <- struct{}{}
	}
	for range cap(b.underWay) {
		<-b.underWay
	}
	if failed := b.failed.Load(); failed != nil && b.err == nil {
		b.err = *failed
	}
}
