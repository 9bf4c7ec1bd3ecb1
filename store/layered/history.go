package layered

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// This file is the layout of versioned stores. Each version of a key is one row, whose version.timestamp is a time that
// depends on what the row is:
//
//   - The latest version, if it is a value, is in segment 0 under the key, with the start of its validity. It never expires.
//   - An older value is in the segment of the end of its validity under store.VersionKey, with that end. It is dead when the
//     end is, for then no read may ask for it.
//   - A tombstone is in the segment of its own time under store.VersionKey, with that time again: as a value it would be
//     valid for no time at all. Readers do without it, for the value before it says when it ended. Writers need it: what is
//     put before it ends there. That is over when nothing so old may be put any more, which is when its segment may go.
//
// Invariants, at every tick: the validities of a key's values do not overlap; each ends where the next version, value or
// tombstone, begins. Rows whose time has expired may be missing. Hence the rows of one key lie in ascending order from
// segment to segment (rowScan.inTurn), and a put changes three rows at most, however long the history is.

// rowSource is where versions are looked up: the writer's state or a snapshot.
type rowSource interface {
	// getRow returns a row, or store.ErrNotFound.
	getRow(segment engine.Segment, key []byte) (store.Value, error)
	// eachRow calls see for the rows of a scan, in order, until that returns false. Entries are see's to keep.
	eachRow(sc rowScan, see func(store.Entry) bool) error
}

// outOf reports whether time t is before what history reaches back to at stream time now.
func (s *segments) outOf(t, now int64) bool { return t < now-s.retention }

// latestOf is the latest version, given the value of its row.
func latestOf(v store.Value) store.Version { return store.Version{Value: v, ValidTo: store.NoEnd} }

// versionOf is the version in a row of history.
func versionOf(e store.Entry) store.Version { return store.Version{Value: e.Value, ValidTo: e.End} }

// lookAsOf returns the version of key that was valid at asOf when the store's time is now, or store.ErrNotFound.
func (p *placed) lookAsOf(src rowSource, now int64, key []byte, asOf int64) (store.Version, error) {
	latest, err := src.getRow(0, key)
	until := now
	switch {
	case err == nil && latest.Timestamp <= asOf:
		return latestOf(latest), nil // before asOf is looked at: it never expires (QS-09)
	case err == nil:
		until = latest.Timestamp
	case !errors.Is(err, store.ErrNotFound):
		return store.Version{}, err
	}
	if p.segments.outOf(asOf, now) {
		return store.Version{}, store.ErrNotFound
	}
	e, ok, err := p.covering(src, key, asOf, until)
	if err != nil {
		return store.Version{}, err
	}
	if !ok {
		return store.Version{}, store.ErrNotFound
	}
	return versionOf(e), nil
}

// covering returns the row of history that was valid at time t, which is not out of history. No row of the key is valid
// beyond until.
func (p *placed) covering(src rowSource, key []byte, t, until int64) (e store.Entry, ok bool, err error) {
	if t >= until {
		return e, false, nil
	}
	// The row ends somewhere in between, and each segment costs a seek. A key with few versions has it where the latest
	// begins; one with many soon after t.
	first, last := p.segments.of(max(t+1, 0)), p.segments.of(until)
	found := false
	err = src.eachRow(p.rowsOf(key, 0, t, nil, true).inSegments(last, last), func(row store.Entry) bool {
		e, ok, found = row, row.End > t, true // all other rows begin before this one, or after t
		return false
	})
	if err != nil || found || first == last {
		return e, ok, err
	}
	err = src.eachRow(p.rowsOf(key, 0, t, nil, true).inSegments(first, first), func(row store.Entry) bool {
		e, ok = row, row.End > t
		return false
	})
	if err != nil || ok {
		return e, ok, err
	}
	err = src.eachRow(p.rowsOf(key, 0, until, nil, false).inSegments(first+1, last-1), func(row store.Entry) bool {
		e, ok = row, row.Start <= t // all rows here end after t
		return false
	})
	return e, ok, err
}

// rowsOf selects the rows of history of a key that begin from first to last, both inclusive. Where they lie is to be said.
func (p *placed) rowsOf(key []byte, first, last int64, after []byte, reverse bool) rowScan {
	if first > last {
		return rowScan{sp: span{empty: true}}
	}
	return rowScan{
		sp:     rowSpan(store.VersionKey(key, first), store.VersionKey(key, last), after, reverse),
		inTurn: true,
		shape:  historyShape{key: key},
	}
}

// in restricts a scan of history to the segments of the times from first to last.
func (sc rowScan) in(p *placed, first, last int64) rowScan {
	if first = max(first, 0); first > last {
		return rowScan{sp: span{empty: true}}
	}
	return sc.inSegments(p.segments.of(first), p.segments.of(last))
}

// inSegments restricts a scan of history to segments, both inclusive.
func (sc rowScan) inSegments(first, last engine.Segment) rowScan {
	if sc.sp.empty || first > last {
		return rowScan{sp: span{empty: true}}
	}
	sc.segments = make([]engine.Segment, 0, last-first+1)
	for segment := first; segment <= last; segment++ {
		sc.segments = append(sc.segments, segment)
	}
	sc.shape = historyShape{sc.shape.(historyShape).key, first, last}
	return sc
}

// historyShape selects the rows of history of one key in some segments.
type historyShape struct {
	key         []byte
	first, last engine.Segment
}

func (s historyShape) selects(segment engine.Segment, row []byte) (bool, error) {
	return segment >= s.first && segment <= s.last && len(row) == len(s.key)+versionBytes && bytes.HasPrefix(row, s.key), nil
}

