package wire

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/statemesh/statemesh/store"
)

// The request headers of a forwarded request. They are no part of the public API: a server takes them only from a peer
// that has proven to be one, and refuses a request that has them from anybody else. If it took such a request for a
// client's it might forward it again.
const (
	forwardedByKey          = "statemesh-forwarded-by"
	forwardedApplicationKey = "statemesh-application"
)

// Forwarded is the mark of a forwarded request.
type Forwarded struct {
	// By is the id of the instance that forwards.
	By string
	// Application is its application id: another application may have come to listen at an endpoint of this one.
	Application string
}

// Outgoing returns a context for the forwarded call. Headers that a client sent along do not pass.
func (f Forwarded) Outgoing(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(forwardedByKey, f.By, forwardedApplicationKey, f.Application))
}

// ToForwarded reads the mark of an incoming call. ok is false when the call has none of its headers; a mark that is not
// whole is an *[store.InvalidRequestError].
func ToForwarded(ctx context.Context) (f Forwarded, ok bool, err error) {
	by := metadata.ValueFromIncomingContext(ctx, forwardedByKey)
	app := metadata.ValueFromIncomingContext(ctx, forwardedApplicationKey)
	if len(by) == 0 && len(app) == 0 {
		return Forwarded{}, false, nil
	}
	if len(by) != 1 || len(app) != 1 {
		return Forwarded{}, true, &store.InvalidRequestError{Field: "forwarding headers", Reason: "want each of them once"}
	}
	return Forwarded{By: by[0], Application: app[0]}, true, nil
}
