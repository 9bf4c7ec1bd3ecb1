package streams

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// waiting holds the records of a stream for a time, in the order of their times, before they are joined (upstream's
// RocksDBTimeOrderedKeyValueBuffer). Rows are keyed by time and a number, which tells records of one time apart, also after a restart.
type waiting[K, V, W any] struct {
	spec   store.Spec
	grace  time.Duration
	keys   serde.Serde[K]
	values serde.Serde[V]
	join   operator[Record[K, V], Record[K, W]]
}

func (w *waiting[K, V, W]) check(b *Builder, node string, versioned bool, history time.Duration) {
	if reason := graceReason(w.grace, versioned, history); reason != "" {
		b.fail(node, "%s", reason)
	}
	b.needs(node, "keys", w.keys.Err())
	b.needs(node, "values", w.values.Err())
}

func (w *waiting[K, V, W]) operator(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
	kv, err := sc.Store(w.spec.Name)
	if err != nil {
		return nil, err
	}
	join, err := w.join(sc)
	if err != nil {
		return nil, err
	}
	seen, err := sc.ObservedTime(string(w.spec.Name))
	if err != nil {
		return nil, err
	}
	q := &waitingRows[K, V]{
		kv: kv, seen: seen, first: math.MaxInt64, keys: coder[K]{serde: w.keys}, values: coder[V]{serde: w.values},
		decoder: newRecordDecoder(w.keys, w.values),
	}
	if err := q.load(); err != nil {
		return nil, err
	}
	grace := w.grace.Milliseconds()
	return func(r *Record[K, V]) error {
		until := q.seen.Observe(r.Timestamp) - grace
		if r.NoKey || r.NoValue || r.Timestamp < until {
			return join(r) // dropped there, if it has to be; too late to wait
		}
		if err := q.put(r); err != nil {
			return err
		}
		return q.release(until, join)
	}, nil
}

// waitingRows is a buffer in one task.
type waitingRows[K, V any] struct {
	kv store.KeyValue
	// seen is the time of the records that came, those that do not wait among them. number is the last one used.
	seen   *processor.ObservedTime
	number uint64
	// first is when the first one that waits is from, or earlier; math.MaxInt64: none waits.
	first    int64
	begin    frontier
	keys     coder[K]
	values   coder[V]
	decoder  recordDecoder[K, V]
	row, buf []byte
	out      Record[K, V]
	raw      processor.Record
}

// load finds out what waits after a restart.
func (q *waitingRows[K, V]) load() error {
	it, err := q.kv.Scan(store.Scan{})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		key := it.Entry().Key
		if len(key) != 16 {
			return errWaiting
		}
		at := int64(binary.BigEndian.Uint64(key))
		q.first = min(q.first, at)
		q.seen.Observe(at) // a former version kept no other time
		q.number = max(q.number, binary.BigEndian.Uint64(key[8:]))
	}
	return it.Err()
}

var errWaiting = errors.New("buffer of a join: a row is not what was written")

func (q *waitingRows[K, V]) put(r *Record[K, V]) error {
	kb, err := q.keys.encode(r.Key, r.key)
	if err != nil {
		return err
	}
	vb, err := q.values.encode(r.Value, r.value)
	if err != nil {
		return err
	}
	q.number++
	q.row = binary.BigEndian.AppendUint64(q.row[:0], uint64(r.Timestamp))
	q.row = binary.BigEndian.AppendUint64(q.row, q.number)
	q.first = min(q.first, r.Timestamp)
	q.begin.put(q.row)
	b := appendBytes(q.buf[:0], kb)
	b = appendBytes(b, vb)
	for _, h := range r.Headers {
		b = appendBytes(appendBytes(b, []byte(h.Key)), h.Value)
	}
	q.buf = b
	return q.kv.Put(q.row, store.Value{Data: b})
}

// release hands on what is at most this old and takes it out.
func (q *waitingRows[K, V]) release(until int64, to func(*Record[K, V]) error) error {
	if until < q.first {
		return nil
	}
	it, err := q.kv.Scan(store.Scan{From: q.begin.from()})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		if q.first = int64(binary.BigEndian.Uint64(e.Key)); q.first > until {
			return nil
		}
		if err := q.parse(e.Key, e.Data); err != nil {
			return err
		}
		if err := q.kv.Put(e.Key, store.Value{}); err != nil { // first: what fails behind is not tried again with other records
			return err
		}
		q.begin.passed(e.Key)
		if err := to(&q.out); err != nil {
			return err
		}
	}
	if it.Err() == nil {
		q.first = math.MaxInt64
	}
	return it.Err()
}

func (q *waitingRows[K, V]) parse(row, data []byte) error {
	q.raw = processor.Record{Timestamp: int64(binary.BigEndian.Uint64(row))}
	var ok bool
	if q.raw.Key, data, ok = cutBytes(data); !ok || q.raw.Key == nil {
		return errWaiting
	}
	if q.raw.Value, data, ok = cutBytes(data); !ok || q.raw.Value == nil {
		return errWaiting
	}
	for len(data) > 0 {
		var key, value []byte
		if key, data, ok = cutBytes(data); !ok {
			return errWaiting
		}
		if value, data, ok = cutBytes(data); !ok {
			return errWaiting
		}
		q.raw.Headers = append(q.raw.Headers, processor.Header{Key: string(key), Value: value})
	}
	return q.decoder.decode(&q.raw, &q.out)
}
