package streams

import (
	"errors"
	"iter"
	"math"

	"github.com/statemesh/statemesh/store"
)

// Stamped is a value with its time in Unix milliseconds (upstream's ValueAndTimestamp).
type Stamped[V any] struct {
	Value     V
	Timestamp int64
}

// Row is a row of a scan. Start and End are those of its window (End exclusive), session (inclusive) or version (exclusive, store.NoEnd for
// the latest), in Unix milliseconds; Timestamp is -1 in a [KeyValue] and a [Session], which keep none.
type Row[K, V any] struct {
	Key                   K
	Value                 V
	Timestamp, Start, End int64
}

// coding makes bytes of keys and values, for one handle.
type coding[K, V any] struct {
	ctx    *processorContext
	keys   coder[K]
	values coder[V]
}

func (c *coding[K, V]) key(k K) ([]byte, error) { return c.keys.encode(k, encoded[K]{}) }

// value is nil, a deletion, for a value that is null.
func (c *coding[K, V]) value(v V, timestamp int64) (store.Value, error) {
	b, err := c.values.encode(v, encoded[V]{})
	return store.Value{Data: b, Timestamp: timestamp}, err
}

// both encodes a key and the value it gets.
func (c *coding[K, V]) both(k K, v V, timestamp int64) ([]byte, store.Value, error) {
	kb, err := c.key(k)
	if err != nil {
		return nil, store.Value{}, err
	}
	val, err := c.value(v, timestamp)
	return kb, val, err
}

// found decodes what a store returned; ok is false for nothing.
func (c *coding[K, V]) found(got store.Value, err error) (s Stamped[V], ok bool, _ error) {
	if errors.Is(err, store.ErrNotFound) {
		return s, false, nil
	} else if err != nil {
		return s, false, err
	}
	s.Value, err = c.values.serde.Decode(got.Data)
	s.Timestamp = got.Timestamp
	return s, err == nil, err
}

