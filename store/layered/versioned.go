package layered

import (
	"context"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// versionedStore is a versioned store as its writer sees it.
type versionedStore struct{ *part }

var _ store.Versioned = (*versionedStore)(nil)

// Put adds a version; nil Data is a tombstone.
func (w *versionedStore) Put(key []byte, v store.Value) (int64, error) {
	if err := w.admitVersion(key, v.Data, v.Timestamp); err != nil {
		return 0, err
	}
	if err := w.task.begin(); err != nil {
		return 0, err
	}
	return w.putLogged(key, v.Data, v.Timestamp)
}

// Delete puts a tombstone and returns what was valid then.
func (w *versionedStore) Delete(key []byte, timestamp int64) (store.Version, error) {
	if err := w.admitVersion(key, nil, timestamp); err != nil {
		return store.Version{}, err
	}
	if err := w.task.begin(); err != nil {
		return store.Version{}, err
	}
	old, err := w.lookAsOf(w, max(w.now.time, timestamp), key, timestamp)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Version{}, err
	}
	validTo, perr := w.putLogged(key, nil, timestamp)
	switch {
	case perr != nil:
		return store.Version{}, perr
	case validTo == store.NotPut:
		return store.Version{}, store.ErrNotFound // as upstream, whatever was valid: nothing was deleted
	default:
		return old, err
	}
}

// Get returns the latest version of key, or store.ErrNotFound.
func (w *versionedStore) Get(key []byte) (store.Version, error) {
	v, err := w.part.Get(key)
	if err != nil {
		return store.Version{}, err
	}
	return latestOf(v), nil
}

// GetAsOf returns the version that was valid at asOf, or store.ErrNotFound.
func (w *versionedStore) GetAsOf(key []byte, asOf int64) (store.Version, error) {
	if err := w.check(key); err != nil {
		return store.Version{}, err
	}
	transient, err := w.task.use()
	if err != nil {
		return store.Version{}, err
	}
	if transient {
		defer w.task.end()
	}
	return w.lookAsOf(w, w.now.time, key, asOf)
}

// Scan opens an ordered read of what the writer sees now.
func (w *versionedStore) Scan(s store.VersionScan) (store.Iterator, error) {
	if err := w.check(s.Key); err != nil {
		return nil, err
	}
	transient, err := w.task.use()
	if err != nil {
		return nil, err
	}
	if transient {
		defer w.task.end()
	}
	read, err := w.readOf(w, w.now.time, s)
	if err != nil {
		return nil, err
	}
	return versionsOf(read, s.Reverse)(w.scan(read.rows))
}

// versionsOf makes an iterator over versions of one over rows.
func versionsOf(read versionRead, reverse bool) func(store.Iterator, error) (store.Iterator, error) {
	return func(rows store.Iterator, err error) (store.Iterator, error) {
		if err != nil {
			return nil, err
		}
		return &versionIterator{rows: rows.(*iterator), read: read, reverse: reverse}, nil
	}
}

// getRow reads a row as the writer. The turn is held.
func (p *part) getRow(segment engine.Segment, key []byte) (store.Value, error) {
	return p.get(segment, key)
}

// eachRow reads rows as the writer, without an iterator to be pinned: nothing is written meanwhile. The turn is held.
func (p *part) eachRow(sc rowScan, see func(store.Entry) bool) error {
	if sc.sp.empty {
		return nil
	}
	base := p.task.base
	m := newMerge(p.spec.Kind, sc, p.task.marks.current)
	m.addNow(p.active, int(p.active.count.Load()))
	for _, l := range base.stores[p.number].layers[1:] {
		m.addNow(l.table, l.count)
	}
	if err := m.addEngine(base.bases[p.engine].snap, p.id); err != nil {
		m.close()
		return p.wrap(err)
	}
	if err := m.each(see); err != nil {
		return p.wrap(err)
	}
	return nil
}

// admitVersion refuses what cannot be a version, or what the changelog or the engine would not take.
func (p *part) admitVersion(key, data []byte, timestamp int64) error {
	if err := p.check(key); err != nil {
		return err
	}
	if timestamp < 0 {
		return negative("timestamp", timestamp)
	}
	p.row = store.AppendVersionKey(p.row[:0], key, timestamp)
	return p.admit(p.row, data)
}

