package restore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// The layout of a record batch of message format 2 (KIP-98), the only one that can hold transactions.
const (
	batchPrefix = 12 // first offset and length
	magicAt     = 16
	crcAt       = 17
	crcFrom     = 21
	batchHeader = 61

	attrCodec       = 0x07
	attrAppendTime  = 0x08
	attrTransaction = 0x10
	attrControl     = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one record batch of a fetch; data aliases the answer.
type batch struct {
	first, last        store.Offset
	leaderEpoch        int32
	attributes         int16
	firstTime, maxTime int64
	producer           int64
	count              int
	data               []byte // the whole batch, header included
}

func (b *batch) records() []byte { return b.data[batchHeader:] }

// nextBatch cuts the first batch off in. ok is false when in holds no whole batch: brokers cut the last one off.
func nextBatch(in []byte) (b batch, rest []byte, ok bool, err error) {
	if len(in) <= magicAt {
		return b, nil, false, nil
	}
	if magic := in[magicAt]; magic != 2 {
		return b, nil, false, fmt.Errorf("message format %d: only format 2 (brokers since 0.11) can hold a changelog", magic)
	}
	size := int64(int32(binary.BigEndian.Uint32(in[8:]))) + batchPrefix
	if size < batchHeader {
		return b, nil, false, fmt.Errorf("batch of %d bytes", size)
	}
	if int64(len(in)) < size {
		return b, nil, false, nil
	}
	data := in[:size:size]
	b = batch{
		first:       store.Offset(binary.BigEndian.Uint64(data)),
		leaderEpoch: int32(binary.BigEndian.Uint32(data[12:])),
		attributes:  int16(binary.BigEndian.Uint16(data[21:])),
		firstTime:   int64(binary.BigEndian.Uint64(data[27:])),
		maxTime:     int64(binary.BigEndian.Uint64(data[35:])),
		producer:    int64(binary.BigEndian.Uint64(data[43:])),
		count:       int(int32(binary.BigEndian.Uint32(data[57:]))),
		data:        data,
	}
	b.last = b.first + store.Offset(int32(binary.BigEndian.Uint32(data[23:])))
	if b.last < b.first || b.count < 0 {
		return b, nil, false, fmt.Errorf("batch of %d records from offset %d to %d", b.count, b.first, b.last)
	}
	return b, in[size:], true, nil
}

// survey finds where the whole batches of a fetch end, without reading their records: next is the offset after the
// last one, never less than from; epoch is its leader epoch.
func survey(in []byte, from store.Offset) (next store.Offset, epoch int32, err error) {
	next, epoch = from, -1
	for {
		b, rest, ok, err := nextBatch(in)
		if err != nil || !ok {
			return next, epoch, err
		}
		if b.last >= next {
			next, epoch = b.last+1, b.leaderEpoch
		}
		in = rest
	}
}

// chunk is what one fetch brought for one partition.
type chunk struct {
	from    store.Offset // records before it were applied already
	until   store.Offset // records from here on are none of the reader's; 0: there is no such offset
	raw     []byte
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	// hidden is aborted as a decoder knows it, when it is to be kept from one part of a chunk to the next; else nil.
	hidden abortedTransactions
}

// counts of what a decoder has seen.
type counts struct {
	records, skipped int64
}

// decoder turns fetched bytes into changes. It keeps its buffers from one chunk to the next, so that decoding
// allocates nothing per record. One goroutine at a time.
type decoder struct {
	inflate kgo.Decompressor
	changes []store.Change
	// whole: records are wanted as they are, so places has, for each change, what a change has not. records is the buffer in
	// which they are handed on.
	whole   bool
	places  []place
	records []Record
	// inflated holds the buffers that changes point into, free those that may be used again, which are freeBytes and at most
	// keepBytes large.
	inflated, free [][]byte
	inflatedBytes  int
	freeBytes      int
}

// place is what a record has beyond a change.
type place struct {
	offset  store.Offset
	headers []byte // not read yet
}

// How much a decoder collects before it hands changes on. Larger runs gain nothing, smaller ones cost calls.
const (
	runRecords = 4096
	runBytes   = 1 << 20
	// keepBytes of buffers stay for the next run. A run of many small batches has many buffers, of which each may meet a large batch.
	keepBytes = 2 * runBytes
)

func newDecoder() *decoder {
	d := &decoder{}
	d.inflate = kgo.DefaultDecompressor((*inflateBuffers)(d))
	return d
}

// inflateBuffers lends a decoder's buffers to the decompressor.
type inflateBuffers decoder

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (d *inflateBuffers) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	n := len(d.free)
	if n == 0 {
		return nil
	}
	buf := d.free[n-1]
	d.free[n-1], d.free = nil, d.free[:n-1]
	d.freeBytes -= cap(buf)
	return buf
}

