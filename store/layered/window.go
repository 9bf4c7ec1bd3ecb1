package layered

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// windowStore is a window store as its writer sees it.
type windowStore struct{ *part }

var _ store.Window = (*windowStore)(nil)

// Put sets the window of key that starts at start.
func (w *windowStore) Put(key []byte, start int64, v store.Value) error {
	if err := w.checkWindow(key, start); err != nil {
		return err
	}
	if w.spec.RetainDuplicates && v.Data == nil {
		return nil
	}
	// What the row will be called is known when the turn is held; how long that is, before.
	w.row = store.AppendWindowKey(w.row[:0], key, start, 0)
	if err := w.admit(w.row, v.Data); err != nil {
		return err
	}
	if err := w.task.begin(); err != nil {
		return err
	}
	if start < w.segments.live(w.now.time) {
		w.expired.Inc()
		return nil
	}
	w.now.time = max(w.now.time, start)
	if w.spec.RetainDuplicates {
		w.now.seq = (w.now.seq + 1) & store.MaxSeq
		w.row = store.AppendWindowKey(w.row[:0], key, start, w.now.seq)
	}
	return w.set(w.segments.of(start), w.row, v.Data, v.Timestamp, fromProcessor)
}

// Fetch returns the value of a window, or store.ErrNotFound.
func (w *windowStore) Fetch(key []byte, start int64) (store.Value, error) {
	if err := w.checkWindow(key, start); err != nil {
		return store.Value{}, err
	}
	if w.spec.RetainDuplicates {
		return first(w.Scan(windowAt(key, start)))
	}
	transient, err := w.task.use()
	if err != nil {
		return store.Value{}, err
	}
	if transient {
		defer w.task.end()
	}
	if start < w.segments.live(w.now.time) {
		return store.Value{}, store.ErrNotFound
	}
	w.row = store.AppendWindowKey(w.row[:0], key, start, 0)
	return w.get(w.segments.of(start), w.row)
}

// Scan opens an ordered read of what the writer sees now.
func (w *windowStore) Scan(s store.WindowScan) (store.Iterator, error) {
	transient, err := w.task.use()
	if err != nil {
		return nil, err
	}
	if transient {
		defer w.task.end()
	}
	sc, err := w.windowScan(w.now.time, s)
	if err != nil {
		return nil, err
	}
	return w.scan(sc)
}

// windowReader reads a window store of a snapshot.
type windowReader struct{ reader }

var _ store.WindowReader = (*windowReader)(nil)

// Fetch returns the value of a window, or store.ErrNotFound.
func (r *windowReader) Fetch(ctx context.Context, key []byte, start int64) (store.Value, error) {
	sv := r.store()
	if err := sv.checkWindow(key, start); err != nil {
		return store.Value{}, err
	}
	if sv.spec.RetainDuplicates {
		return first(r.Scan(ctx, windowAt(key, start)))
	}
	if start < sv.segments.live(sv.now.time) {
		return r.none(ctx)
	}
	return r.getOne(ctx, sv.segments.of(start), store.WindowKey(key, start, 0))
}

// Scan opens an ordered read. It ends with the cause of ctx when that is done first.
func (r *windowReader) Scan(ctx context.Context, s store.WindowScan) (store.Iterator, error) {
	sv := r.store()
	sc, err := sv.windowScan(sv.now.time, s)
	if err != nil {
		return nil, err
	}
	return r.scanRows(ctx, sc)
}

// ApproximateCount counts the rows, or gives a recent count; see counter.
func (r *windowReader) ApproximateCount(ctx context.Context) (int64, error) {
	return r.count(r.all(ctx))
}

// ApproximateBytes is how much the keys and values are that ApproximateCount counts; see [store.Sized].
func (r *windowReader) ApproximateBytes(ctx context.Context) (int64, error) {
	return r.bytes(r.all(ctx))
}

func (r *windowReader) all(ctx context.Context) func() (store.Iterator, error) {
	return func() (store.Iterator, error) { return r.Scan(ctx, store.WindowScan{To: math.MaxInt64}) }
}

// windowAt selects the rows of one window.
func windowAt(key []byte, start int64) store.WindowScan {
	return store.WindowScan{Key: key, From: start, To: start}
}

// first is the value of the first row of a scan, which it closes.
func first(it store.Iterator, err error) (store.Value, error) {
	if err != nil {
		return store.Value{}, err
	}
	defer it.Close()
	if it.Next() {
		return it.Entry().Value, nil
	}
	if err := it.Err(); err != nil {
		return store.Value{}, err
	}
	return store.Value{}, store.ErrNotFound
}

// checkWindow refuses what cannot be a window.
func (p *placed) checkWindow(key []byte, start int64) error {
	if start < 0 {
		return negative("start", start)
	}
	return p.check(key)
}

// windowShape selects and splits rows of a window store.
type windowShape struct {
	keys        keyRange
	first, last int64 // starts
	of          *placed
}

// windowScan says which rows s means at stream time now.
func (p *placed) windowScan(now int64, s store.WindowScan) (rowScan, error) {
	keys, err := p.keysOf(s.Key, s.KeyFrom, s.KeyTo)
	if err != nil {
		return rowScan{}, err
	}
	if s.From < 0 {
		return rowScan{}, negative("from", s.From)
	}
	if s.To < 0 {
		return rowScan{}, negative("to", s.To)
	}
	shape := &windowShape{keys: keys, first: max(s.From, p.segments.live(now)), last: min(s.To, now), of: p}
	if keys.empty || shape.first > shape.last {
		return rowScan{sp: span{empty: true}}, nil
	}
	sc := rowScan{shape: shape, segments: p.segments.between(shape.first, shape.last), inTurn: keys.one != nil}
	if keys.one != nil {
		sc.sp = rowSpan(store.WindowKey(keys.one, shape.first, 0), store.WindowKey(keys.one, shape.last, store.MaxSeq), s.After, s.Reverse)
	} else {
		sc.sp = rowSpan(store.WindowLower(keys.from), store.WindowUpper(keys.to, shape.last), s.After, s.Reverse)
	}
	return sc, nil
}

func (s *windowShape) selects(_ engine.Segment, row []byte) (bool, error) {
	key, start, _, err := store.ParseWindowKey(row)
	return err == nil && start >= s.first && start <= s.last && s.keys.has(key), err
}

func (s *windowShape) split(e *store.Entry) (err error) {
	e.Key, e.Start, e.End, err = s.of.split(e.Cursor)
	return err
}

// keyRange are the keys that a scan selects.
type keyRange struct {
	one      []byte // nil: from and to count
	from, to []byte // inclusive, nil open
	empty    bool
}

// keysOf checks and copies the keys of a scan.
func (p *placed) keysOf(one, from, to []byte) (keyRange, error) {
	if one == nil {
		return keyRange{from: bytes.Clone(from), to: bytes.Clone(to), empty: from != nil && to != nil && bytes.Compare(from, to) > 0}, nil
	}
	if from != nil || to != nil {
		return keyRange{}, &store.InvalidRequestError{Field: "key", Reason: "may not be combined with key from or key to"}
	}
	return keyRange{one: bytes.Clone(one)}, p.check(one)
}

func (k *keyRange) has(key []byte) bool {
	if k.one != nil {
		return bytes.Equal(key, k.one)
	}
	return (k.from == nil || bytes.Compare(key, k.from) >= 0) && (k.to == nil || bytes.Compare(key, k.to) <= 0)
}

func negative(field string, value int64) error {
	return &store.InvalidRequestError{Field: field, Reason: fmt.Sprintf("%d is negative", value)}
}
