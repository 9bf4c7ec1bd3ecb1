package layered_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/storetest"
)

// naiveCache is upstream's record cache over maps: what the real one must look like from outside.
type naiveCache struct {
	max    int
	stores map[store.Name]*naiveStore
	heard  []string
}

// naiveStore is one named cache and the store below it. A value is there or "-"; keys that never were are not in a map.
type naiveStore struct {
	cache                    *naiveCache
	name                     store.Name
	now, flushed, committed  map[string]string
	uses, dirty              []string // oldest first
	written, told            map[string]bool
	rotated, usedSinceRotate bool
}

func newNaiveCache(limit int, names ...store.Name) *naiveCache {
	c := &naiveCache{max: limit, stores: make(map[store.Name]*naiveStore)}
	for _, n := range names {
		c.stores[n] = &naiveStore{
			cache: c, name: n, now: map[string]string{}, flushed: map[string]string{}, committed: map[string]string{},
			written: map[string]bool{}, told: map[string]bool{},
		}
	}
	return c
}

func (c *naiveCache) bytes() int {
	n := 0
	for _, s := range c.stores {
		for _, k := range s.uses {
			n += 45 + len(k) + len(s.now[k])
		}
	}
	return n
}

func forget(list []string, key string) []string {
	return slices.DeleteFunc(list, func(k string) bool { return k == key })
}

func (s *naiveStore) put(key, value string) {
	if s.rotated { // the keys of a table that has moved are no longer in memory
		s.uses, s.rotated = nil, false
	}
	s.usedSinceRotate = true
	s.now[key], s.written[key] = value, true
	if value == "" {
		delete(s.now, key)
	}
	s.uses, s.dirty = append(forget(s.uses, key), key), append(forget(s.dirty, key), key)
	s.evict()
}

func (s *naiveStore) evict() {
	for s.cache.bytes() > s.cache.max && len(s.uses) > 0 {
		s.evictEldest()
	}
}

func (s *naiveStore) evictEldest() {
	eldest := s.uses[0]
	if slices.Contains(s.dirty, eldest) {
		s.tell(eldest)
		s.flush()
	}
	s.uses = forget(s.uses, eldest)
}

func (s *naiveStore) flush() {
	for len(s.dirty) > 0 {
		s.tell(s.dirty[0])
	}
}

func (s *naiveStore) tell(key string) {
	s.dirty = forget(s.dirty, key)
	value, is := s.now[key]
	old, was := s.flushed[key]
	if !is {
		s.uses = forget(s.uses, key)
		if !was {
			return
		}
		value = "-"
	}
	if !was {
		old = "-"
	}
	s.told[key] = true
	s.cache.heard = append(s.cache.heard, fmt.Sprintf("%s/%s=%s(%s)", s.name, key, value, old))
	delete(s.flushed, key)
	if is {
		s.flushed[key] = value
	}
}

// changes are what goes to the changelog.
func (s *naiveStore) changes() map[string]string {
	out := make(map[string]string)
	for key := range s.written {
		value, is := s.now[key]
		if _, was := s.committed[key]; !is && !was && !s.told[key] {
			continue // a delete of what nobody saw
		}
		if !is {
			value = "-"
		}
		out[string(s.name)+"/"+key] = value
	}
	return out
}

func (s *naiveStore) commit() { s.committed = maps.Clone(s.now); s.ended() }

func (s *naiveStore) rollback() {
	s.now, s.flushed = maps.Clone(s.committed), maps.Clone(s.committed)
	s.uses, s.dirty = nil, nil
	s.ended()
}

func (s *naiveStore) ended() { clear(s.written); clear(s.told) }

// TestCacheModel: the record cache against the naive one, step by step: what is heard and in which order, what is read,
// what goes to the changelog, what it costs.
func TestCacheModel(t *testing.T) {
	t.Parallel()
	seed := storetest.Seed(t)
	for run := range uint64(storetest.Seeds()) {
		t.Run(fmt.Sprint("seed ", seed+run), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed+run, 3))
			m := newCacheMachine(t, rng)
			for step := range 3000 {
				m.step()
				m.compare(step)
				if t.Failed() {
					t.Fatalf("after step %d %s: replay with -run TestCacheModel -seeds=1 -seed=%d", step, m.did, seed+run)
				}
			}
		})
	}
}

