package streams

import (
	"math"
	"slices"

	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// sessionAggregation is that of sessions (upstream's KStreamSessionWindowAggregate): a record and the sessions that it joins become one.
func sessionAggregation[K, V, A any](k *keptWindows[K, A], open openWindows[K, A], f folds[K, V, A]) operator[Record[K, V], Change[serde.Windowed[K], A]] {
	return func(sc *scope[Change[serde.Windowed[K], A]]) (func(*Record[K, V]) error, error) {
		w, err := open(sc)
		if err != nil {
			return nil, err
		}
		return (&sessionTask[K, V, A]{windows: *k.kind.session, w: w, folds: f}).take, nil
	}
}

// sessionTask aggregates in one task.
type sessionTask[K, V, A any] struct {
	windows windows.Session
	w       *windowKeeper[K, A]
	folds   folds[K, V, A]
	joined  sessions
	out     Change[serde.Windowed[K], A]
}

func (s *sessionTask[K, V, A]) take(r *Record[K, V]) error {
	ctx := s.w.sc.Context
	kb, err := admitted(ctx, r, &s.w.keys)
	if kb == nil || err != nil {
		return err
	}
	now, err := s.w.begin(r.Timestamp, r.Headers)
	if err != nil {
		return err
	}
	if err := s.joined.load(s.w.rows.session, s.windows, kb, r.Timestamp); err != nil {
		return err
	}
	if s.w.closer != nil {
		s.joined.leave(func(span windows.Span) bool { return s.windows.Closed(span, now) })
	}
	whole := s.windows.Merge(r.Timestamp, s.joined.spans)
	if s.windows.Closed(whole, now) {
		ctx.Drop(dropLate)
		return nil
	}
	return s.w.settle(kb, s.join(r, kb, whole))
}

// join makes the sessions that a record joins, and the record, one whole. What cannot be encoded is found before anything is put.
func (s *sessionTask[K, V, A]) join(r *Record[K, V], kb []byte, whole windows.Span) error {
	sum, ok, err := s.sum(r)
	if err != nil {
		return err
	}
	next, keep := s.folds.add(sum, ok, r)
	s.out = s.of(r, whole)
	s.out.New, s.out.NoNew, s.out.NoOld = next, !keep, true
	if keep {
		data, err := s.w.values.encode(next, encoded[A]{})
		if err != nil {
			return err
		}
		s.out.value.is(data, s.w.kept.values)
	}
	if whole.Start == whole.End && len(s.joined.spans) > 0 { // it is put again
		return s.w.change(kb, &s.out, s.joined.row(0))
	}
	if err := s.takeAway(r, kb); err != nil {
		return err
	}
	return s.w.change(kb, &s.out, store.Value{})
}

// sum is what the joined sessions come to; ok: there are any.
func (s *sessionTask[K, V, A]) sum(r *Record[K, V]) (sum A, ok bool, err error) {
	for _, data := range s.joined.values {
		old, err := s.w.kept.values.Decode(data)
		if err != nil {
			return sum, ok, err
		}
		sum, ok = s.folds.merge(r.Key, sum, ok, old)
	}
	return sum, ok, nil
}

// takeAway takes the joined sessions away.
func (s *sessionTask[K, V, A]) takeAway(r *Record[K, V], kb []byte) error {
	for i, span := range s.joined.spans {
		gone := s.of(r, span)
		gone.NoNew = true
		var err error
		if gone.Old, err = s.w.kept.values.Decode(s.joined.values[i]); err != nil { // merge may have changed the other one
			return err
		}
		if err := s.w.change(kb, &gone, s.joined.row(i)); err != nil {
			return err
		}
	}
	return nil
}

// of is a change of a session, without its values.
func (s *sessionTask[K, V, A]) of(r *Record[K, V], span windows.Span) Change[serde.Windowed[K], A] {
	return Change[serde.Windowed[K], A]{
		Key: serde.Windowed[K]{Key: r.Key, Start: span.Start, End: span.End}, Timestamp: span.End, Headers: r.Headers,
	}
}

// sessions is those that a record joins, the earliest first.
type sessions struct {
	spans  []windows.Span
	values [][]byte
}

// load reads them from the latest on. Sessions of a key are more than a gap apart: once one has begun when the record came, those before it
// ended too early. Where records come in order that is the first one, and what former records have left behind is not looked at.
func (s *sessions) load(rows store.Session, w windows.Session, key []byte, t int64) error {
	s.spans, s.values = s.spans[:0], s.values[:0]
	earliestEnd, latestStart := w.Near(t)
	it, err := rows.Scan(store.SessionScan{
		Key: key, EarliestEnd: earliestEnd, LatestEnd: math.MaxInt64, LatestStart: latestStart, Reverse: true,
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		s.spans = append(s.spans, windows.Span{Start: e.Start, End: e.End})
		s.values = append(s.values, e.Data)
		if e.Start <= t {
			break
		}
	}
	slices.Reverse(s.spans)
	slices.Reverse(s.values)
	return it.Err()
}

// row is a session as its store has it.
func (s *sessions) row(i int) store.Value {
	return store.Value{Data: s.values[i], Timestamp: s.spans[i].End}
}

// leave takes out sessions that were told already, or are about to be.
func (s *sessions) leave(told func(windows.Span) bool) {
	n := 0
	for i, span := range s.spans {
		if !told(span) {
			s.spans[n], s.values[n] = span, s.values[i]
			n++
		}
	}
	s.spans, s.values = s.spans[:n], s.values[:n]
}