// PutDecompressBytes implements kgo.PoolDecompressBytes: the buffer of a batch that did not inflate.
func (d *inflateBuffers) PutDecompressBytes(buf []byte) { (*decoder)(d).keep(buf) }

// keep lets a buffer be used again, if there is room for it.
func (d *decoder) keep(buf []byte) {
	if d.freeBytes+cap(buf) <= keepBytes {
		d.free, d.freeBytes = append(d.free, buf), d.freeBytes+cap(buf)
	}
}

// decode calls apply with the committed records of c, in log order, in runs. The changes are valid during the call.
// Control records and what was aborted are left out; so are records without a key, which are counted as skipped: a
// compacted topic takes none.
func (d *decoder) decode(c chunk, apply func([]store.Change) error) (n counts, err error) {
	defer d.reset()
	aborted := c.hidden
	if aborted == nil {
		aborted = abortedBy(c.aborted)
	}
	for in := c.raw; ; {
		b, rest, ok, err := nextBatch(in)
		if err != nil {
			return n, err
		}
		if !ok {
			return n, d.flush(&n, apply)
		}
		in = rest
		if b.last < c.from {
			continue
		}
		if sum := crc32.Checksum(b.data[crcFrom:], castagnoli); sum != binary.BigEndian.Uint32(b.data[crcAt:]) {
			return n, fmt.Errorf("batch at offset %d: checksum %08x, want %08x", b.first, sum, binary.BigEndian.Uint32(b.data[crcAt:]))
		}
		if b.attributes&attrControl != 0 {
			aborted.ended(&b)
			continue
		}
		if aborted.hides(&b) {
			continue
		}
		skipped, err := d.batch(&b, c.from, c.until)
		if err != nil {
			return n, fmt.Errorf("batch at offset %d: %w", b.first, err)
		}
		n.skipped += skipped
		if len(d.changes) >= runRecords || d.inflatedBytes >= runBytes {
			if err := d.flush(&n, apply); err != nil {
				return n, err
			}
		}
	}
}

// batch appends the changes of one batch.
func (d *decoder) batch(b *batch, from, until store.Offset) (skipped int64, err error) {
	in := b.records()
	if codec := kgo.CompressionCodecType(b.attributes & attrCodec); codec != kgo.CodecNone {
		if in, err = d.inflate.Decompress(in, codec); err != nil {
			return 0, fmt.Errorf("decompress: %w", err)
		}
		d.inflated = append(d.inflated, in)
		d.inflatedBytes += len(in)
	}
	for i := range b.count {
		size, used := binary.Varint(in)
		if used <= 0 || size < 0 || int64(len(in)-used) < size {
			return 0, fmt.Errorf("record %d of %d is cut off", i, b.count)
		}
		rec := in[used : used+int(size)]
		in = in[used+int(size):]
		delta, change, headers, ok := record(rec)
		if !ok {
			return 0, fmt.Errorf("record %d of %d is malformed", i, b.count)
		}
		switch {
		case b.first+delta < from || until > 0 && b.first+delta >= until:
			continue
		case d.whole:
			d.places = append(d.places, place{offset: b.first + delta, headers: headers})
		case change.Key == nil:
			skipped++
			continue
		}
		if b.attributes&attrAppendTime != 0 {
			change.Timestamp = b.maxTime
		} else {
			change.Timestamp += b.firstTime
		}
		d.changes = append(d.changes, change)
	}
	return skipped, nil
}