// rows decodes a scan; an error is the last that it yields.
func (c *coding[K, V]) rows(open func() (store.Iterator, error)) iter.Seq2[Row[K, V], error] {
	return func(yield func(Row[K, V], error) bool) {
		it, err := open()
		if err != nil {
			yield(Row[K, V]{}, err)
			return
		}
		defer it.Close()
		for it.Next() {
			e := it.Entry()
			r := Row[K, V]{Timestamp: e.Timestamp, Start: e.Start, End: e.End}
			if r.Key, err = c.keys.serde.Decode(e.Key); err == nil {
				r.Value, err = c.values.serde.Decode(e.Data)
			}
			if err != nil {
				yield(Row[K, V]{}, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
		if err := it.Err(); err != nil {
			yield(Row[K, V]{}, err)
		}
	}
}

// entries is what both kinds of key-value store have.
type entries[K, V any] struct {
	coding[K, V]

	kv store.KeyValue
}

func (e *entries[K, V]) get(k K) (Stamped[V], bool, error) {
	kb, err := e.key(k)
	if err != nil {
		return Stamped[V]{}, false, err
	}
	return e.found(e.kv.Get(kb))
}

func (e *entries[K, V]) put(k K, v V, timestamp int64) error {
	kb, val, err := e.both(k, v, timestamp)
	if err != nil {
		return err
	}
	return e.kv.Put(kb, val)
}

func (e *entries[K, V]) putIfAbsent(k K, v V, timestamp int64) (old Stamped[V], was bool, err error) {
	kb, val, err := e.both(k, v, timestamp)
	if err != nil {
		return old, false, err
	}
	got, was, err := e.kv.PutIfAbsent(kb, val)
	if err != nil || !was {
		return old, false, err
	}
	return e.found(got, nil)
}

func (e *entries[K, V]) remove(k K) (old Stamped[V], was bool, err error) {
	kb, err := e.key(k)
	if err != nil {
		return old, false, err
	}
	got, was, err := e.kv.Delete(kb)
	if err != nil || !was {
		return old, false, err
	}
	return e.found(got, nil)
}

// ApproximateCount estimates the number of keys.
func (e *entries[K, V]) ApproximateCount() (int64, error) { return e.kv.ApproximateCount() }

// Scan yields the rows that s selects, by the order of the bytes of keys. The store may be written meanwhile: the rows are those at the
// beginning. An error is the last that it yields.
func (e *entries[K, V]) Scan(s store.Scan) iter.Seq2[Row[K, V], error] {
	return e.rows(func() (store.Iterator, error) { return e.kv.Scan(s) })
}

// All yields all rows; see Scan.
func (e *entries[K, V]) All() iter.Seq2[Row[K, V], error] { return e.Scan(store.Scan{}) }

// Range yields the rows between two keys, both included, by the order of their bytes; see Scan.
func (e *entries[K, V]) Range(from, to K) iter.Seq2[Row[K, V], error] {
	return e.rows(func() (store.Iterator, error) {
		fb, err := e.keys.serde.Encode(from)
		if err != nil {
			return nil, err
		}
		tb, err := e.keys.serde.Encode(to)
		if err != nil {
			return nil, err
		}
		return e.kv.Scan(store.Scan{From: fb, To: tb})
	})
}

// KeyValue is a key-value store in the hands of a processor (upstream's KeyValueStore). It belongs to the stream thread of its task and
// sees what the running commit has written.
type KeyValue[K, V any] struct{ entries[K, V] }

// Get returns the value of a key; ok is false when there is none.
func (s *KeyValue[K, V]) Get(k K) (v V, ok bool, err error) {
	got, ok, err := s.get(k)
	return got.Value, ok, err
}

// Put sets the value of a key; one that is null deletes it. *store.TooLargeError for what the changelog would not take.
func (s *KeyValue[K, V]) Put(k K, v V) error { return s.put(k, v, s.ctx.now) }

// PutIfAbsent sets the value of a key that has none; it returns the one that was there, and true.
func (s *KeyValue[K, V]) PutIfAbsent(k K, v V) (old V, was bool, err error) {
	got, was, err := s.putIfAbsent(k, v, s.ctx.now)
	return got.Value, was, err
}

// Delete takes the value of a key away and returns it, and true if there was one.
func (s *KeyValue[K, V]) Delete(k K) (old V, was bool, err error) {
	got, was, err := s.remove(k)
	return got.Value, was, err
}

// TimestampedKeyValue is a key-value store with the times of values (upstream's TimestampedKeyValueStore); see [KeyValue].
type TimestampedKeyValue[K, V any] struct{ entries[K, V] }

// Get returns the value of a key with its time; ok is false when there is none.
func (s *TimestampedKeyValue[K, V]) Get(k K) (v Stamped[V], ok bool, err error) { return s.get(k) }

// Put sets the value of a key; one that is null deletes it.
func (s *TimestampedKeyValue[K, V]) Put(k K, v V, timestamp int64) error {
	return s.put(k, v, timestamp)
}

// PutIfAbsent sets the value of a key that has none; it returns the one that was there, and true.
func (s *TimestampedKeyValue[K, V]) PutIfAbsent(k K, v V, timestamp int64) (old Stamped[V], was bool, err error) {
	return s.putIfAbsent(k, v, timestamp)
}

// Delete takes the value of a key away and returns it, and true if there was one.
func (s *TimestampedKeyValue[K, V]) Delete(k K) (old Stamped[V], was bool, err error) {
	return s.remove(k)
}

// Window is a window store in the hands of a processor (upstream's TimestampedWindowStore).
type Window[K, V any] struct {
	coding[K, V]

	store store.Window
}

// Put sets the value of the window of a key that starts at start; one that is null deletes it. What is older than retention is dropped and
// counted.
func (s *Window[K, V]) Put(k K, start int64, v V, timestamp int64) error {
	kb, val, err := s.both(k, v, timestamp)
	if err != nil {
		return err
	}
	return s.store.Put(kb, start, val)
}

// Fetch returns the value of the window of a key that starts at start; ok is false when there is none.
func (s *Window[K, V]) Fetch(k K, start int64) (v Stamped[V], ok bool, err error) {
	kb, err := s.key(k)
	if err != nil {
		return v, false, err
	}
	return s.found(s.store.Fetch(kb, start))
}

// Of yields the windows of a key whose starts are from and to or between, in their order.
func (s *Window[K, V]) Of(k K, from, to int64) iter.Seq2[Row[K, V], error] {
	return s.rows(func() (store.Iterator, error) {
		kb, err := s.keys.serde.Encode(k)
		if err != nil {
			return nil, err
		}
		return s.store.Scan(store.WindowScan{Key: kb, From: max(0, from), To: to})
	})
}

// Scan yields the rows that a scan selects.
func (s *Window[K, V]) Scan(scan store.WindowScan) iter.Seq2[Row[K, V], error] {
	return s.rows(func() (store.Iterator, error) { return s.store.Scan(scan) })
}

// All yields all rows, by key and start.
func (s *Window[K, V]) All() iter.Seq2[Row[K, V], error] {
	return s.Scan(store.WindowScan{To: math.MaxInt64})
}

// Session is a session store in the hands of a processor (upstream's SessionStore).
type Session[K, V any] struct {
	coding[K, V]

	store store.Session
}

// Put sets the value of the session of a key from start to end, both included; one that is null removes it.
func (s *Session[K, V]) Put(k K, start, end int64, v V) error {
	kb, val, err := s.both(k, v, s.ctx.now)
	if err != nil {
		return err
	}
	return s.store.Put(kb, start, end, val)
}

// Remove takes a session away.
func (s *Session[K, V]) Remove(k K, start, end int64) error {
	kb, err := s.key(k)
	if err != nil {
		return err
	}
	return s.store.Remove(kb, start, end)
}

// Fetch returns the value of exactly this session; ok is false when there is none.
func (s *Session[K, V]) Fetch(k K, start, end int64) (v V, ok bool, err error) {
	kb, err := s.key(k)
	if err != nil {
		return v, false, err
	}
	got, ok, err := s.found(s.store.Fetch(kb, start, end))
	return got.Value, ok, err
}

// Find yields the sessions of a key that end at earliestEnd or later and start at latestStart or earlier (upstream's findSessions).
func (s *Session[K, V]) Find(k K, earliestEnd, latestStart int64) iter.Seq2[Row[K, V], error] {
	return s.rows(func() (store.Iterator, error) {
		kb, err := s.keys.serde.Encode(k)
		if err != nil {
			return nil, err
		}
		return s.store.Scan(store.SessionScan{Key: kb, EarliestEnd: earliestEnd, LatestEnd: math.MaxInt64, LatestStart: latestStart})
	})
}

// Scan yields the rows that a scan selects.
func (s *Session[K, V]) Scan(scan store.SessionScan) iter.Seq2[Row[K, V], error] {
	return s.rows(func() (store.Iterator, error) { return s.store.Scan(scan) })
}

// Versioned is a versioned store in the hands of a processor (upstream's VersionedKeyValueStore).
type Versioned[K, V any] struct {
	coding[K, V]

	store store.Versioned
}

// Version is a value that was valid from Timestamp to ValidTo, exclusive, in Unix milliseconds; store.NoEnd for the latest (upstream's
// VersionedRecord).
type Version[V any] struct {
	Stamped[V]

	ValidTo int64
}

// Put adds the version that begins at timestamp; one that is null is a tombstone. It returns when its validity ends: store.NoEnd for the
// latest, store.NotPut for one that is older than history goes back.
func (s *Versioned[K, V]) Put(k K, v V, timestamp int64) (validTo int64, err error) {
	kb, val, err := s.both(k, v, timestamp)
	if err != nil {
		return 0, err
	}
	return s.store.Put(kb, val)
}

// Delete puts a tombstone at timestamp and returns what was valid then; ok is false when nothing was.
func (s *Versioned[K, V]) Delete(k K, timestamp int64) (old Version[V], ok bool, err error) {
	kb, err := s.key(k)
	if err != nil {
		return old, false, err
	}
	return s.version(s.store.Delete(kb, timestamp))
}

// Get returns the latest version of a key; ok is false when there is none.
func (s *Versioned[K, V]) Get(k K) (v Version[V], ok bool, err error) {
	kb, err := s.key(k)
	if err != nil {
		return v, false, err
	}
	return s.version(s.store.Get(kb))
}

// GetAsOf returns the version of a key that was valid at a time; ok is false when none was.
func (s *Versioned[K, V]) GetAsOf(k K, asOf int64) (v Version[V], ok bool, err error) {
	kb, err := s.key(k)
	if err != nil {
		return v, false, err
	}
	return s.version(s.store.GetAsOf(kb, asOf))
}

// Versions yields the versions of a key that were valid between from and to, both included, oldest first.
func (s *Versioned[K, V]) Versions(k K, from, to int64) iter.Seq2[Row[K, V], error] {
	return s.rows(func() (store.Iterator, error) {
		kb, err := s.keys.serde.Encode(k)
		if err != nil {
			return nil, err
		}
		return s.store.Scan(store.VersionScan{Key: kb, From: from, To: to})
	})
}

func (s *Versioned[K, V]) version(got store.Version, err error) (v Version[V], ok bool, _ error) {
	v.Stamped, ok, err = s.found(got.Value, err)
	v.ValidTo = got.ValidTo
	return v, ok, err
}
