package wire

import (
	"context"
	"strconv"

	"google.golang.org/grpc/metadata"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// The request headers of a forwarded request. They are no part of the public API: a server takes them only from a peer
// that has proven to be one, and refuses a request that has them from anybody else. If it took such a request for a
// client's it might forward it again.
const (
	forwardedByKey          = "statemesh-forwarded-by"
	forwardedApplicationKey = "statemesh-application"
	forwardedEpochKey       = "statemesh-epoch"
)

// Forwarded is the mark of a forwarded request.
type Forwarded struct {
	// By is the id of the instance that forwards.
	By string
	// Application is its application id: another application may have come to listen at an endpoint of this one.
	Application string
	// Epoch is the version of the metadata by which it chose the receiver.
	Epoch router.Epoch
}

// Outgoing returns a context for the forwarded call. Headers that a client sent along do not pass.
func (f Forwarded) Outgoing(ctx context.Context) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(
		forwardedByKey, f.By,
		forwardedApplicationKey, f.Application,
		forwardedEpochKey, strconv.FormatInt(int64(f.Epoch), 10),
	))
}

// ToForwarded reads the mark of an incoming call. ok is false when the call has none of its headers; a mark that is not
// whole is an *[store.InvalidRequestError].
func ToForwarded(ctx context.Context) (f Forwarded, ok bool, err error) {
	by := metadata.ValueFromIncomingContext(ctx, forwardedByKey)
	app := metadata.ValueFromIncomingContext(ctx, forwardedApplicationKey)
	epoch := metadata.ValueFromIncomingContext(ctx, forwardedEpochKey)
	if len(by) == 0 && len(app) == 0 && len(epoch) == 0 {
		return Forwarded{}, false, nil
	}
	if len(by) != 1 || len(app) != 1 || len(epoch) != 1 {
		return Forwarded{}, true, &store.InvalidRequestError{Field: "forwarding headers", Reason: "want each of them once"}
	}
	n, err := strconv.ParseInt(epoch[0], 10, 64)
	if err != nil || n < 0 {
		return Forwarded{}, true, &store.InvalidRequestError{Field: forwardedEpochKey, Reason: "no number >= 0"}
	}
	return Forwarded{By: by[0], Application: app[0], Epoch: router.Epoch(n)}, true, nil
}
