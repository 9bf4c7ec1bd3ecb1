package statemesh

import (
	"context"
	"iter"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// BatchFetch returns one result per window, session or version, in order; see [client.Client.BatchFetch].
func (i *Instance) BatchFetch(ctx context.Context, name store.Name, points []client.Point, opts ...client.Option) ([]client.Lookup, error) {
	p, err := i.serving()
	if err != nil {
		return nil, err
	}
	return p.client.BatchFetch(ctx, name, points, p.by(opts)...)
}

// FetchWindow returns the value of the window of key that starts exactly at start; see [client.Client.FetchWindow].
func (i *Instance) FetchWindow(ctx context.Context, name store.Name, key []byte, start time.Time, opts ...client.Option) (client.Result, error) {
	p, err := i.serving()
	if err != nil {
		return client.Result{}, err
	}
	return p.client.FetchWindow(ctx, name, key, start, p.by(opts)...)
}

// ScanWindows yields windows in order; see [client.Client.ScanWindows].
func (i *Instance) ScanWindows(ctx context.Context, name store.Name, q client.WindowQuery, opts ...client.Option) iter.Seq2[client.Row, error] {
	p, err := i.serving()
	if err != nil {
		return noRows(err)
	}
	return p.client.ScanWindows(ctx, name, q, p.by(opts)...)
}

// FetchSession returns the value of exactly this session of key; see [client.Client.FetchSession].
func (i *Instance) FetchSession(ctx context.Context, name store.Name, key []byte, start, end time.Time, opts ...client.Option) (client.Result, error) {
	p, err := i.serving()
	if err != nil {
		return client.Result{}, err
	}
	return p.client.FetchSession(ctx, name, key, start, end, p.by(opts)...)
}

// ScanSessions yields sessions in order; see [client.Client.ScanSessions].
func (i *Instance) ScanSessions(ctx context.Context, name store.Name, q client.SessionQuery, opts ...client.Option) iter.Seq2[client.Row, error] {
	p, err := i.serving()
	if err != nil {
		return noRows(err)
	}
	return p.client.ScanSessions(ctx, name, q, p.by(opts)...)
}

// GetAsOf returns the version of key that was valid at that moment; see [client.Client.GetAsOf]. Get returns the latest.
func (i *Instance) GetAsOf(ctx context.Context, name store.Name, key []byte, at time.Time, opts ...client.Option) (client.Result, error) {
	p, err := i.serving()
	if err != nil {
		return client.Result{}, err
	}
	return p.client.GetAsOf(ctx, name, key, at, p.by(opts)...)
}

// ScanVersions yields the history of a key in order; see [client.Client.ScanVersions].
func (i *Instance) ScanVersions(ctx context.Context, name store.Name, q client.VersionQuery, opts ...client.Option) iter.Seq2[client.Row, error] {
	p, err := i.serving()
	if err != nil {
		return noRows(err)
	}
	return p.client.ScanVersions(ctx, name, q, p.by(opts)...)
}

// Count estimates the number of rows of any store; see [client.Client.Count].
func (i *Instance) Count(ctx context.Context, name store.Name, opts ...client.Option) (client.Count, error) {
	p, err := i.serving()
	if err != nil {
		return client.Count{}, err
	}
	return p.client.Count(ctx, name, p.by(opts)...)
}

// CountExact counts every row of any store; see [client.Client.CountExact].
func (i *Instance) CountExact(ctx context.Context, name store.Name, opts ...client.Option) (client.Count, error) {
	p, err := i.serving()
	if err != nil {
		return client.Count{}, err
	}
	return p.client.CountExact(ctx, name, p.by(opts)...)
}

// noRows is a scan that cannot begin.
func noRows(err error) iter.Seq2[client.Row, error] {
	return func(yield func(client.Row, error) bool) { yield(client.Row{}, err) }
}