type cacheMachine struct {
	*cacheBench
	rng   *rand.Rand
	model *naiveCache
	names []store.Name
	dirty bool
	did   string
}

func newCacheMachine(t *testing.T, rng *rand.Rand) *cacheMachine {
	t.Helper()
	limit := []int{0, 1, 47, 300, 1500, 1 << 20}[rng.IntN(6)]
	m := &cacheMachine{
		cacheBench: newCacheBench(t, int64(limit), otherStore, cachedStore), rng: rng, names: []store.Name{"o", "c"},
		model: newNaiveCache(limit, "o", "c"),
	}
	for _, name := range m.names {
		err := m.task.OnFlush(name, func(f store.Flushed) error {
			m.heard = append(m.heard, fmt.Sprintf("%s/%s=%s(%s)", name, f.Key, text(f.New), text(f.Old)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *cacheMachine) step() {
	name := m.names[m.rng.IntN(len(m.names))]
	s := m.model.stores[name]
	key := fmt.Sprint("k", m.rng.IntN(12))
	switch op := m.rng.IntN(40); {
	case op < 16:
		value := strings.Repeat("v", m.rng.IntN(3)) + fmt.Sprint(m.rng.IntN(1000))
		m.did = fmt.Sprintf("put %s/%s=%s", name, key, value)
		set(m.t, m.task, name, key, value)
		s.put(key, value)
		m.dirty = true
	case op < 24:
		m.did = fmt.Sprintf("delete %s/%s", name, key)
		if err := kv(m.t, m.task, name).Put([]byte(key), store.Value{Timestamp: 9}); err != nil {
			m.t.Fatal(err)
		}
		s.put(key, "")
		m.dirty = true
	case op < 30:
		m.did = fmt.Sprintf("get %s/%s", name, key)
		v, err := kv(m.t, m.task, name).Get([]byte(key))
		if err != nil {
			v.Data = nil
		}
		want, ok := s.now[key]
		if !ok {
			want = "-"
		}
		equal(m.t, m.did, want, text(v))
		if !s.rotated && slices.Contains(s.uses, key) {
			s.uses = append(forget(s.uses, key), key)
		}
	case op < 32:
		m.did = "flush " + string(name)
		m.flush(name)
		s.flush()
	case op < 33:
		m.did = "show"
		m.task.ShowNow(at(1))
	case op < 34:
		m.did = "scan"
		equal(m.t, m.did, s.now, written(m.t, m.task, name))
	case op < 35:
		m.resize()
	case op < 36 && !m.dirty:
		m.did = "move"
		moveNow(m.t, m.s, m.task)
		for _, s := range m.model.stores {
			s.rotated = s.rotated || s.usedSinceRotate
			s.usedSinceRotate = false
		}
	case op < 38:
		m.finish()
	case op < 39:
		m.did = "rollback"
		m.task.Rollback()
		if m.dirty {
			for _, s := range m.model.stores {
				s.rollback()
			}
		}
		m.dirty = false
	}
}

func (m *cacheMachine) resize() {
	limit := m.rng.IntN(1500)
	m.did = fmt.Sprint("resize to ", limit)
	if err := m.cache.Resize(int64(limit)); err != nil {
		m.t.Fatal(err)
	}
	m.model.max = limit
	for more := true; more && m.model.bytes() > limit; {
		more = false
		for _, name := range m.names {
			if s := m.model.stores[name]; m.model.bytes() > limit && len(s.uses) > 0 {
				s.evictEldest()
				more = true
			}
		}
	}
}

// finish flushes and commits.
func (m *cacheMachine) finish() {
	m.did = "commit"
	m.flush(m.names...)
	want := make(map[string]string)
	for _, name := range m.names {
		s := m.model.stores[name]
		s.flush()
		maps.Copy(want, s.changes())
	}
	equal(m.t, "changelog", want, m.changes())
	m.commit()
	m.dirty = false
	for _, s := range m.model.stores {
		s.commit()
	}
	for name, s := range m.model.stores {
		equal(m.t, "committed "+string(name), s.committed, committed(m.t, m.task, name))
	}
}

func (m *cacheMachine) compare(step int) {
	m.t.Helper()
	equal(m.t, fmt.Sprint("step ", step, ": heard"), m.model.heard, m.heard)
	equal(m.t, fmt.Sprint("step ", step, ": bytes"), m.model.bytes(), int(m.cache.Bytes()))
	m.heard, m.model.heard = nil, nil
}
