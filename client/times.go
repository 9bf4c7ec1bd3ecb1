package client

import (
	"context"
	"iter"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// Page is what all scans over time have in common.
type Page struct {
	// Reverse returns rows in descending order. Lower bounds stay lower bounds.
	Reverse bool
	// Limit is the most rows wanted; 0: all.
	Limit int64
	// Answers: see [ScanQuery].
	Answers func([]Answer)
}

func (p Page) query(from, to []byte) ScanQuery {
	return ScanQuery{From: from, To: to, Reverse: p.Reverse, Limit: p.Limit, Answers: p.Answers}
}

// WindowQuery selects windows, ordered by key and start. The zero value is all of them.
type WindowQuery struct {
	// Key selects the windows of one key; it may not be combined with KeyFrom and KeyTo.
	Key []byte
	// KeyFrom and KeyTo are inclusive bounds of the keys; nil is open.
	KeyFrom, KeyTo []byte
	// From and To are inclusive bounds of the starts of the windows, in milliseconds; zero is open. From after To is an empty
	// result.
	From, To time.Time
	Page
}

// ScanWindows reads windows in order. It behaves as [Client.Scan] does.
func (c *Client) ScanWindows(ctx context.Context, name store.Name, q WindowQuery, opts ...Option) iter.Seq2[Row, error] {
	sel := &statemeshv1.ScanRequest_Windows{Windows: &statemeshv1.WindowSelection{StartFromMs: bound(q.From), StartToMs: bound(q.To)}}
	return c.scan(ctx, scan{
		name: name, q: q.query(q.KeyFrom, q.KeyTo), key: q.Key,
		times: func(r *statemeshv1.ScanRequest) { r.Selection = sel },
	}, opts)
}

// SessionQuery selects sessions by overlap, ordered by key, end and start. The zero value is all of them.
type SessionQuery struct {
	// Key selects the sessions of one key; it may not be combined with KeyFrom and KeyTo.
	Key []byte
	// KeyFrom and KeyTo are inclusive bounds of the keys; nil is open.
	KeyFrom, KeyTo []byte
	// A session is selected that ends at EarliestEnd or later, at LatestEnd or earlier, and starts at LatestStart or earlier,
	// in milliseconds; zero is open.
	EarliestEnd, LatestEnd, LatestStart time.Time
	Page
}

// ScanSessions reads sessions in order. It behaves as [Client.Scan] does.
func (c *Client) ScanSessions(ctx context.Context, name store.Name, q SessionQuery, opts ...Option) iter.Seq2[Row, error] {
	sel := &statemeshv1.ScanRequest_Sessions{Sessions: &statemeshv1.SessionSelection{
		EarliestEndMs: bound(q.EarliestEnd), LatestEndMs: bound(q.LatestEnd), LatestStartMs: bound(q.LatestStart),
	}}
	return c.scan(ctx, scan{
		name: name, q: q.query(q.KeyFrom, q.KeyTo), key: q.Key,
		times: func(r *statemeshv1.ScanRequest) { r.Selection = sel },
	}, opts)
}

// VersionQuery selects the versions of one key that were valid at some moment between From and To, ordered by the start
// of their validity.
type VersionQuery struct {
	Key []byte
	// From and To are inclusive, in milliseconds; zero is open. From after To is an empty result.
	From, To time.Time
	Page
}

// ScanVersions reads the history of a key in order. It behaves as [Client.Scan] does.
func (c *Client) ScanVersions(ctx context.Context, name store.Name, q VersionQuery, opts ...Option) iter.Seq2[Row, error] {
	sel := &statemeshv1.ScanRequest_Versions{Versions: &statemeshv1.VersionSelection{FromMs: bound(q.From), ToMs: bound(q.To)}}
	key := q.Key
	if key == nil {
		key = []byte{} // refused like any other empty key
	}
	return c.scan(ctx, scan{
		name: name, q: q.query(nil, nil), key: key,
		times: func(r *statemeshv1.ScanRequest) { r.Selection = sel },
	}, opts)
}

// bound is a time on the wire; nil: open.
func bound(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}
