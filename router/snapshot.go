package router

import (
	"time"

	"github.com/statemesh/statemesh/store"
)

// Epoch is the version of the published metadata. Epochs only grow.
type Epoch int64

// Instance is one process of the application (upstream's StreamsMetadata).
type Instance struct {
	// ID is the process id, stable over restarts with the same state directory.
	ID string
	// Incarnation is one start of the process: it tells a restarted process from its predecessor at the same endpoint.
	Incarnation string
	// Endpoint is "host:port" as peers and clients dial it; empty for an instance that answers no peer.
	Endpoint string
	Rack     string
	// Active and Standby are the tasks this instance holds under the snapshot's epoch.
	Active, Standby []store.TaskID
}

// StoreInfo is what a caller needs to know to ask a store.
type StoreInfo struct {
	Name        store.Name
	Kind        store.Kind
	Subtopology int32
	// Partitions is the partition count of the store as the broker reports it for its sub-topology: what keys are
	// hashed by. Never derived from what is assigned.
	Partitions int32
	// KeyFormat and ValueFormat: see [store.Spec].
	KeyFormat, ValueFormat string
	// SourceTopic is the topic whose partitioning the store follows.
	SourceTopic string
	// Global says that every instance holds the whole store: it has one partition, 0, and whoever is asked answers.
	Global bool
	// Retention and WindowSize: see [store.Spec]. 0 where the kind has none.
	Retention, WindowSize time.Duration
}

// Data is what a snapshot is made of.
type Data struct {
	Application string
	Epoch       Epoch
	Instances   []Instance
	Stores      []StoreInfo
	// Moving holds the tasks on their way: the instance in the map still has them, the value names the instance ID
	// that will.
	Moving map[store.TaskID]string
}
