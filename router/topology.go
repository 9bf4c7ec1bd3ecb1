package router

import "github.com/statemesh/statemesh/store"

// Topology is what an instance runs (upstream's TopologyDescription).
type Topology struct {
	Application string
	// Subtopologies in order of their numbers.
	Subtopologies []Subtopology
	// Text is upstream's form of it; Mermaid and DOT are pictures.
	Text, Mermaid, DOT string
}

// Subtopology is a connected set of nodes and stores. A task runs one partition of it.
type Subtopology struct {
	ID int32
	// Global: it keeps a global store, and has no tasks.
	Global bool
	// Nodes, each one behind its predecessors.
	Nodes []TopologyNode
	// Stores in order of their names.
	Stores []TopologyStore
}

// TopologyNode is a node of a topology.
type TopologyNode struct {
	Name string
	Kind NodeKind
	// Topics that a source reads, ascending, or the one that a sink writes; none when each record names its own.
	Topics []string
	// Stores that a processor uses, and the nodes around it, ascending.
	Stores                   []store.Name
	Successors, Predecessors []string
}

// TopologyStore is a store of a topology.
type TopologyStore struct {
	Name store.Name
	Kind store.Kind
	// Changelog is the topic that it is restored from, be it a source topic; empty for a store that is not logged.
	Changelog string
	InMemory  bool
}

// NodeKind tells nodes apart.
type NodeKind uint8

// The kinds.
const (
	// NodeUnknown is a kind that this version does not know.
	NodeUnknown NodeKind = iota
	// NodeSource reads topics.
	NodeSource
	// NodeProcessor runs a processor.
	NodeProcessor
	// NodeSink writes a topic.
	NodeSink
)

// String is the kind as it is shown.
func (k NodeKind) String() string {
	switch k {
	case NodeSource:
		return "source"
	case NodeProcessor:
		return "processor"
	case NodeSink:
		return "sink"
	default:
		return "unknown"
	}
}
