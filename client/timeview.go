package client

import (
	"context"
	"iter"
	"time"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// WindowView is a window store with the types of its keys and values. Safe for concurrent use.
type WindowView[K, V any] struct{ v *View[K, V] }

// NewWindowView returns a window store, seen through serdes: see [NewView].
func NewWindowView[K, V any](c *Client, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *WindowView[K, V] {
	return &WindowView[K, V]{NewView(c, name, keys, values)}
}

// Fetch returns the window of key that starts exactly at start. See [Client.FetchWindow].
func (w *WindowView[K, V]) Fetch(ctx context.Context, key K, start time.Time, opts ...Option) (Item[K, V], Answer, error) {
	return w.v.point(key, func(k []byte) (Result, error) { return w.v.c.FetchWindow(ctx, w.v.name, k, start, opts...) })
}

// Of reads the windows of key that start between from and to, both inclusive, zero for open, earliest first.
func (w *WindowView[K, V]) Of(ctx context.Context, key K, from, to time.Time, opts ...Option) iter.Seq2[Item[K, V], error] {
	k, err := w.v.oneKey(key)
	if err != nil {
		return failed[Item[K, V]](err)
	}
	return w.Scan(ctx, WindowQuery{Key: k, From: from, To: to}, opts...)
}

// Scan reads windows in order. See [Client.ScanWindows]. A row that the serdes cannot read ends it.
func (w *WindowView[K, V]) Scan(ctx context.Context, q WindowQuery, opts ...Option) iter.Seq2[Item[K, V], error] {
	return w.v.items(w.v.c.ScanWindows(ctx, w.v.name, q, opts...))
}

// SessionView is a session store with the types of its keys and values. Safe for concurrent use.
type SessionView[K, V any] struct{ v *View[K, V] }

// NewSessionView returns a session store, seen through serdes: see [NewView].
func NewSessionView[K, V any](c *Client, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *SessionView[K, V] {
	return &SessionView[K, V]{NewView(c, name, keys, values)}
}

// Fetch returns exactly this session of key. See [Client.FetchSession].
func (s *SessionView[K, V]) Fetch(ctx context.Context, key K, start, end time.Time, opts ...Option) (Item[K, V], Answer, error) {
	return s.v.point(key, func(k []byte) (Result, error) { return s.v.c.FetchSession(ctx, s.v.name, k, start, end, opts...) })
}

// Of reads the sessions of key, earliest end first.
func (s *SessionView[K, V]) Of(ctx context.Context, key K, opts ...Option) iter.Seq2[Item[K, V], error] {
	k, err := s.v.oneKey(key)
	if err != nil {
		return failed[Item[K, V]](err)
	}
	return s.Scan(ctx, SessionQuery{Key: k}, opts...)
}

// Scan reads sessions in order. See [Client.ScanSessions]. A row that the serdes cannot read ends it.
func (s *SessionView[K, V]) Scan(ctx context.Context, q SessionQuery, opts ...Option) iter.Seq2[Item[K, V], error] {
	return s.v.items(s.v.c.ScanSessions(ctx, s.v.name, q, opts...))
}

// VersionView is a versioned store with the types of its keys and values. Safe for concurrent use.
type VersionView[K, V any] struct{ v *View[K, V] }

// NewVersionView returns a versioned store, seen through serdes: see [NewView].
func NewVersionView[K, V any](c *Client, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *VersionView[K, V] {
	return &VersionView[K, V]{NewView(c, name, keys, values)}
}

// Get returns the latest version of key. See [Client.Get].
func (v *VersionView[K, V]) Get(ctx context.Context, key K, opts ...Option) (Item[K, V], Answer, error) {
	return v.v.point(key, func(k []byte) (Result, error) { return v.v.c.Get(ctx, v.v.name, k, opts...) })
}

// GetAsOf returns the version of key that was valid at that moment. See [Client.GetAsOf].
func (v *VersionView[K, V]) GetAsOf(ctx context.Context, key K, at time.Time, opts ...Option) (Item[K, V], Answer, error) {
	return v.v.point(key, func(k []byte) (Result, error) { return v.v.c.GetAsOf(ctx, v.v.name, k, at, opts...) })
}

// History reads the versions of key that were valid at some moment between from and to, both inclusive, zero for open,
// earliest first.
func (v *VersionView[K, V]) History(ctx context.Context, key K, from, to time.Time, opts ...Option) iter.Seq2[Item[K, V], error] {
	k, err := v.v.oneKey(key)
	if err != nil {
		return failed[Item[K, V]](err)
	}
	return v.Scan(ctx, VersionQuery{Key: k, From: from, To: to}, opts...)
}

// Scan reads the versions of one key in order. See [Client.ScanVersions]. A row that the serdes cannot read ends it.
func (v *VersionView[K, V]) Scan(ctx context.Context, q VersionQuery, opts ...Option) iter.Seq2[Item[K, V], error] {
	return v.v.items(v.v.c.ScanVersions(ctx, v.v.name, q, opts...))
}
