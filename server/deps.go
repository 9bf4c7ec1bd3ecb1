package server

import (
	"context"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/store"
)

// Stores reads the stores of this instance. Safe for concurrent use.
type Stores interface {
	// Read pins one partition of a store at its last commit. The reading must be closed. Errors: *[store.UnknownStoreError],
	// *[store.InvalidRequestError] for a partition that does not exist, *[store.MovedError] when the partition is not
	// here, *[store.NotReadyError] while it restores or when its age cannot be proven, [store.ErrShuttingDown].
	Read(ctx context.Context, name store.Name, p store.Partition, opts store.ReadOptions) (store.Reading, error)
}

// Peers has connections to the other instances. Safe for concurrent use.
type Peers interface {
	// Query returns a client for the instance at "host:port". It does not wait for a connection: a peer that cannot be
	// reached shows at the first call.
	Query(endpoint string) (statemeshv1.QueryServiceClient, error)
	// Metadata returns a client for the same instance's metadata service: what it says of itself. It does not wait either.
	Metadata(endpoint string) (statemeshv1.MetadataServiceClient, error)
}

// Deps is what a server works with.
type Deps struct {
	// Stores of this instance. Required.
	Stores Stores
	// Peers are the other instances. Required.
	Peers Peers
	// Table is the published metadata. Required.
	Table *router.Table
	// Cache of remote answers; nil: none. Its owner runs it.
	Cache *remotecache.Cache
	// Mesh knows which instances live; nil: nothing is said about that.
	Mesh Mesh
	// Copies of the tasks that this instance has, for peers that need them; nil: it gives none.
	Copies Copies
	// Drainer gives away what this instance has; nil: it does not.
	Drainer Drainer
	// Threads of this instance; nil: their number is not changed.
	Threads Threads
	// Topology is what this instance runs; nil: it does not say.
	Topology func() *router.Topology
	// Suspected reports whether an instance is believed to be dead: it is asked last. nil: nobody is.
	Suspected func(router.Replica) bool
	// Holdings are what this instance has of tasks, and how far each is; nil: it does not say.
	Holdings func() []router.Holding
	// Ready says whether the instance has joined and its stores answer, with the reason why not; nil: it always is.
	// Shown under /readyz.
	Ready func() error
	// Status is shown as JSON under /statusz; nil: only what the server itself knows.
	Status func() any
}
