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
	change  Change[serde.Windowed[K], A]
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
	sum, ok, err := s.merge(r, kb, whole)
	if err != nil {
		return err
	}
	next, keep := s.folds.add(sum, ok, r)
	s.change = s.of(r, whole)
	s.change.New, s.change.NoNew, s.change.NoOld = next, !keep, true
	return s.w.put(kb, &s.change)
}

// merge takes away the sessions that become part of the whole, and returns what they come to; ok: there are any.
func (s *sessionTask[K, V, A]) merge(r *Record[K, V], kb []byte, whole windows.Span) (sum A, ok bool, err error) {
	values := s.w.kept.values
	for i, span := range s.joined.spans {
		old, err := values.Decode(s.joined.values[i])
		if err != nil {
			return sum, ok, err
		}
		sum, ok = s.folds.merge(r.Key, sum, ok, old)
		if whole.Start == whole.End {
			continue // it is put again
		}
		s.change = s.of(r, span)
		s.change.NoNew = true
		if s.change.Old, err = values.Decode(s.joined.values[i]); err != nil { // merge may have changed the other one
			return sum, ok, err
		}
		if err := s.w.put(kb, &s.change); err != nil {
			return sum, ok, err
		}
	}
	return sum, ok, nil
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
