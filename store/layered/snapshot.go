package layered

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Snapshot is a whole commit of a task, or what the writer had at the end of a batch. Safe for concurrent use until closed;
// what was opened from it ends with it. One that is open for longer than Config.IteratorMaxAge is closed and reported; then
// its reads return store.ErrOpenTooLong.
type Snapshot struct {
	tracked

	view *view
	// reads counts those that run; closing is added by Close. Who leaves it at closing alone lets the view go.
	reads atomic.Uint64
	// cause is why it was closed for its user.
	cause atomic.Pointer[error]
	// first is the reader that most snapshots are taken for, here so that it costs no memory of its own.
	first     reader
	firstUsed atomic.Bool
}

// closing is Close's part of Snapshot.reads.
const closing = 1 << 63

// reader reads one store of a snapshot.
type reader struct {
	snap   *Snapshot
	number int
}

var _ store.KeyValueReader = (*reader)(nil)

func (s *Stores) newSnapshot(v *view) *Snapshot {
	snap := &Snapshot{view: v}
	s.reads.add(&snap.tracked, snap, "")
	return snap
}

// For names who reads, for reports of a snapshot that was left open.
func (s *Snapshot) For(user string) { s.name(user) }

// Keep exempts the snapshot from Config.IteratorMaxAge and from the reports of what was left open: it is the application's own, not
// a query's.
func (s *Snapshot) Keep() {
	if s.remove() {
		s.stores().kept.Add(1)
	}
}

// Outlived reports whether the task has published anything since, be it only that the same commit is in the engine now: what the
// snapshot keeps in memory serves nobody else.
func (s *Snapshot) Outlived() bool { return s.view.task.current.Load() != s.view }

// KeyValue is a store of the snapshot. *store.UnknownStoreError when the task does not have it.
func (s *Snapshot) KeyValue(name store.Name) (store.KeyValueReader, error) {
	i, spec, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if spec.Kind != store.KindKeyValue && spec.Kind != store.KindTimestampedKeyValue {
		return store.NoReads{Store: name, Kind: spec.Kind}.KeyValue()
	}
	if s.firstUsed.CompareAndSwap(false, true) {
		s.first = reader{snap: s, number: i}
		return &s.first, nil
	}
	return &reader{snap: s, number: i}, nil
}

// Windows is a window store of the snapshot.
func (s *Snapshot) Windows(name store.Name) (store.WindowReader, error) {
	i, spec, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if spec.Kind != store.KindWindow && spec.Kind != store.KindTimestampedWindow {
		return store.NoReads{Store: name, Kind: spec.Kind}.Windows()
	}
	return &windowReader{reader{snap: s, number: i}}, nil
}

// Sessions is a session store of the snapshot.
func (s *Snapshot) Sessions(name store.Name) (store.SessionReader, error) {
	i, spec, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if spec.Kind != store.KindSession {
		return store.NoReads{Store: name, Kind: spec.Kind}.Sessions()
	}
	return &sessionReader{reader{snap: s, number: i}}, nil
}

// Versions is a versioned store of the snapshot.
func (s *Snapshot) Versions(name store.Name) (store.VersionedReader, error) {
	i, spec, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if spec.Kind != store.KindVersioned {
		return store.NoReads{Store: name, Kind: spec.Kind}.Versions()
	}
	return &versionedReader{reader{snap: s, number: i}}, nil
}

// Checkpoint of the commit; must not be changed.
func (s *Snapshot) Checkpoint() store.Checkpoint { return s.view.cp }

// Close releases what the snapshot pins. Idempotent.
func (s *Snapshot) Close() {
	n := s.reads.Load()
	for n < closing && !s.reads.CompareAndSwap(n, n|closing) {
		n = s.reads.Load()
	}
	if n >= closing {
		return
	}
	if !s.remove() {
		s.stores().kept.Add(-1)
	}
	if n == 0 {
		s.view.unpin()
	}
}

func (s *Snapshot) stores() *Stores { return s.view.task.stores }

func (s *Snapshot) find(name store.Name) (int, *store.Spec, error) {
	for i := range s.view.stores {
		if spec := &s.view.stores[i].spec; spec.Name == name {
			return i, spec, nil
		}
	}
	known := make([]store.Name, 0, len(s.view.stores))
	for _, sv := range s.view.stores {
		known = append(known, sv.spec.Name)
	}
	return 0, nil, &store.UnknownStoreError{Store: name, Known: known}
}

func (s *Snapshot) closed() bool { return s.reads.Load() >= closing }

// why says how it came to be closed.
func (s *Snapshot) why() error {
	if cause := s.cause.Load(); cause != nil {
		return *cause
	}
	return store.ErrClosed
}

// what names the first store of the task: a snapshot is of all of them.
func (s *Snapshot) what() (string, store.Name) {
	if len(s.view.stores) == 0 {
		return snapshotKind, ""
	}
	return snapshotKind, s.view.stores[0].spec.Name
}

func (s *Snapshot) over(limit error) error { return limit }

