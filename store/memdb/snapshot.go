package memdb

import (
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// snapshot reads copies that nobody changes any more.
type snapshot struct {
	trees    map[treeID]*tree
	released atomic.Bool
}

func (s *snapshot) Get(id engine.StoreID, segment engine.Segment, key, dst []byte) ([]byte, error) {
	if s.released.Load() {
		return nil, store.ErrClosed
	}
	t := s.trees[treeID{id, segment}]
	if t == nil {
		return nil, store.ErrNotFound
	}
	v, ok := t.Get(string(key))
	if !ok {
		return nil, store.ErrNotFound
	}
	if dst == nil {
		dst = make([]byte, 0, len(v)) // an empty value is not nil
	}
	return append(dst, v...), nil
}

func (s *snapshot) Iterate(r engine.Range) (engine.Iterator, error) {
	if s.released.Load() {
		return nil, store.ErrClosed
	}
	t := s.trees[treeID{r.Store, r.Segment}]
	if t == nil {
		t = new(tree)
	}
	return &iterator{it: t.Iter(), r: r}, nil
}

func (s *snapshot) Release() { s.released.Store(true) }

// iterator walks one tree within a range.
type iterator struct {
	it      btree.MapIter[string, []byte]
	r       engine.Range
	started bool
	done    bool
	key     []byte
	value   []byte
}

func (i *iterator) Next() bool {
	if i.done {
		return false
	}
	ok := i.step()
	if ok {
		k := i.it.Key()
		ok = (i.r.From == nil || k >= string(i.r.From)) && (i.r.To == nil || k < string(i.r.To))
	}
	if !ok {
		i.Close()
		return false
	}
	i.key = append(i.key[:0], i.it.Key()...)
	i.value = i.it.Value()
	return true
}

func (i *iterator) Key() []byte   { return i.key }
func (i *iterator) Value() []byte { return i.value }
func (i *iterator) Err() error    { return nil }

func (i *iterator) Close() {
	i.done = true
	i.it = btree.MapIter[string, []byte]{}
}

// step moves to the next key in the direction of the range, without a look at its far end.
func (i *iterator) step() bool {
	started := i.started
	i.started = true
	switch {
	case started && i.r.Reverse:
		return i.it.Prev()
	case started:
		return i.it.Next()
	case i.r.Reverse && i.r.To == nil:
		return i.it.Last()
	case i.r.Reverse:
		if i.it.Seek(string(i.r.To)) { // at or above To, which is exclusive
			return i.it.Prev()
		}
		return i.it.Last()
	case i.r.From == nil:
		return i.it.First()
	default:
		return i.it.Seek(string(i.r.From))
	}
}
