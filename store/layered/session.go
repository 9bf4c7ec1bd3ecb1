package layered

import (
	"context"
	"fmt"
	"math"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// sessionStore is a session store as its writer sees it.
type sessionStore struct{ *part }

var _ store.Session = (*sessionStore)(nil)

// Put sets a session; nil Data removes it.
func (s *sessionStore) Put(key []byte, start, end int64, v store.Value) error {
	ok, err := s.write(key, start, end, v)
	if err == nil && !ok {
		s.expired.Inc()
	}
	return err
}

// Remove takes a session away. One that has expired is gone already.
func (s *sessionStore) Remove(key []byte, start, end int64) error {
	_, err := s.write(key, start, end, store.Value{})
	return err
}

// Fetch returns the value of a session, or store.ErrNotFound.
func (s *sessionStore) Fetch(key []byte, start, end int64) (store.Value, error) {
	if err := s.checkSession(key, start, end); err != nil {
		return store.Value{}, err
	}
	transient, err := s.task.use()
	if err != nil {
		return store.Value{}, err
	}
	if transient {
		defer s.task.end()
	}
	if end < s.segments.live(s.now.time) {
		return store.Value{}, store.ErrNotFound
	}
	s.row = store.AppendSessionKey(s.row[:0], key, start, end)
	return s.get(s.segments.of(end), s.row)
}

// Scan opens an ordered read of what the writer sees now.
func (s *sessionStore) Scan(scan store.SessionScan) (store.Iterator, error) {
	transient, err := s.task.use()
	if err != nil {
		return nil, err
	}
	if transient {
		defer s.task.end()
	}
	sc, err := s.sessionScan(s.now.time, scan)
	if err != nil {
		return nil, err
	}
	return s.scan(sc)
}

// write sets a session unless it has expired.
func (s *sessionStore) write(key []byte, start, end int64, v store.Value) (ok bool, err error) {
	if err := s.checkSession(key, start, end); err != nil {
		return false, err
	}
	s.row = store.AppendSessionKey(s.row[:0], key, start, end)
	if err := s.admit(s.row, v.Data); err != nil {
		return false, err
	}
	if err := s.task.begin(); err != nil {
		return false, err
	}
	if end < s.segments.live(s.now.time) {
		return false, nil
	}
	s.now.time = max(s.now.time, end)
	return true, s.set(s.segments.of(end), s.row, v.Data, v.Timestamp, fromProcessor)
}

// sessionReader reads a session store of a snapshot.
type sessionReader struct{ reader }

var _ store.SessionReader = (*sessionReader)(nil)

// Fetch returns the value of a session, or store.ErrNotFound.
func (r *sessionReader) Fetch(ctx context.Context, key []byte, start, end int64) (store.Value, error) {
	sv := r.store()
	if err := sv.checkSession(key, start, end); err != nil {
		return store.Value{}, err
	}
	if end < sv.segments.live(sv.now.time) {
		return r.none(ctx)
	}
	return r.getOne(ctx, sv.segments.of(end), store.SessionKey(key, start, end))
}

// Scan opens an ordered read. It ends with the cause of ctx when that is done first.
func (r *sessionReader) Scan(ctx context.Context, s store.SessionScan) (store.Iterator, error) {
	sv := r.store()
	sc, err := sv.sessionScan(sv.now.time, s)
	if err != nil {
		return nil, err
	}
	return r.scanRows(ctx, sc)
}

// ApproximateCount counts the sessions, or gives a recent count; see counter.
func (r *sessionReader) ApproximateCount(ctx context.Context) (int64, error) {
	return r.count(r.all(ctx))
}

// ApproximateBytes is how much the keys and values are that ApproximateCount counts; see [store.Sized].
func (r *sessionReader) ApproximateBytes(ctx context.Context) (int64, error) {
	return r.bytes(r.all(ctx))
}

func (r *sessionReader) all(ctx context.Context) func() (store.Iterator, error) {
	return func() (store.Iterator, error) {
		return r.Scan(ctx, store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
	}
}

// checkSession refuses what cannot be a session.
func (p *placed) checkSession(key []byte, start, end int64) error {
	if start < 0 {
		return negative("start", start)
	}
	if end < start {
		return &store.InvalidRequestError{Field: "end", Reason: fmt.Sprintf("%d is before start %d", end, start)}
	}
	return p.check(key)
}

// sessionShape selects and splits rows of a session store.
type sessionShape struct {
	keys        keyRange
	first, last int64 // ends
	latestStart int64
	of          *placed
}

// sessionScan says which rows s means at stream time now. Unlike in window stores a bound may be negative: who looks for
// sessions within a gap of an early record computes one, and upstream takes it.
func (p *placed) sessionScan(now int64, s store.SessionScan) (rowScan, error) {
	keys, err := p.keysOf(s.Key, s.KeyFrom, s.KeyTo)
	if err != nil {
		return rowScan{}, err
	}
	shape := &sessionShape{
		keys: keys, first: max(s.EarliestEnd, p.segments.live(now)), last: min(s.LatestEnd, now), latestStart: s.LatestStart, of: p,
	}
	if keys.empty || shape.first > shape.last || s.LatestStart < 0 {
		return rowScan{sp: span{empty: true}}, nil
	}
	sc := rowScan{shape: shape, segments: p.segments.between(shape.first, shape.last), inTurn: keys.one != nil}
	// A session starts at its end at the latest.
	start := min(s.LatestStart, shape.last)
	if keys.one != nil {
		sc.sp = rowSpan(store.SessionKey(keys.one, 0, shape.first), store.SessionKey(keys.one, start, shape.last), s.After, s.Reverse)
	} else {
		sc.sp = rowSpan(store.SessionLower(keys.from), store.SessionUpper(keys.to, start, shape.last), s.After, s.Reverse)
	}
	return sc, nil
}

func (s *sessionShape) selects(_ engine.Segment, row []byte) (bool, error) {
	key, start, end, err := store.ParseSessionKey(row)
	return err == nil && end >= s.first && end <= s.last && start <= s.latestStart && s.keys.has(key), err
}

func (s *sessionShape) split(e *store.Entry) (err error) {
	e.Key, e.Start, e.End, err = s.of.split(e.Cursor)
	return err
}
