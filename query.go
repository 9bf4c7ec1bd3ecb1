package statemesh

import (
	"context"
	"iter"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// Get returns the value of key in any store of the application, whoever owns it: out of this instance's own stores, its
// remote cache, or by one hop. It goes through this instance's server, so limits, bounds and metrics are those of every
// other caller. Errors are those of [client.Client.Get].
func (i *Instance) Get(ctx context.Context, name store.Name, key []byte, opts ...client.Option) (client.Result, error) {
	p, err := i.serving()
	if err != nil {
		return client.Result{}, err
	}
	return p.client.Get(ctx, name, key, p.by(opts)...)
}

// BatchGet returns one result per key, in order; see [client.Client.BatchGet].
func (i *Instance) BatchGet(ctx context.Context, name store.Name, keys [][]byte, opts ...client.Option) ([]client.Lookup, error) {
	p, err := i.serving()
	if err != nil {
		return nil, err
	}
	return p.client.BatchGet(ctx, name, keys, p.by(opts)...)
}

// Scan yields rows of any store in the order of their keys, over all partitions; see [client.Client.Scan].
func (i *Instance) Scan(ctx context.Context, name store.Name, q client.ScanQuery, opts ...client.Option) iter.Seq2[client.Row, error] {
	p, err := i.serving()
	if err != nil {
		return noRows(err)
	}
	return p.client.Scan(ctx, name, q, p.by(opts)...)
}

// Read pins one partition that this instance itself owns, or has a standby copy of, at its last commit: the shortest way, without
// a copy over any connection. The reading must be closed; its Facts say in which role it answers and how old it is. A copy
// answers unless opts.OnlyActive is set. [store.MovedError] names the owner of what is not here.
func (i *Instance) Read(ctx context.Context, name store.Name, partition store.Partition, opts store.ReadOptions) (store.Reading, error) {
	p, err := i.serving()
	if err != nil {
		return nil, err
	}
	return p.runtime.Read(ctx, name, partition, opts)
}

// serving returns the parts while they answer.
func (i *Instance) serving() (*parts, error) {
	p := i.parts.Load()
	switch {
	case p == nil:
		return nil, errNotRunning
	case i.state.get() > Serving:
		return nil, store.ErrShuttingDown
	default:
		return p, nil
	}
}

// by sends a call through this instance's own server.
func (p *parts) by(opts []client.Option) []client.Option {
	return append([]client.Option{client.Via(p.endpoint)}, opts...)
}
