package client

import (
	"context"
	"errors"
	"io"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
)

// Drain makes the instance at endpoint give away all that it has, and reports how far that is: at once, and at each change. It
// returns nil when the goal is reached. Other ends are [router.ErrNobodyTakes], [router.ErrDrainUnsupported],
// [router.ErrDrainUndone], an error of the call, or the end of ctx: the instance goes on draining then. It is never tried at another
// instance. Over TLS the client's certificate must carry a name of the mesh.
func (c *Client) Drain(ctx context.Context, endpoint string, goal router.DrainGoal, report func(router.DrainStatus)) error {
	pe, err := c.pool.peer(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := statemeshv1.NewAdminServiceClient(pe).Drain(ctx, wire.FromDrainGoal(goal))
	if err != nil {
		return wire.FromStatus(err)
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the drain ended without an outcome")
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return wire.FromStatus(err)
		}
		if ended, err := wire.ToDrainOutcome(m); ended {
			return err
		}
		if report != nil {
			report(wire.ToDrainStatus(m))
		}
	}
}

// Undrain lets the group place tasks at the instance at endpoint again, and returns its id.
func (c *Client) Undrain(ctx context.Context, endpoint string) (instance string, err error) {
	pe, err := c.pool.peer(endpoint)
	if err != nil {
		return "", err
	}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	resp, err := statemeshv1.NewAdminServiceClient(pe).Undrain(ctx, &statemeshv1.UndrainRequest{})
	if err != nil {
		return "", wire.FromStatus(err)
	}
	return resp.GetAnsweredBy(), nil
}