func (s *Snapshot) expire(cause error) bool {
	s.cause.CompareAndSwap(nil, &cause)
	open := !s.closed()
	s.Close()
	return open
}

// enter counts a read, so that Close in the middle of it takes nothing away under it.
func (s *Snapshot) enter() error {
	for {
		n := s.reads.Load()
		if n >= closing || s.stores().closed.Load() {
			return s.why()
		}
		if s.reads.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

func (s *Snapshot) leave() {
	if s.reads.Add(^uint64(0)) == closing {
		s.view.unpin()
	}
}

// Get returns the value of key, or store.ErrNotFound.
func (r *reader) Get(ctx context.Context, key []byte) (store.Value, error) {
	if err := r.store().check(key); err != nil {
		return store.Value{}, err
	}
	return r.getOne(ctx, 0, key)
}

// GetMany returns one result per key, in order.
func (r *reader) GetMany(ctx context.Context, keys [][]byte) ([]store.Value, []bool, error) {
	if err := r.snap.enter(); err != nil {
		return nil, nil, err
	}
	defer r.snap.leave()
	values, found := make([]store.Value, len(keys)), make([]bool, len(keys))
	for i, key := range keys {
		if err := ctx.Err(); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err := r.store().check(key); err != nil {
			return nil, nil, err
		}
		v, err := r.getRow(0, key)
		switch {
		case err == nil:
			values[i], found[i] = v, true
		case !errors.Is(err, store.ErrNotFound):
			return nil, nil, err
		}
	}
	if err := r.snap.view.intact(r.name()); err != nil {
		return nil, nil, err
	}
	return values, found, nil
}

// Scan opens an ordered read. It ends with the cause of ctx when that is done first.
func (r *reader) Scan(ctx context.Context, s store.Scan) (store.Iterator, error) {
	sp, err := spanOf(s)
	if err != nil {
		return nil, err
	}
	return r.scanRows(ctx, plainScan(sp))
}

// ApproximateCount counts the keys, or gives a recent count; see counter.
func (r *reader) ApproximateCount(ctx context.Context) (int64, error) {
	return r.count(r.all(ctx))
}

// ApproximateBytes is how much the keys and values are that ApproximateCount counts; see [store.Sized].
func (r *reader) ApproximateBytes(ctx context.Context) (int64, error) { return r.bytes(r.all(ctx)) }

func (r *reader) all(ctx context.Context) func() (store.Iterator, error) {
	return func() (store.Iterator, error) { return r.Scan(ctx, store.Scan{}) }
}

// getOne returns the value of a row, or store.ErrNotFound.
func (r *reader) getOne(ctx context.Context, segment engine.Segment, key []byte) (store.Value, error) {
	if err := ctx.Err(); err != nil {
		return store.Value{}, context.Cause(ctx)
	}
	if err := r.snap.enter(); err != nil {
		return store.Value{}, err
	}
	defer r.snap.leave()
	v, err := r.getRow(segment, key)
	if cut := r.snap.view.intact(r.name()); cut != nil {
		return store.Value{}, cut
	}
	return v, err
}

// none is what getOne returns for a row that cannot be there.
func (r *reader) none(ctx context.Context) (store.Value, error) {
	if err := ctx.Err(); err != nil {
		return store.Value{}, context.Cause(ctx)
	}
	if err := r.snap.enter(); err != nil {
		return store.Value{}, err
	}
	defer r.snap.leave()
	if cut := r.snap.view.intact(r.name()); cut != nil { // the time by which the row has expired may have been rolled back
		return store.Value{}, cut
	}
	return store.Value{}, store.ErrNotFound
}

// store is the store that r reads.
func (r *reader) store() *storeView { return &r.snap.view.stores[r.number] }

// scanRows opens a scan of rows.
func (r *reader) scanRows(ctx context.Context, sc rowScan) (store.Iterator, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := r.snap.enter(); err != nil {
		return nil, err
	}
	defer r.snap.leave()
	v := r.snap.view
	m := newMerge(v.stores[r.number].spec.Kind, sc, v.tick)
	for _, l := range v.stores[r.number].layers {
		m.add(l.table, l.count)
	}
	return r.snap.stores().iterate(m, v, r.number, iteratorEnd{user: store.UserOf(ctx), stop: stopper(ctx), snap: r.snap})
}

func (r *reader) name() store.Name { return r.store().spec.Name }

func (r *reader) count(scan func() (store.Iterator, error)) (int64, error) {
	n, err := r.store().counts.estimate(r.snap.view.tick, scan)
	if err != nil {
		return 0, err
	}
	return n.keys, nil
}

func (r *reader) bytes(scan func() (store.Iterator, error)) (int64, error) {
	n, err := r.store().counts.estimate(r.snap.view.tick, scan)
	if err != nil {
		return 0, err
	}
	return n.bytes, nil
}

// getRow returns the value of a row, or store.ErrNotFound. The caller has entered the snapshot.
func (r *reader) getRow(segment engine.Segment, key []byte) (store.Value, error) {
	v := r.snap.view
	return v.get(r.number, 0, segment, key, v.stores[r.number].layers[0].table.hash(key))
}