// putLogged puts a version for the changelog. The turn is held.
func (p *part) putLogged(key, data []byte, timestamp int64) (validTo int64, err error) {
	validTo, err = p.putVersion(key, data, timestamp)
	if err != nil {
		return 0, err
	}
	if validTo == store.NotPut {
		p.expired.Inc()
		return validTo, nil
	}
	return validTo, p.logVersion(key, data, timestamp, validTo)
}

// restoreVersion applies a record of the changelog. What is refused was so by its writer, if the writer's log is its own.
func (p *part) restoreVersion(c store.Change) error {
	if c.Timestamp < 0 {
		return p.wrap(fmt.Errorf("a version from %d: %w", c.Timestamp, store.ErrCorrupt))
	}
	if err := p.admitVersion(c.Key, c.Value, c.Timestamp); err != nil {
		return err
	}
	_, err := p.putVersion(c.Key, c.Value, c.Timestamp)
	return err
}

// putVersion puts a version into its place between its neighbours and returns when it ends, or store.NotPut. The turn is
// held. After an error nothing is written.
func (p *part) putVersion(key, data []byte, at int64) (validTo int64, err error) {
	now := p.now.time
	if p.segments.outOf(at, now) {
		return store.NotPut, nil
	}
	latest, err := p.get(0, key)
	if errors.Is(err, store.ErrNotFound) {
		latest.Timestamp, err = noTime, nil
	}
	if err != nil {
		return 0, err
	}
	switch known := latest.Timestamp != noTime; {
	case known && at < latest.Timestamp, !known && at <= min(now, p.versions.deleted):
		validTo, err = p.putBetween(key, data, at, latest.Timestamp)
	default:
		// It is the latest. Without a value that is, only a tombstone could be later.
		if known && at > latest.Timestamp {
			p.setHistory(key, latest.Timestamp, at, latest.Data)
		}
		p.setLatest(key, data, at, latest.Timestamp)
		validTo = store.NoEnd
	}
	if err != nil {
		return 0, err
	}
	p.now.time = max(now, at)
	return validTo, nil
}

// putBetween puts a version of a key that is older than its latest value, which begins at latest, or may be older than a
// tombstone: latest is noTime then.
func (p *part) putBetween(key, data []byte, at, latest int64) (validTo int64, err error) {
	same, covering, validTo, err := p.neighbours(key, at, latest)
	if err != nil {
		return 0, err
	}
	if covering != nil {
		p.dropHistory(key, covering.Start, covering.End)
		p.setHistory(key, covering.Start, at, covering.Data)
	}
	if same != nil {
		p.dropHistory(key, same.Start, same.End)
	}
	switch {
	case validTo == store.NoEnd:
		p.setLatest(key, data, at, latest)
	case data == nil:
		p.setTombstone(key, at)
	default:
		p.setHistory(key, at, validTo, data)
	}
	return validTo, nil
}

// neighbours finds the row that begins at a time, or else the one that is valid then, and when the version after it begins.
// latest is that of putBetween.
func (p *part) neighbours(key []byte, at, latest int64) (same, covering *store.Entry, next int64, err error) {
	until := latest // no version begins later
	if latest == noTime {
		until = p.now.time
	}
	// First where it is if the key has many versions: one seek.
	soon := p.segments.of(min(at+1, until))
	err = p.eachRow(p.rowsOf(key, 0, at, nil, true).inSegments(soon, soon), func(e store.Entry) bool {
		switch {
		case e.End <= at: // a tombstone, or over
		case e.Start == at:
			same, next = &e, e.End
		default:
			covering, next = &e, e.End
		}
		return false
	})
	if err != nil || same != nil || covering != nil {
		return same, covering, next, err
	}
	if next = store.NoEnd; latest != noTime {
		next = latest
	}
	err = p.eachRow(p.rowsOf(key, at, until, nil, false).in(p.placed, at, until), func(e store.Entry) bool {
		if e.Start == at {
			same = &e
			return true
		}
		next = e.Start
		return false
	})
	if err != nil || same != nil || next == store.NoEnd {
		return same, nil, next, err
	}
	// What is valid then ends where the next version begins.
	err = p.eachRow(p.rowsOf(key, 0, at, nil, true).in(p.placed, next, next), func(e store.Entry) bool {
		if e.End > at {
			covering = &e
		}
		return false
	})
	return nil, covering, next, err
}

