package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// timedStore is a window, session or versioned store of a fleet, as naive as can be. The fleet's lock guards it.
type timedStore struct {
	kind store.Kind
	rows map[store.Partition][]store.Entry // by cursor
}

// putTimed adds a row that is about the time from start to end.
func (f *fleet) putTimed(name store.Name, kind store.Kind, key string, start, end, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ts := f.timed[name]
	if ts == nil {
		ts = &timedStore{kind: kind, rows: map[store.Partition][]store.Entry{}}
		f.timed[name] = ts
	}
	e := store.Entry{Key: []byte(key), Start: start, End: end, Value: store.Value{Data: binary.BigEndian.AppendUint64(nil, uint64(n)), Timestamp: start}}
	switch kind {
	case store.KindSession:
		e.Cursor = store.SessionKey(e.Key, start, end)
	default:
		e.Cursor = store.WindowKey(e.Key, start, 0)
	}
	p := router.PartitionFor(e.Key, partitions)
	ts.rows[p] = append(ts.rows[p], e)
	slices.SortFunc(ts.rows[p], func(a, b store.Entry) int { return bytes.Compare(a.Cursor, b.Cursor) })
}

func (ts *timedStore) reading(p store.Partition, tok store.Token) store.Reading {
	r := &timedReading{NoReads: store.NoReads{Kind: ts.kind}, rows: slices.Clone(ts.rows[p]), token: tok}
	switch ts.kind {
	case store.KindSession:
		return &sessionReading{r}
	case store.KindVersioned:
		return &versionReading{r}
	default:
		return &windowReading{r}
	}
}

type timedReading struct {
	store.NoReads

	rows  []store.Entry
	token store.Token
}

func (r *timedReading) Facts() store.Facts {
	return store.Facts{Role: store.RoleActive, Sequence: 1, Position: store.Position{}, Token: r.token}
}
func (r *timedReading) Close() {}
func (r *timedReading) ApproximateCount(context.Context) (int64, error) {
	return int64(len(r.rows)), nil
}

func (r *timedReading) find(match func(*store.Entry) bool) (store.Entry, error) {
	for i := range r.rows {
		if match(&r.rows[i]) {
			return r.rows[i], nil
		}
	}
	return store.Entry{}, store.ErrNotFound
}

func (r *timedReading) scan(after []byte, reverse bool, match func(*store.Entry) bool) store.Iterator {
	it := &rowsIterator{at: -1}
	for i := range r.rows {
		e := &r.rows[i]
		c := bytes.Compare(e.Cursor, after)
		if beyond := after == nil || c != 0 && c > 0 != reverse; beyond && match(e) {
			it.rows = append(it.rows, *e)
		}
	}
	if reverse {
		slices.Reverse(it.rows)
	}
	return it
}

func within(e *store.Entry, key, from, to []byte) bool {
	return (key == nil || bytes.Equal(e.Key, key)) && (from == nil || bytes.Compare(e.Key, from) >= 0) && (to == nil || bytes.Compare(e.Key, to) <= 0)
}

type windowReading struct{ *timedReading }

func (r *windowReading) Windows() (store.WindowReader, error) { return r, nil }

func (r *windowReading) Fetch(_ context.Context, key []byte, start int64) (store.Value, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.Start == start })
	return e.Value, err
}

func (r *windowReading) Scan(_ context.Context, s store.WindowScan) (store.Iterator, error) {
	return r.scan(s.After, s.Reverse, func(e *store.Entry) bool {
		return within(e, s.Key, s.KeyFrom, s.KeyTo) && e.Start >= s.From && e.Start <= s.To
	}), nil
}

type sessionReading struct{ *timedReading }

func (r *sessionReading) Sessions() (store.SessionReader, error) { return r, nil }

func (r *sessionReading) Fetch(_ context.Context, key []byte, start, end int64) (store.Value, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.Start == start && e.End == end })
	return e.Value, err
}

func (r *sessionReading) Scan(_ context.Context, s store.SessionScan) (store.Iterator, error) {
	return r.scan(s.After, s.Reverse, func(e *store.Entry) bool {
		return within(e, s.Key, s.KeyFrom, s.KeyTo) && e.End >= s.EarliestEnd && e.End <= s.LatestEnd && e.Start <= s.LatestStart
	}), nil
}

type versionReading struct{ *timedReading }

func (r *versionReading) Versions() (store.VersionedReader, error) { return r, nil }

func (r *versionReading) Get(_ context.Context, key []byte) (store.Version, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.End == store.NoEnd })
	return store.Version{Value: e.Value, ValidTo: e.End}, err
}

func (r *versionReading) GetAsOf(_ context.Context, key []byte, at int64) (store.Version, error) {
	e, err := r.find(func(e *store.Entry) bool {
		return bytes.Equal(e.Key, key) && e.Start <= at && (e.End == store.NoEnd || e.End > at)
	})
	return store.Version{Value: e.Value, ValidTo: e.End}, err
}

func (r *versionReading) Scan(_ context.Context, s store.VersionScan) (store.Iterator, error) {
	return r.scan(s.After, s.Reverse, func(e *store.Entry) bool {
		return bytes.Equal(e.Key, s.Key) && e.Start <= s.To && (e.End == store.NoEnd || e.End > s.From)
	}), nil
}
