package badgerdb

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store/engine"
)

// batch collects writes at one timestamp. Badger keeps the slices until they are written, so they are copied into
// blocks that nobody uses again.
type batch struct {
	wb    *badger.WriteBatch
	block []byte
	count int
	err   error
}

const batchBlock = 64 << 10

func newBatch(db *badger.DB, ts uint64) *batch {
	wb := db.NewWriteBatchAt(ts)
	wb.SetMaxPendingTxns(4) // each holds up to a seventh of a memtable
	return &batch{wb: wb}
}

// key builds the full key of a write.
func (b *batch) key(space engine.SpaceID, w engine.Write) []byte {
	k := appendSegment(b.room(prefixBytes+len(w.Key)), space, w.Store, w.Segment)
	return b.done(append(k, w.Key...))
}

// copy returns a copy of v that is never nil.
func (b *batch) copy(v []byte) []byte { return b.done(append(b.room(len(v)), v...)) }

func (b *batch) set(key, value []byte) {
	b.count++
	if b.err == nil {
		b.err = b.wb.SetEntry(&badger.Entry{Key: key, Value: value})
	}
}

func (b *batch) delete(key []byte) {
	b.count++
	if b.err == nil {
		b.err = b.wb.Delete(key)
	}
}

func (b *batch) flush() error {
	if b.err != nil {
		return b.err
	}
	return b.wb.Flush()
}

// cancel ends a batch that was not flushed; after a flush it does nothing.
func (b *batch) cancel() { b.wb.Cancel() }

func (b *batch) room(n int) []byte {
	if cap(b.block)-len(b.block) < n {
		b.block = make([]byte, 0, max(batchBlock, n))
	}
	return b.block[len(b.block) : len(b.block) : len(b.block)+n]
}

func (b *batch) done(s []byte) []byte {
	b.block = b.block[:len(b.block)+len(s)]
	return s
}
