package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/statemesh/statemesh/store"
)

// The kinds beside key-value stores, as naive as can be: every row is looked at.

const fakeWindowSize = 10

func windowEntry(key []byte, start int64, value string) store.Entry {
	cursor := binary.BigEndian.AppendUint64(bytes.Clone(key), uint64(start))
	return store.Entry{
		Key: key, Start: start, End: min(start, math.MaxInt64-fakeWindowSize) + fakeWindowSize, Cursor: binary.BigEndian.AppendUint32(cursor, 0),
		Value: store.Value{Data: []byte(value), Timestamp: start + 1},
	}
}

func sessionEntry(key []byte, start, end int64, value string) store.Entry {
	cursor := binary.BigEndian.AppendUint64(bytes.Clone(key), uint64(end))
	return store.Entry{
		Key: key, Start: start, End: end, Cursor: binary.BigEndian.AppendUint64(cursor, uint64(start)),
		Value: store.Value{Data: []byte(value), Timestamp: -1},
	}
}

func versionEntry(key []byte, from, to int64, value string) store.Entry {
	return store.Entry{
		Key: key, Start: from, End: to, Cursor: binary.BigEndian.AppendUint64(bytes.Clone(key), uint64(from)),
		Value: store.Value{Data: []byte(value), Timestamp: from},
	}
}

func inWindows(e *store.Entry, s *store.WindowScan) bool {
	return inKeys(e.Key, s.Key, s.KeyFrom, s.KeyTo) && e.Start >= s.From && e.Start <= s.To
}

func inSessions(e *store.Entry, s *store.SessionScan) bool {
	return inKeys(e.Key, s.Key, s.KeyFrom, s.KeyTo) && e.End >= s.EarliestEnd && e.End <= s.LatestEnd && e.Start <= s.LatestStart
}

func inVersions(e *store.Entry, s *store.VersionScan) bool {
	return bytes.Equal(e.Key, s.Key) && e.Start <= s.To && (e.End == store.NoEnd || e.End > s.From)
}

type fakeWindows struct{ *fakeReading }

func (r *fakeWindows) Windows() (store.WindowReader, error) { return r, nil }

func (r *fakeWindows) Fetch(_ context.Context, key []byte, start int64) (store.Value, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.Start == start })
	return e.Value, err
}

func (r *fakeWindows) Scan(_ context.Context, s store.WindowScan) (store.Iterator, error) {
	return r.iterate(s.After, s.Reverse, func(e *store.Entry) bool { return inWindows(e, &s) }), nil
}

// ApproximateBytes makes it a [store.Sized].
func (r *fakeWindows) ApproximateBytes(context.Context) (int64, error) {
	var n int64
	for i := range r.es {
		n += int64(len(r.es[i].Key) + len(r.es[i].Data))
	}
	return n, nil
}

type fakeSessions struct{ *fakeReading }

func (r *fakeSessions) Sessions() (store.SessionReader, error) { return r, nil }

func (r *fakeSessions) Fetch(_ context.Context, key []byte, start, end int64) (store.Value, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.Start == start && e.End == end })
	return e.Value, err
}

func (r *fakeSessions) Scan(_ context.Context, s store.SessionScan) (store.Iterator, error) {
	return r.iterate(s.After, s.Reverse, func(e *store.Entry) bool { return inSessions(e, &s) }), nil
}

type fakeVersions struct{ *fakeReading }

func (r *fakeVersions) Versions() (store.VersionedReader, error) { return r, nil }

func (r *fakeVersions) Get(_ context.Context, key []byte) (store.Version, error) {
	e, err := r.find(func(e *store.Entry) bool { return bytes.Equal(e.Key, key) && e.End == store.NoEnd })
	return store.Version{Value: e.Value, ValidTo: e.End}, err
}

func (r *fakeVersions) GetAsOf(_ context.Context, key []byte, at int64) (store.Version, error) {
	e, err := r.find(func(e *store.Entry) bool {
		return bytes.Equal(e.Key, key) && e.Start <= at && (e.End == store.NoEnd || e.End > at)
	})
	return store.Version{Value: e.Value, ValidTo: e.End}, err
}

func (r *fakeVersions) Scan(_ context.Context, s store.VersionScan) (store.Iterator, error) {
	return r.iterate(s.After, s.Reverse, func(e *store.Entry) bool { return inVersions(e, &s) }), nil
}
