package streamstest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Row of a store, decoded.
type Row[K, V any] struct {
	Key   K
	Value V
	// Timestamp in Unix milliseconds; -1 in a store that keeps none.
	Timestamp int64
	// Start and End, in Unix milliseconds: of a window (End exclusive), a session (both inclusive) or the validity of a version (End
	// exclusive, store.NoEnd for the latest). 0 in key-value stores.
	Start, End int64
}

// String is "key=value@timestamp", with "[start,end]" behind the key where there are any. The end of the latest version is left out.
func (r Row[K, V]) String() string {
	window := ""
	switch {
	case r.Start == 0 && r.End == 0:
	case r.End == store.NoEnd:
		window = fmt.Sprintf("[%d,]", r.Start)
	default:
		window = fmt.Sprintf("[%d,%d]", r.Start, r.End)
	}
	return fmt.Sprintf("%v%s=%v@%d", r.Key, window, r.Value, r.Timestamp)
}

// view is one store as a test reads it.
type view[K, V any] struct {
	d         *Driver
	name      store.Name
	info      router.StoreInfo
	keys      serde.Serde[K]
	values    serde.Serde[V]
	isolation store.Isolation
	partition store.Partition // -1: that of the key, and all for scans
	all       int             // partitions
}

func newView[K, V any](d *Driver, name store.Name, keys serde.Serde[K], values serde.Serde[V]) view[K, V] {
	d.helper()()
	info, err := d.d.Store(name)
	d.check(err)
	d.check(keys.Err())
	d.check(values.Err())
	v := view[K, V]{d: d, name: name, info: info, keys: keys, values: values, partition: -1}
	for _, t := range d.Tasks() {
		if t.Subtopology == info.Subtopology {
			v.all++
		}
	}
	v.all = max(v.all, 1) // a global store has no tasks
	return v
}

// find looks a key up in the partition where a query looks for it. The error is of the key, or of the read.
func (v *view[K, V]) find(key K, get func(store.Reading, []byte) (store.Value, error)) (Row[K, V], bool) {
	v.d.helper()()
	k, err := v.keys.Encode(key)
	v.d.check(err)
	rd, err := v.d.Read(v.name, v.partitionOf(k), v.isolation)
	v.d.check(err)
	defer rd.Close()
	found, err := get(rd, k)
	if errors.Is(err, store.ErrNotFound) {
		return Row[K, V]{}, false
	}
	v.d.check(err)
	row, err := v.row(store.Entry{Key: k, Value: found})
	v.d.check(err)
	return row, true
}

// partitionOf is where a key is looked for.
func (v *view[K, V]) partitionOf(key []byte) store.Partition {
	if v.partition >= 0 || len(key) == 0 {
		return max(v.partition, 0)
	}
	return router.PartitionFor(key, v.info.Partitions)
}

// scan reads rows of all partitions, in the store's order.
func (v *view[K, V]) scan(open func(store.Reading) (store.Iterator, error)) []Row[K, V] {
	v.d.helper()()
	first, last := store.Partition(0), store.Partition(v.all)
	if v.partition >= 0 {
		first, last = v.partition, v.partition+1
	}
	var entries []store.Entry
	for p := first; p < last; p++ {
		es, err := v.entries(p, open)
		v.d.check(err)
		entries = append(entries, es...)
	}
	slices.SortStableFunc(entries, func(a, b store.Entry) int { return bytes.Compare(a.Cursor, b.Cursor) })
	var rows []Row[K, V]
	for _, e := range entries {
		row, err := v.row(e)
		v.d.check(err)
		rows = append(rows, row)
	}
	return rows
}

func (v *view[K, V]) entries(p store.Partition, open func(store.Reading) (store.Iterator, error)) (entries []store.Entry, err error) {
	rd, err := v.d.Read(v.name, p, v.isolation)
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	it, err := open(rd)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Next() {
		entries = append(entries, it.Entry())
	}
	return entries, it.Err()
}

func (v *view[K, V]) row(e store.Entry) (row Row[K, V], err error) {
	row.Timestamp, row.Start, row.End = e.Timestamp, e.Start, e.End
	if row.Key, err = v.keys.Decode(e.Key); err != nil {
		return row, fmt.Errorf("store %s: key: %w", v.name, err)
	}
	if row.Value, err = v.values.Decode(e.Data); err != nil {
		return row, fmt.Errorf("store %s: value: %w", v.name, err)
	}
	return row, nil
}

// KeyValue reads a key-value store, of the last commit. A global store is one too.
type KeyValue[K, V any] struct{ view[K, V] }

// NewKeyValue returns a reader of a key-value store.
func NewKeyValue[K, V any](d *Driver, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *KeyValue[K, V] {
	d.helper()()
	return &KeyValue[K, V]{newView(d, name, keys, values)}
}

// Uncommitted reads what processors see: also what is not committed.
func (s *KeyValue[K, V]) Uncommitted() *KeyValue[K, V] {
	c := *s
	c.isolation = store.ReadUncommitted
	return &c
}

// In reads one partition, also keys that a query would look for in another one.
func (s *KeyValue[K, V]) In(p store.Partition) *KeyValue[K, V] {
	c := *s
	c.partition = p
	return &c
}

// Get returns the value of a key, from the partition where a query looks for it.
func (s *KeyValue[K, V]) Get(key K) (V, bool) {
	s.d.helper()()
	row, ok := s.Row(key)
	return row.Value, ok
}

// Row returns the row of a key.
func (s *KeyValue[K, V]) Row(key K) (Row[K, V], bool) {
	s.d.helper()()
	return s.find(key, func(rd store.Reading, k []byte) (store.Value, error) {
		kv, err := rd.KeyValue()
		if err != nil {
			return store.Value{}, err
		}
		return kv.Get(s.d.ctx, k)
	})
}

// Rows returns all of them, in the order of the keys' bytes.
func (s *KeyValue[K, V]) Rows() []Row[K, V] {
	s.d.helper()()
	return s.scan(func(rd store.Reading) (store.Iterator, error) {
		kv, err := rd.KeyValue()
		if err != nil {
			return nil, err
		}
		return kv.Scan(s.d.ctx, store.Scan{})
	})
}

// Map returns a store's values by their keys.
func Map[K comparable, V any](s *KeyValue[K, V]) map[K]V {
	s.d.helper()()
	m := make(map[K]V)
	for _, r := range s.Rows() {
		m[r.Key] = r.Value
	}
	return m
}
