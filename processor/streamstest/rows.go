package streamstest

import (
	"math"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Window reads a window store, of the last commit.
type Window[K, V any] struct{ view[K, V] }

// NewWindow returns a reader of a window store.
func NewWindow[K, V any](d *Driver, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *Window[K, V] {
	d.helper()()
	return &Window[K, V]{newView(d, name, keys, values)}
}

// Uncommitted reads what processors see: also what is not committed.
func (s *Window[K, V]) Uncommitted() *Window[K, V] {
	c := *s
	c.isolation = store.ReadUncommitted
	return &c
}

// In reads one partition, also keys that a query would look for in another one.
func (s *Window[K, V]) In(p store.Partition) *Window[K, V] {
	c := *s
	c.partition = p
	return &c
}

// Fetch returns the value of the window of a key that begins at start, in Unix milliseconds.
func (s *Window[K, V]) Fetch(key K, start int64) (V, bool) {
	s.d.helper()()
	row, ok := s.find(key, func(rd store.Reading, k []byte) (store.Value, error) {
		w, err := rd.Windows()
		if err != nil {
			return store.Value{}, err
		}
		return w.Fetch(s.d.ctx, k, start)
	})
	return row.Value, ok
}

// Rows returns all windows of all keys, in the order of key and start.
func (s *Window[K, V]) Rows() []Row[K, V] {
	s.d.helper()()
	return s.scan(func(rd store.Reading) (store.Iterator, error) {
		w, err := rd.Windows()
		if err != nil {
			return nil, err
		}
		return w.Scan(s.d.ctx, store.WindowScan{To: math.MaxInt64})
	})
}

// Session reads a session store, of the last commit.
type Session[K, V any] struct{ view[K, V] }

// NewSession returns a reader of a session store.
func NewSession[K, V any](d *Driver, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *Session[K, V] {
	d.helper()()
	return &Session[K, V]{newView(d, name, keys, values)}
}

// Uncommitted reads what processors see: also what is not committed.
func (s *Session[K, V]) Uncommitted() *Session[K, V] {
	c := *s
	c.isolation = store.ReadUncommitted
	return &c
}

// In reads one partition, also keys that a query would look for in another one.
func (s *Session[K, V]) In(p store.Partition) *Session[K, V] {
	c := *s
	c.partition = p
	return &c
}

// Fetch returns the value of exactly this session, in Unix milliseconds, both inclusive.
func (s *Session[K, V]) Fetch(key K, start, end int64) (V, bool) {
	s.d.helper()()
	row, ok := s.find(key, func(rd store.Reading, k []byte) (store.Value, error) {
		w, err := rd.Sessions()
		if err != nil {
			return store.Value{}, err
		}
		return w.Fetch(s.d.ctx, k, start, end)
	})
	return row.Value, ok
}

// Rows returns all sessions of all keys, in the order of key, end and start.
func (s *Session[K, V]) Rows() []Row[K, V] {
	s.d.helper()()
	return s.scan(func(rd store.Reading) (store.Iterator, error) {
		w, err := rd.Sessions()
		if err != nil {
			return nil, err
		}
		return w.Scan(s.d.ctx, store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
	})
}

// Versioned reads a versioned store, of the last commit.
type Versioned[K, V any] struct{ view[K, V] }

// NewVersioned returns a reader of a versioned store.
func NewVersioned[K, V any](d *Driver, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *Versioned[K, V] {
	d.helper()()
	return &Versioned[K, V]{newView(d, name, keys, values)}
}

// Uncommitted reads what processors see: also what is not committed.
func (s *Versioned[K, V]) Uncommitted() *Versioned[K, V] {
	c := *s
	c.isolation = store.ReadUncommitted
	return &c
}

// In reads one partition, also keys that a query would look for in another one.
func (s *Versioned[K, V]) In(p store.Partition) *Versioned[K, V] {
	c := *s
	c.partition = p
	return &c
}

// Get returns the latest version of a key.
func (s *Versioned[K, V]) Get(key K) (V, bool) {
	s.d.helper()()
	row, ok := s.find(key, func(rd store.Reading, k []byte) (store.Value, error) {
		r, err := rd.Versions()
		if err != nil {
			return store.Value{}, err
		}
		v, err := r.Get(s.d.ctx, k)
		return v.Value, err
	})
	return row.Value, ok
}

// GetAsOf returns the version that was valid at a time, in Unix milliseconds.
func (s *Versioned[K, V]) GetAsOf(key K, asOf int64) (V, bool) {
	s.d.helper()()
	row, ok := s.find(key, func(rd store.Reading, k []byte) (store.Value, error) {
		r, err := rd.Versions()
		if err != nil {
			return store.Value{}, err
		}
		v, err := r.GetAsOf(s.d.ctx, k, asOf)
		return v.Value, err
	})
	return row.Value, ok
}

// Versions returns the versions of a key, oldest first.
func (s *Versioned[K, V]) Versions(key K) []Row[K, V] {
	s.d.helper()()
	k, err := s.keys.Encode(key)
	s.d.check(err)
	one := s.view
	one.partition = s.partitionOf(k)
	return one.scan(func(rd store.Reading) (store.Iterator, error) {
		r, err := rd.Versions()
		if err != nil {
			return nil, err
		}
		return r.Scan(s.d.ctx, store.VersionScan{Key: k, To: math.MaxInt64})
	})
}