// record reads one record; the timestamp is relative to the batch's. Headers are not looked at.
func record(in []byte) (offsetDelta store.Offset, c store.Change, headers []byte, ok bool) {
	if len(in) < 1 {
		return 0, c, nil, false
	}
	in = in[1:] // attributes, unused
	time, n := binary.Varint(in)
	if n <= 0 {
		return 0, c, nil, false
	}
	in = in[n:]
	delta, n := binary.Varint(in)
	if n <= 0 {
		return 0, c, nil, false
	}
	in = in[n:]
	key, in, ok := nullable(in)
	if !ok {
		return 0, c, nil, false
	}
	value, headers, ok := nullable(in)
	return store.Offset(delta), store.Change{Key: key, Value: value, Timestamp: time}, headers, ok
}

// nullable reads bytes with a length before them: -1 is null, 0 is empty.
func nullable(in []byte) (b, rest []byte, ok bool) {
	size, n := binary.Varint(in)
	if n <= 0 || size < -1 || int64(len(in)-n) < size {
		return nil, nil, false
	}
	if size == -1 {
		return nil, in[n:], true
	}
	end := n + int(size)
	return in[n:end:end], in[end:], true
}

func (d *decoder) flush(n *counts, apply func([]store.Change) error) error {
	if len(d.changes) == 0 {
		return nil
	}
	n.records += int64(len(d.changes))
	err := apply(d.changes)
	d.reset()
	return err
}

// reset forgets the changes and keeps what it may of the buffers.
func (d *decoder) reset() {
	clear(d.changes)
	d.changes = d.changes[:0]
	clear(d.places)
	d.places = d.places[:0]
	for _, buf := range d.inflated {
		d.keep(buf)
	}
	clear(d.inflated)
	d.inflated = d.inflated[:0]
	d.inflatedBytes = 0
}

// abortedTransactions holds, per producer, the first offsets of its aborted transactions, ascending.
type abortedTransactions map[int64][]store.Offset

func abortedBy(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) abortedTransactions {
	if len(list) == 0 {
		return nil
	}
	a := make(abortedTransactions, len(list))
	for _, t := range list {
		a[t.ProducerID] = append(a[t.ProducerID], store.Offset(t.FirstOffset))
	}
	for _, firsts := range a {
		slices.Sort(firsts) // brokers need not send them in order
	}
	return a
}

// hides reports whether b belongs to an aborted transaction.
func (a abortedTransactions) hides(b *batch) bool {
	if len(a) == 0 || b.attributes&attrTransaction == 0 {
		return false
	}
	firsts := a[b.producer]
	return len(firsts) > 0 && b.first >= firsts[0]
}

// ended takes note of a control batch: an abort marker ends its producer's oldest aborted transaction.
func (a abortedTransactions) ended(b *batch) {
	if len(a) == 0 || !isAbort(b.records()) {
		return
	}
	if firsts := a[b.producer]; len(firsts) > 0 && b.first >= firsts[0] {
		a[b.producer] = firsts[1:]
	}
}

// isAbort reads the first record of a control batch: its key is version and type, type 0 aborts.
func isAbort(records []byte) bool {
	size, n := binary.Varint(records)
	if n <= 0 || size < 0 || int64(len(records)-n) < size {
		return false
	}
	_, c, _, ok := record(records[n : n+int(size)])
	return ok && len(c.Key) >= 4 && binary.BigEndian.Uint16(c.Key[2:]) == 0
}
