package streams

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// buffer holds changes back in one task: the last of each key, in the order in which they are due. It is a key-value store with two rows
// for each key, so it is as durable as any store, and only as large in memory as what the running commit has changed:
//
//	k key           when due, and the change
//	t when due key  nothing
type buffer struct {
	rows    store.KeyValue
	row     []byte
	value   []byte
	metrics *bufferMetrics
	// first is when the first one is due; MaxInt64: nothing is held back.
	first          int64
	records, bytes int64
	// begin of the rows in the order of time.
	begin frontier
}

// held is a change that is held back.
type held struct {
	due, timestamp int64
	headers        []processor.Header
	// before and next are the values before the first change and after the last; nil for none.
	before, next []byte
}

// The rows.
const (
	heldRow = 'k'
	dueRow  = 't'
	dueSize = 9 // of a row in the order of time, before the key
)

// openBuffer counts what is there.
func openBuffer(ctx *processor.Context, name store.Name) (*buffer, error) {
	rows, err := ctx.Store(name)
	if err != nil {
		return nil, err
	}
	b := &buffer{rows: rows, first: math.MaxInt64, metrics: newBufferMetrics(ctx, name)}
	it, err := rows.Scan(store.Scan{Prefix: []byte{heldRow}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		h, err := parseHeld(e.Data)
		if err != nil {
			return nil, err
		}
		b.first = min(b.first, h.due)
		b.count(1, len(e.Key)+len(e.Data))
	}
	return b, it.Err()
}

func (b *buffer) close() error {
	b.count(-b.records, -int(b.bytes))
	return nil
}

func (b *buffer) count(records int64, bytes int) {
	b.records += records
	b.bytes += int64(bytes)
	b.metrics.records.Add(float64(records))
	b.metrics.bytes.Add(float64(bytes))
}

// put holds a change back until due, or puts it in the place of an earlier one of its key: when that is due, and what was before it, stay.
func (b *buffer) put(key []byte, due int64, h *held) error {
	b.row = append(append(b.row[:0], heldRow), key...)
	had, err := b.rows.Get(b.row)
	isNew := errors.Is(err, store.ErrNotFound)
	switch {
	case isNew:
		h.due = due
	case err != nil:
		return err
	default:
		old, err := parseHeld(had.Data)
		if err != nil {
			return err
		}
		h.due, h.before = old.due, old.before
	}
	b.value = appendHeld(b.value[:0], h)
	if err := b.rows.Put(b.row, store.Value{Data: b.value, Timestamp: h.timestamp}); err != nil {
		return err
	}
	b.count(0, len(b.value)-len(had.Data))
	if !isNew {
		return nil
	}
	b.count(1, len(b.row))
	b.first = min(b.first, h.due)
	b.row = append(appendDue(b.row[:0], h.due), key...)
	b.begin.put(b.row)
	return b.rows.Put(b.row, store.Value{Data: []byte{}, Timestamp: h.timestamp})
}

// appendDue appends the beginning of a row in the order of time, negative times included.
func appendDue(dst []byte, due int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, dueRow), uint64(due)^1<<63)
}

// release takes changes out, that which is due first at first, while more is true and there are any.
func (b *buffer) release(more func() bool, tell func(key []byte, h *held) error) error {
	if b.records == 0 || !more() {
		return nil
	}
	it, err := b.rows.Scan(store.Scan{From: b.begin.from(dueRow), To: []byte{dueRow + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		b.first = int64(binary.BigEndian.Uint64(e.Key[1:]) ^ 1<<63)
		if !more() {
			return nil
		}
		if err := b.take(e.Key, tell); err != nil {
			return err
		}
	}
	if it.Err() == nil {
		b.first = math.MaxInt64
	}
	return it.Err()
}

// take takes a change out, by its row in the order of time.
func (b *buffer) take(row []byte, tell func(key []byte, h *held) error) error {
	key := row[dueSize:]
	b.row = append(append(b.row[:0], heldRow), key...)
	had, ok, err := b.rows.Delete(b.row)
	if err != nil {
		return err
	}
	if _, _, err := b.rows.Delete(row); err != nil {
		return err
	}
	b.begin.passed(row)
	if !ok {
		return errHeld
	}
	b.count(-1, -len(b.row)-len(had.Data))
	h, err := parseHeld(had.Data)
	if err != nil {
		return err
	}
	return tell(key, &h)
}

// lookUp returns what is held back of a key.
func lookUp(rows store.KeyValue, key []byte) (h held, ok bool, err error) {
	got, err := rows.Get(append([]byte{heldRow}, key...))
	if errors.Is(err, store.ErrNotFound) {
		return h, false, nil
	} else if err != nil {
		return h, false, err
	}
	h, err = parseHeld(got.Data)
	return h, err == nil, err
}

// appendHeld appends the bytes of a change: two times, then values and headers, each with its length and one more, 0 standing for null.
func appendHeld(dst []byte, h *held) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.due))
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.timestamp))
	dst = appendBytes(appendBytes(dst, h.before), h.next)
	for _, x := range h.headers {
		dst = appendBytes(appendBytes(dst, []byte(x.Key)), x.Value)
	}
	return dst
}

func parseHeld(b []byte) (h held, err error) {
	if len(b) < 16 {
		return h, errHeld
	}
	h.due, h.timestamp = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
	b = b[16:]
	var ok bool
	if h.before, b, ok = cutBytes(b); !ok {
		return h, errHeld
	}
	if h.next, b, ok = cutBytes(b); !ok {
		return h, errHeld
	}
	for len(b) > 0 {
		var key, value []byte
		if key, b, ok = cutBytes(b); !ok {
			return h, errHeld
		}
		if value, b, ok = cutBytes(b); !ok {
			return h, errHeld
		}
		h.headers = append(h.headers, processor.Header{Key: string(key), Value: value})
	}
	return h, nil
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...)
}

func cutBytes(b []byte) (first, rest []byte, ok bool) {
	n, at := binary.Uvarint(b)
	if at <= 0 || n > uint64(len(b)-at)+1 {
		return nil, nil, false
	}
	b = b[at:]
	if n == 0 {
		return nil, b, true
	}
	return b[: n-1 : n-1], b[n-1:], true
}