// setLatest sets the latest version of a key. The value that was it began at before, noTime when there is none.
func (p *part) setLatest(key, data []byte, at, before int64) {
	if data != nil {
		p.setVersion(0, key, data, at)
		return
	}
	if before != noTime {
		p.setVersion(0, key, nil, 0)
	}
	p.setTombstone(key, at)
}

// setHistory sets a value that is not the latest version.
func (p *part) setHistory(key []byte, from, to int64, data []byte) {
	p.row = store.AppendVersionKey(p.row[:0], key, from)
	p.setVersion(p.segments.of(to), p.row, data, to)
}

// dropHistory takes a row of history away, value or tombstone.
func (p *part) dropHistory(key []byte, from, to int64) {
	p.row = store.AppendVersionKey(p.row[:0], key, from)
	p.setVersion(p.segments.of(to), p.row, nil, 0)
}

// setTombstone sets a tombstone.
func (p *part) setTombstone(key []byte, at int64) {
	p.versions.deleted = max(p.versions.deleted, at)
	p.setHistory(key, at, at, []byte{})
}

// setVersion writes a row. There is no record cache before it that could fail.
func (p *part) setVersion(segment engine.Segment, key, data []byte, time int64) {
	_ = p.set(segment, key, data, time, fromPut)
}

// versionedReader reads a versioned store of a snapshot.
type versionedReader struct{ reader }

var _ store.VersionedReader = (*versionedReader)(nil)

// Get returns the latest version of key, or store.ErrNotFound.
func (r *versionedReader) Get(ctx context.Context, key []byte) (store.Version, error) {
	v, err := r.reader.Get(ctx, key)
	if err != nil {
		return store.Version{}, err
	}
	return latestOf(v), nil
}

// GetAsOf returns the version that was valid at asOf, or store.ErrNotFound.
func (r *versionedReader) GetAsOf(ctx context.Context, key []byte, asOf int64) (store.Version, error) {
	sv := r.store()
	if err := sv.check(key); err != nil {
		return store.Version{}, err
	}
	if err := ctx.Err(); err != nil {
		return store.Version{}, context.Cause(ctx)
	}
	if err := r.snap.enter(); err != nil {
		return store.Version{}, err
	}
	defer r.snap.leave()
	v, err := sv.lookAsOf(r, sv.now.time, key, asOf)
	if cut := r.snap.view.intact(r.name()); cut != nil {
		return store.Version{}, cut
	}
	return v, err
}

// Scan opens an ordered read. It ends with the cause of ctx when that is done first.
func (r *versionedReader) Scan(ctx context.Context, s store.VersionScan) (store.Iterator, error) {
	sv := r.store()
	if err := sv.check(s.Key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := r.snap.enter(); err != nil {
		return nil, err
	}
	defer r.snap.leave()
	read, err := sv.readOf(r, sv.now.time, s)
	if cut := r.snap.view.intact(r.name()); cut != nil {
		return nil, cut
	}
	if err != nil {
		return nil, err
	}
	return versionsOf(read, s.Reverse)(r.scanRows(ctx, read.rows))
}

// ApproximateCount counts the keys that have a latest version, or gives a recent count; see counter.
func (r *versionedReader) ApproximateCount(ctx context.Context) (int64, error) {
	return r.count(r.latest(ctx))
}

// ApproximateBytes is how much the keys and latest values are that ApproximateCount counts; see [store.Sized].
func (r *versionedReader) ApproximateBytes(ctx context.Context) (int64, error) {
	return r.bytes(r.latest(ctx))
}

func (r *versionedReader) latest(ctx context.Context) func() (store.Iterator, error) {
	return func() (store.Iterator, error) { return r.scanRows(ctx, latestRows()) }
}

// eachRow reads rows of the snapshot, which the caller has entered.
func (r *versionedReader) eachRow(sc rowScan, see func(store.Entry) bool) error {
	if sc.sp.empty {
		return nil
	}
	v, sv := r.snap.view, r.store()
	m := newMerge(sv.spec.Kind, sc, v.tick)
	for _, l := range sv.layers {
		m.add(l.table, l.count)
	}
	if err := m.addEngine(v.bases[sv.engine].snap, sv.id); err != nil {
		m.close()
		return sv.wrap(err)
	}
	if err := m.each(see); err != nil {
		return sv.wrap(err)
	}
	return nil
}
