package layered

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// part is one store of a task as its writer sees it; its methods of store.KeyValue are for key-value stores.
type part struct {
	*placed
	task   *Task
	number int // in the task
	limits []limit

	// active takes the writes. Changed under the task's turn and pub.
	active *table
	// written are the entries with a version in the overlay, each once. Writer only.
	written []*entry
	// now is where the store's own time is in the overlay. Writer only.
	now moment
	// row is room for the key of a row. Writer only.
	row []byte
	// expired counts what came too late.
	expired prometheus.Counter
	// cache is the part's share of the record cache. Writer only.
	cache cached
	// versions is what the writer of a versioned store keeps beside its rows, else nil.
	versions *versions
}

var _ store.KeyValue = (*part)(nil)

// limit bounds a key, or key and value together, in bytes.
type limit struct {
	what    string // "key" or "record"
	bytes   int64
	setting string
}

// Get returns the value of key, or store.ErrNotFound.
func (p *part) Get(key []byte) (store.Value, error) {
	if err := p.check(key); err != nil {
		return store.Value{}, err
	}
	transient, err := p.task.use()
	if err != nil {
		return store.Value{}, err
	}
	v, err := p.get(0, key)
	if transient {
		p.task.end()
	}
	return v, err
}

// Put sets key; nil Data deletes.
func (p *part) Put(key []byte, v store.Value) error {
	if err := p.admit(key, v.Data); err != nil {
		return err
	}
	if err := p.task.begin(); err != nil {
		return err
	}
	return p.set(0, key, v.Data, v.Timestamp, fromProcessor)
}

// PutIfAbsent sets key when it has no value.
func (p *part) PutIfAbsent(key []byte, v store.Value) (store.Value, bool, error) {
	if err := p.admit(key, v.Data); err != nil {
		return store.Value{}, false, err
	}
	old, err := p.Get(key)
	switch {
	case err == nil:
		return old, true, nil
	case !errors.Is(err, store.ErrNotFound):
		return store.Value{}, false, err
	case v.Data == nil: // deleting what is not there changes nothing
		return store.Value{}, false, nil
	default:
		return store.Value{}, false, p.Put(key, v)
	}
}

// Delete removes key and returns what was there; where nothing was it writes nothing. The change bears the timestamp of
// the value it removes, 0 in a plain store: a caller with a better one puts a nil value.
func (p *part) Delete(key []byte) (store.Value, bool, error) {
	old, err := p.Get(key)
	if errors.Is(err, store.ErrNotFound) {
		return store.Value{}, false, nil
	} else if err != nil {
		return store.Value{}, false, err
	}
	if err := p.Put(key, store.Value{Timestamp: max(old.Timestamp, 0)}); err != nil {
		return store.Value{}, false, err
	}
	return old, true, nil
}

// Scan opens an ordered read of what the writer sees now.
func (p *part) Scan(s store.Scan) (store.Iterator, error) {
	sp, err := spanOf(s)
	if err != nil {
		return nil, err
	}
	transient, err := p.task.use()
	if err != nil {
		return nil, err
	}
	if transient {
		defer p.task.end()
	}
	return p.scan(plainScan(sp))
}

// ApproximateCount counts the keys; see counter.
func (p *part) ApproximateCount() (int64, error) {
	transient, err := p.task.use()
	if err != nil {
		return 0, err
	}
	if transient {
		defer p.task.end()
	}
	n, err := p.counts.estimate(0, func() (store.Iterator, error) { return p.scan(plainScan(span{})) })
	if err != nil {
		return 0, err
	}
	return n.keys, nil
}

// get reads a row as the writer: its overlay, then what is published. The turn is held.
func (p *part) get(segment engine.Segment, key []byte) (store.Value, error) {
	hash := p.active.hash(key)
	if e := p.active.find(segment, key, hash); e != nil {
		if v := e.head.Load(); v != nil {
			p.cache.hit(e)
			return v.value(p.spec.Kind)
		}
	}
	p.cache.miss()
	return p.task.base.get(p.number, 1, segment, key, hash)
}

// origin says where a write comes from.
type origin uint8

const (
	fromProcessor origin = iota
	fromChangelog
	// fromPut is a row of a versioned store: its put goes to the changelog, not the row.
	fromPut
)

// set writes a row to the overlay. The turn is held. The error is that of a flush the write led to; it is written all the same.
func (p *part) set(segment engine.Segment, key, data []byte, timestamp int64, from origin) error {
	t := p.task
	before := p.active.bytes.Load()
	e := p.active.enter(segment, key, p.active.hash(key))
	heard := from == fromProcessor && p.cache.on()
	if heard {
		p.cache.before(e)
	}
	if p.active.put(e, data, timestamp, t.marks) {
		p.written = append(p.written, e)
		t.uncommitted += int64(len(key)+len(data)) + entryCost
	} else {
		t.uncommitted += p.active.bytes.Load() - before
	}
	e.head.Load().silent = from != fromProcessor
	t.touched = true
	if heard {
		return p.cache.after(e)
	}
	return nil
}

// restore writes a change that came from the changelog.
func (p *part) restore(c store.Change) error {
	if p.versions != nil {
		return p.restoreVersion(c)
	}
	if err := p.admit(c.Key, c.Value); err != nil {
		return err
	}
	var segment engine.Segment
	if p.segments != nil {
		at, seq, err := p.rowTime(c.Key)
		if err != nil {
			return p.wrap(err)
		}
		p.now.time = max(p.now.time, at)
		p.now.seq = seq // of the last row that was put: the log has them in that order
		if at < p.segments.live(p.now.time) {
			return nil
		}
		segment = p.segments.of(at)
	}
	return p.set(segment, c.Key, c.Value, c.Timestamp, fromChangelog)
}

// tellsTime reports whether a row is where the store's own time is: a restore that did not see it would take rows for alive that have
// expired.
func (p *part) tellsTime(key []byte) bool {
	if p.segments == nil {
		return false
	}
	at, _, err := p.rowTime(key)
	return err == nil && at >= p.now.time
}

// scan opens an iterator over the overlay and what is published. The turn is held. What is written from now on is newer
// than the iterator.
func (p *part) scan(sc rowScan) (store.Iterator, error) {
	t := p.task
	pin := t.pinScan()
	m := newMerge(p.spec.Kind, sc, pin.tick)
	m.addNow(p.active, int(p.active.count.Load()))
	for _, l := range t.base.stores[p.number].layers[1:] {
		m.addNow(l.table, l.count)
	}
	return t.stores.iterate(m, t.base, p.number, iteratorEnd{user: "writer", task: t, pin: pin})
}

// check refuses what cannot be a key.
func (p *placed) check(key []byte) error {
	if len(key) == 0 {
		return &store.InvalidKeyError{Store: p.spec.Name, Reason: "empty"}
	}
	return nil
}

// admit refuses what the changelog or the engine would not take.
func (p *part) admit(key, data []byte) error {
	if err := p.check(key); err != nil {
		return err
	}
	for _, l := range p.limits {
		size := int64(len(key))
		if l.what == "record" {
			size += int64(len(data))
		}
		if size > l.bytes {
			return &store.TooLargeError{Store: p.spec.Name, What: l.what, Size: size, Limit: l.bytes, Setting: l.setting}
		}
	}
	return nil
}
