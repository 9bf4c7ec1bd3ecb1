package client

import (
	"context"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// Span is the time that a row is about, to the millisecond.
type Span struct {
	// Start, inclusive: of the window, of the session, of the validity of the version.
	Start time.Time
	// End of a window or of a validity, exclusive; of a session, inclusive. Zero: the version is the latest.
	End time.Time
}

// IsZero reports whether the row is about no time: it is of a key-value store.
func (s Span) IsZero() bool { return s.Start.IsZero() }

func spanOf(m *statemeshv1.Span) Span {
	w, ok := wire.ToSpan(m)
	if !ok {
		return Span{}
	}
	s := Span{Start: time.UnixMilli(w.Start).UTC()}
	if w.End != store.NoEnd {
		s.End = time.UnixMilli(w.End).UTC()
	}
	return s
}

// Point names one value. Times are in milliseconds; what is finer is cut off.
type Point struct {
	Key []byte
	at  wire.Instant
}

// InWindow is the window of key that starts at start.
func InWindow(key []byte, start time.Time) Point {
	return Point{Key: key, at: wire.Instant{Of: wire.WindowInstant, Start: start.UnixMilli()}}
}

// InSession is the session of key from start to end, both inclusive.
func InSession(key []byte, start, end time.Time) Point {
	return Point{Key: key, at: wire.Instant{Of: wire.SessionInstant, Start: start.UnixMilli(), End: end.UnixMilli()}}
}

// AsOf is the version of key that was valid at that moment.
func AsOf(key []byte, at time.Time) Point {
	return Point{Key: key, at: wire.Instant{Of: wire.AsOfInstant, Start: at.UnixMilli()}}
}

// FetchWindow returns the value of the window of key that starts exactly at start. Errors are those of [Client.Get].
func (c *Client) FetchWindow(ctx context.Context, name store.Name, key []byte, start time.Time, opts ...Option) (Result, error) {
	return c.point(ctx, "window fetch", name, InWindow(key, start), opts)
}

// FetchSession returns the value of exactly this session of key. Errors are those of [Client.Get].
func (c *Client) FetchSession(ctx context.Context, name store.Name, key []byte, start, end time.Time, opts ...Option) (Result, error) {
	return c.point(ctx, "session fetch", name, InSession(key, start, end), opts)
}

// GetAsOf returns the version of key that was valid at that moment. [store.ErrNotFound] too when the store's history does
// not go back so far. Errors are those of [Client.Get].
func (c *Client) GetAsOf(ctx context.Context, name store.Name, key []byte, at time.Time, opts ...Option) (Result, error) {
	return c.point(ctx, "as-of get", name, AsOf(key, at), opts)
}
