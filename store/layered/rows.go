package layered

import (
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// This file is the raw layer under the kinds that keep several rows per key (window, session, versioned). A row is a
// segment and a physical key. What a kind adds is which segment a row lies in, which rows have expired, and how physical
// keys become what callers see:
//
//   - Rows of all segments lie together in the tables; the engine keeps them apart. The same physical key in two segments
//     is two rows, so a kind that moves a row to another segment deletes it in the one and sets it in the other.
//   - Segment 0 never expires. Time segments begin at 1 (segments.of).
//   - part.get, part.set, part.scan are the writer's, reader.getRow and reader.scanRows a snapshot's.
//   - A scan has the order of the physical keys, whatever segments they lie in, and says which segments it may find rows in.

// rowScan is a scan of rows.
type rowScan struct {
	sp span
	// segments are those of the engine that may hold rows of the scan, ascending.
	segments []engine.Segment
	// inTurn says that the rows the scan selects lie in ascending order from segment to segment, as the rows of one key
	// do: then one segment is read after the other instead of all at once.
	inTurn bool
	// shape selects and splits rows; nil where a row is what callers see.
	shape rowShape
}

// rowShape is what a kind makes of physical keys in one scan.
type rowShape interface {
	// selects reports whether the row belongs to the scan. An error ends the scan.
	selects(segment engine.Segment, key []byte) (bool, error)
	// split replaces the physical key in e.Key by what callers see; e.Cursor stays.
	split(e *store.Entry) error
}

// unsegmented is where stores without segments keep their rows.
var unsegmented = []engine.Segment{0}

// plainScan is the scan of a store without segments.
func plainScan(sp span) rowScan { return rowScan{sp: sp, segments: unsegmented} }

// segments cut the time of a store into what expires as a whole.
type segments struct {
	retention, interval int64 // in milliseconds
}

// moment is where a store's own time is.
type moment struct {
	// time is the greatest time put into the store, in Unix milliseconds; noTime when nothing was.
	time int64
	// seq is the number that the last row of a store with duplicates got.
	seq int32
}

// noTime is the time of a store that nothing was put into.
const noTime = -1

func segmentsOf(spec store.Spec) *segments {
	switch spec.Kind {
	case store.KindWindow, store.KindTimestampedWindow, store.KindSession, store.KindVersioned:
		return &segments{retention: spec.Retention.Milliseconds(), interval: spec.Segment().Milliseconds()}
	default:
		return nil
	}
}

// of is the segment of time t, which is at least 0. Segment 0 is not one of time.
func (s *segments) of(t int64) engine.Segment {
	return 1 + engine.Segment(store.SegmentOf(t, time.Duration(s.interval)*time.Millisecond))
}

// live is the least time that has not expired at stream time now: upstream's in-memory line, for every engine.
func (s *segments) live(now int64) int64 { return max(0, now-s.retention+1) }

// floor is the least time segment that holds something alive at stream time now.
func (s *segments) floor(now int64) engine.Segment { return s.of(s.live(now)) }

// between lists the segments of the times from first to last.
func (s *segments) between(first, last int64) []engine.Segment {
	if first > last {
		return nil
	}
	from, to := s.of(first), s.of(last)
	out := make([]engine.Segment, 0, to-from+1)
	for seg := from; seg <= to; seg++ {
		out = append(out, seg)
	}
	return out
}

// split returns what callers see of a row: key, which shares row, and the times of the window or session.
func (p *placed) split(row []byte) (key []byte, start, end int64, err error) {
	switch p.spec.Kind {
	case store.KindWindow, store.KindTimestampedWindow:
		key, start, _, err = store.ParseWindowKey(row)
		return key, start, p.spec.WindowEnd(start), err
	case store.KindSession:
		return store.ParseSessionKey(row)
	default:
		return row, 0, 0, nil
	}
}

// rowTime is the time that decides about a row's segment and expiry, and its number in a store with duplicates. An error
// says that it is no row of this store.
func (p *placed) rowTime(key []byte) (at int64, seq int32, err error) {
	if p.spec.Kind == store.KindSession {
		_, _, at, err = store.ParseSessionKey(key)
		return at, 0, err
	}
	_, at, seq, err = store.ParseWindowKey(key)
	return at, seq, err
}