// split makes End of the row's time; a tombstone ends where it starts.
func (historyShape) split(e *store.Entry) (err error) {
	if e.Key, e.Start, err = store.ParseVersionKey(e.Cursor); err != nil {
		return err
	}
	e.End, e.Timestamp = e.Timestamp, e.Start
	if e.End < e.Start {
		return fmt.Errorf("version from %d to %d: %w", e.Start, e.End, store.ErrCorrupt)
	}
	return nil
}

// versionBytes is what store.VersionKey adds to a key.
const versionBytes = 8

// latestShape selects the latest versions of all keys.
type latestShape struct{}

func (latestShape) selects(segment engine.Segment, _ []byte) (bool, error) { return segment == 0, nil }
func (latestShape) split(*store.Entry) error                               { return nil }

// latestRows is the scan of the latest versions of all keys.
func latestRows() rowScan { return rowScan{segments: unsegmented, shape: latestShape{}} }

// versionRead is a scan of the versions of one key.
type versionRead struct {
	rows   rowScan
	latest *store.Entry // if it belongs to the scan: behind all others
	beyond int64        // what ends until here is not in it
}

// readOf says which rows s means when the store's time is now.
func (p *placed) readOf(src rowSource, now int64, s store.VersionScan) (versionRead, error) {
	key := bytes.Clone(s.Key) // the caller may go on to use its slices; the scan is read later
	var vr versionRead
	until := now
	latest, err := src.getRow(0, key)
	switch {
	case err == nil:
		until = latest.Timestamp
		e := store.Entry{Key: key, Value: latest, Start: latest.Timestamp, End: store.NoEnd, Cursor: store.VersionKey(key, latest.Timestamp)}
		if s.From <= s.To && e.Start <= s.To && isBehind(e.Cursor, s.After, s.Reverse) {
			vr.latest = &e
		}
	case !errors.Is(err, store.ErrNotFound):
		return vr, err
	}
	vr.beyond = max(s.From, now-p.segments.retention, -1)
	last := min(s.To, until)
	if s.From > s.To || p.segments.outOf(s.To, now) || vr.beyond >= until {
		last = math.MinInt64 // no history: only the latest version does not expire
	}
	first := int64(0)
	if !s.Reverse && s.After == nil && last >= 0 {
		// What begins before the scan and reaches into it is the row to start with: there may be many before it.
		first = max(0, vr.beyond)
		e, ok, err := p.covering(src, key, vr.beyond, until)
		if err != nil {
			return vr, err
		}
		if ok {
			first = e.Start
		}
	}
	vr.rows = p.rowsOf(key, first, last, s.After, s.Reverse)
	if !vr.rows.sp.empty {
		vr.rows = vr.rows.in(p, vr.beyond+1, until)
	}
	return vr, nil
}

// isBehind reports whether a cursor lies behind after in the direction of a scan.
func isBehind(cursor, after []byte, reverse bool) bool {
	if after == nil {
		return true
	}
	c := bytes.Compare(cursor, after)
	return c > 0 && !reverse || c < 0 && reverse
}

// versionIterator walks the versions of a key: rows of history without tombstones, and the latest version.
type versionIterator struct {
	rows    *iterator
	read    versionRead
	reverse bool
	entry   store.Entry
	err     error
	done    bool
}

var _ store.Iterator = (*versionIterator)(nil)

// Next moves to the next version.
func (it *versionIterator) Next() bool {
	if it.done {
		return false
	}
	if it.reverse && it.read.latest != nil {
		return it.last()
	}
	for it.rows.Next() {
		switch e := it.rows.Entry(); {
		case e.End <= it.read.beyond && it.reverse:
			return it.end(nil) // so does every older one
		case e.End <= it.read.beyond, e.End == e.Start: // a tombstone
		default:
			it.entry = e
			return true
		}
	}
	if err := it.rows.Err(); err != nil {
		return it.end(err)
	}
	if it.read.latest != nil {
		return it.last()
	}
	return it.end(nil)
}

// Entry is the current version; its slices are the caller's.
func (it *versionIterator) Entry() store.Entry { return it.entry }

// Err is what ended the scan before its end.
func (it *versionIterator) Err() error { return it.err }

// Close ends the scan.
func (it *versionIterator) Close() {
	it.done = true
	it.rows.Close()
}

// last moves to the latest version.
func (it *versionIterator) last() bool {
	if err := it.rows.w.valid(); err != nil {
		return it.end(err)
	}
	it.entry, it.read.latest = *it.read.latest, nil
	return true
}

func (it *versionIterator) end(err error) bool {
	it.err = err
	it.Close()
	return false
}

// valid says why what the scan has read may not be shown any more.
func (w *walk) valid() error {
	cause := w.cause.Load()
	switch {
	case cause != nil:
		return *cause
	case w.stores.closed.Load(), w.end.pin != nil && w.end.pin.cut.Load():
		return store.ErrClosed
	case w.end.snap != nil && w.end.snap.closed():
		return w.end.snap.why()
	}
	if w.end.stop != nil {
		if err := w.end.stop(); err != nil {
			return err
		}
	}
	return w.view.intact(w.name)
}

// each calls see for the rows of a merge that has all its layers, and closes it.
func (m *merge) each(see func(store.Entry) bool) error {
	defer m.close()
	var e store.Entry
	for {
		r, ok := m.next()
		if !ok {
			return m.err
		}
		live, err := m.entry(r, &e)
		if err != nil {
			return err
		}
		m.pass(r)
		if live && !see(e) {
			return nil
		}
	}
}
