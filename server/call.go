package server

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/router"
)

// call is what the interceptors know of a request; handlers add to it how it was answered.
type call struct {
	method string
	origin router.Origin
	start  time.Time
	routes atomic.Uint32

	bytes *byteLimit // nil: nothing is counted
	// held is what the call has taken of it; answer is the part of that which will be the answer.
	held, answer atomic.Int64
}

// The ways in which a request, or a part of it, was answered.
const (
	viaLocal uint32 = 1 << iota
	viaRemote
	viaCache
)

func (c *call) via(r uint32) { c.routes.Or(r) }

func (c *call) route() string {
	switch c.routes.Load() {
	case 0:
		return "none"
	case viaLocal:
		return "local"
	case viaRemote:
		return "remote"
	case viaCache:
		return "cache"
	default:
		return "mixed"
	}
}

func (c *call) originName() string {
	if c.origin == router.OriginPeer {
		return "peer"
	}
	return "entry"
}

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the call of a handler's context. The interceptors put one into every context of our services.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{start: time.Now()}
}
