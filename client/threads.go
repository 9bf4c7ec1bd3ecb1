package client

import (
	"context"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

// AddThread begins one more stream thread at the instance at endpoint and returns its name once the group knows it (upstream's
// addStreamThread). *[router.ThreadLimitError] when there are as many as there may be. When ctx ends first the thread goes on. Like
// [Client.Drain] it is for operators, and never tried at another instance.
func (c *Client) AddThread(ctx context.Context, endpoint string) (name string, err error) {
	pe, err := c.pool.peer(endpoint)
	if err != nil {
		return "", err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m, err := statemeshv1.NewAdminServiceClient(pe).AddThread(ctx, &statemeshv1.AddThreadRequest{})
	if err != nil {
		return "", wire.FromStatus(err)
	}
	return m.GetThread(), wire.ToThreadRefusal(m.GetRefusal(), m.GetLimit())
}

// RemoveThread ends the stream thread that was begun last at the instance at endpoint and returns its name once it has left the group
// (upstream's removeStreamThread). Its tasks go to where the group places them. [router.ErrLastThread]; [router.ErrThreadLingers] with a
// name when the group was not told that it left. It is for operators, as [Client.AddThread] is.
func (c *Client) RemoveThread(ctx context.Context, endpoint string) (name string, err error) {
	pe, err := c.pool.peer(endpoint)
	if err != nil {
		return "", err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m, err := statemeshv1.NewAdminServiceClient(pe).RemoveThread(ctx, &statemeshv1.RemoveThreadRequest{})
	if err != nil {
		return "", wire.FromStatus(err)
	}
	return m.GetThread(), wire.ToThreadRefusal(m.GetRefusal(), nil)
}

// Threads lists the stream threads of the instance at endpoint with their tasks. limit is how many there may be, 0 for as many as
// anybody wants.
func (c *Client) Threads(ctx context.Context, endpoint string) (threads []router.Thread, limit int, err error) {
	pe, err := c.pool.peer(endpoint)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m, err := statemeshv1.NewAdminServiceClient(pe).ListThreads(ctx, &statemeshv1.ListThreadsRequest{})
	if err != nil {
		return nil, 0, wire.FromStatus(err)
	}
	threads, limit = wire.ToThreads(m)
	return threads, limit, nil
}

// Topology describes what the instance at endpoint runs, as data and in three notations (upstream's TopologyDescription).
func (c *Client) Topology(ctx context.Context, endpoint string) (*router.Topology, error) {
	md, err := c.pool.Metadata(endpoint)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	m, err := md.DescribeTopology(ctx, &statemeshv1.DescribeTopologyRequest{})
	if err != nil {
		return nil, wire.FromStatus(err)
	}
	return wire.ToTopology(m), nil
}
