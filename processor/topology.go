package processor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/processor/internal/suppliers"
	"github.com/statemesh/statemesh/store"
)

// Topology is a graph of sources, processors, state stores and sinks (upstream's Topology). Nodes are added parents
// first, so a topology cannot contain a cycle of nodes. The methods return the topology, so that calls can be chained;
// what is wrong with any of them is kept and reported, all at once, by [Topology.Build].
//
// A Topology belongs to one goroutine; what Build returns is immutable and shared freely.
type Topology struct {
	nodes  []*nodeDef
	byName map[string]*nodeDef
	stores []*storeDef
	byID   map[store.Name]*storeDef
	errs   []error
}

// SourceOptions says how a source reads its topics. The zero value takes the defaults.
type SourceOptions struct {
	// OffsetReset is where to start in a partition for which the application has no committed offset. Default: the
	// setting of the application, auto.offset.reset.
	OffsetReset OffsetReset
	// Timestamp gives each record its time. Default [FailOnInvalidTimestamp], as upstream.
	Timestamp TimestampExtractor
	// Processor makes the source decode what it reads: one for each task, which is given the records and hands them on. Nil: they
	// go to the children as they are.
	Processor Supplier
}

// OffsetReset is where to start in a partition that has no committed offset (upstream's AutoOffsetReset).
type OffsetReset uint8

// The policies.
const (
	// ResetDefault leaves it to the setting of the application.
	ResetDefault OffsetReset = iota
	// ResetEarliest starts at the oldest record there is.
	ResetEarliest
	// ResetLatest starts at the end: only what arrives later is processed.
	ResetLatest
	// ResetNone makes a missing offset an error that stops the application.
	ResetNone
)

// String is the policy as auto.offset.reset has it; "default" for ResetDefault.
func (r OffsetReset) String() string {
	switch r {
	case ResetDefault:
		return "default"
	case ResetEarliest:
		return "earliest"
	case ResetLatest:
		return "latest"
	case ResetNone:
		return "none"
	default:
		return fmt.Sprintf("offset-reset-%d", uint8(r))
	}
}

// ParseOffsetReset reads "earliest", "latest", "none", and "" or "default" for ResetDefault.
func ParseOffsetReset(s string) (OffsetReset, error) {
	if s == "" {
		return ResetDefault, nil
	}
	for r := ResetDefault; r <= ResetNone; r++ {
		if r.String() == s {
			return r, nil
		}
	}
	return ResetDefault, fmt.Errorf("offset reset %q: want earliest, latest or none", s)
}

// Partitioner chooses the partition, 0 <= p < partitions, of a record that a sink writes (upstream's
// StreamPartitioner). A result outside that range is an error of the record. It must not keep the record.
type Partitioner func(topic string, r *Record, partitions int32) int32

// SinkOptions says how a sink writes its topic. The zero value takes the defaults.
type SinkOptions struct {
	// Partitioner replaces Kafka's default: the murmur2 hash of the key, any partition for a record without a key.
	Partitioner Partitioner
}

// RepartitionOptions says how a repartition topic is made. The zero value takes the defaults.
type RepartitionOptions struct {
	// Partitions of the topic. Default 0: as many as the largest source topic of the sub-topology that writes it.
	Partitions int32
	// Partitioner replaces Kafka's default, as for a sink.
	Partitioner Partitioner
	// Processor is that of the source, see SourceOptions.
	Processor Supplier
	// Source and Sink name the two nodes. Default: the name of the repartition, and RepartitionSink of it.
	Source, Sink string
	// Topic is the name of the topic behind the application's id and a dash. Default: <name>-repartition.
	Topic string
	// Follows: the topic has as many partitions as those that it meets in stores, and what writes it has no say. So two
	// sub-topologies may answer each other.
	Follows bool
}

// NewTopology returns an empty topology.
func NewTopology() *Topology {
	return &Topology{byName: make(map[string]*nodeDef), byID: make(map[store.Name]*storeDef)}
}

// AddSource adds a node that reads topics and hands each record to its children. A topic has one source in a topology.
// Topic patterns are not supported: name each topic.
func (t *Topology) AddSource(name string, opts SourceOptions, topics ...string) *Topology {
	if len(topics) == 0 {
		t.fail("source", name, "needs at least one topic")
	}
	for i, topic := range topics {
		if reason := badTopic(topic); reason != "" {
			t.fail("source", name, reason)
		} else if slices.Contains(topics[:i], topic) {
			t.fail("source", name, fmt.Sprintf("topic %q is named twice", topic))
		} else if other := t.sourceOf(topic); other != nil {
			t.fail("source", name, fmt.Sprintf("topic %q is read by source %q already", topic, other.name))
		}
	}
	if opts.OffsetReset > ResetNone {
		t.fail("source", name, fmt.Sprintf("offset reset %d is unknown", opts.OffsetReset))
	}
	if opts.Timestamp == nil {
		opts.Timestamp = FailOnInvalidTimestamp
	}
	if opts.Processor != nil {
		if reason := suppliers.Reason(opts.Processor); reason != "" {
			t.fail("source", name, reason)
		}
	}
	t.add(&nodeDef{name: name, kind: nodeSource, topics: slices.Clone(topics), source: opts, supplier: opts.Processor})
	return t
}

// AddProcessor adds a node that hands each record of its parents to a processor made by supplier, one per task.
func (t *Topology) AddProcessor(name string, supplier Supplier, parents ...string) *Topology {
	if reason := suppliers.Reason(supplier); reason != "" {
		t.fail("processor", name, reason)
	}
	t.add(&nodeDef{name: name, kind: nodeProcessor, supplier: supplier, parents: t.parents("processor", name, parents)})
	return t
}

// AddSink adds a node that writes each record of its parents to topic, which must exist when the application starts.
func (t *Topology) AddSink(name string, opts SinkOptions, topic string, parents ...string) *Topology {
	if reason := badTopic(topic); reason != "" {
		t.fail("sink", name, reason)
	}
	t.add(&nodeDef{
		name: name, kind: nodeSink, topics: []string{topic}, partitioner: opts.Partitioner,
		parents: t.parents("sink", name, parents),
	})
	return t
}

// AddRepartition sends the records of its parents through the internal topic <application>-<name>-repartition, so that
// all records of one key meet in one task. It ends the sub-topology of the parents and begins another one: name is its
// source, to be used as a parent, and [RepartitionSink] its sink, unless the options name them. Records are partitioned by key as Kafka's default
// partitioner does.
func (t *Topology) AddRepartition(name string, opts RepartitionOptions, parents ...string) *Topology {
	if reason := badName(name); reason != "" {
		t.fail("repartition", name, reason)
	}
	if opts.Partitions < 0 {
		t.fail("repartition", name, fmt.Sprintf("%d partitions: want 0 for as many as its inputs have, or more",
			opts.Partitions))
	}
	if opts.Processor != nil {
		if reason := suppliers.Reason(opts.Processor); reason != "" {
			t.fail("repartition", name, reason)
		}
	}
	topic := cmp.Or(opts.Topic, name+"-repartition")
	if reason := badName(topic); reason != "" && opts.Topic != "" {
		t.fail("repartition", name, "topic: "+reason)
	}
	t.add(&nodeDef{
		name: cmp.Or(opts.Sink, RepartitionSink(name)), kind: nodeSink, repartition: name, internal: topic, partitioner: opts.Partitioner,
		parents: t.parents("repartition", cmp.Or(opts.Sink, name), parents),
	})
	t.add(&nodeDef{
		name: cmp.Or(opts.Source, name), kind: nodeSource, repartition: name, internal: topic, partitions: opts.Partitions,
		supplier: opts.Processor, follows: opts.Follows,
		// What was written has a time already, and all of it is wanted.
		source: SourceOptions{OffsetReset: ResetEarliest, Timestamp: FailOnInvalidTimestamp},
	})
	return t
}

// RepartitionSink is the name of the node that writes the repartition topic of name: the child for [Context.ForwardTo].
func RepartitionSink(name string) string { return name + ":sink" }

// AddStateStore declares a store and connects it to processors. Every task of their sub-topology has its own.
func (t *Topology) AddStateStore(spec store.Spec, processors ...string) *Topology {
	if reason := badSpec(spec); reason != "" {
		t.fail("store", string(spec.Name), reason)
	}
	if t.byID[spec.Name] != nil {
		t.fail("store", string(spec.Name), "is declared twice")
		return t
	}
	s := &storeDef{spec: spec}
	t.byID[spec.Name] = s
	t.stores = append(t.stores, s)
	for _, p := range processors {
		t.connect(p, s)
	}
	return t
}

// ConnectProcessorAndStateStores gives a processor access to stores. Processors that share a store are in one
// sub-topology.
func (t *Topology) ConnectProcessorAndStateStores(processor string, stores ...store.Name) *Topology {
	if len(stores) == 0 {
		t.fail("processor", processor, "is connected to no store")
	}
	for _, name := range stores {
		s := t.byID[name]
		if s == nil {
			t.fail("processor", processor, fmt.Sprintf("store %q is unknown", name))
			continue
		}
		t.connect(processor, s)
	}
	return t
}

// TopologyError is one thing that is wrong with a topology (upstream's TopologyException). Build joins all of them.
type TopologyError struct {
	// Kind of the subject: "source", "processor", "sink", "repartition", "store" or "topology".
	Kind string
	// Name of the subject, as given.
	Name   string
	Reason string
}

func (e *TopologyError) Error() string {
	if e.Name == "" && e.Kind == "topology" {
		return "topology: " + e.Reason
	}
	return fmt.Sprintf("topology: %s %q: %s", e.Kind, e.Name, e.Reason)
}

func (t *Topology) fail(kind, name, reason string) {
	t.errs = append(t.errs, &TopologyError{Kind: kind, Name: name, Reason: reason})
}

func (t *Topology) add(n *nodeDef) {
	if n.name == "" {
		t.fail(n.kind.String(), n.name, "needs a name")
		return
	}
	if other := t.byName[n.name]; other != nil {
		t.fail(n.kind.String(), n.name, fmt.Sprintf("the name is taken by a %s", other.kind))
		return
	}
	n.index = len(t.nodes)
	t.nodes = append(t.nodes, n)
	t.byName[n.name] = n
}

// parents resolves the names of parents; those that cannot be parents are reported and left out.
func (t *Topology) parents(kind, name string, names []string) []*nodeDef {
	if len(names) == 0 {
		t.fail(kind, name, "needs at least one parent")
	}
	found := make([]*nodeDef, 0, len(names))
	for _, p := range names {
		n := t.byName[p]
		switch {
		case p == name:
			t.fail(kind, name, "cannot be its own parent")
		case n == nil:
			t.fail(kind, name, fmt.Sprintf("parent %q is unknown; add parents first", p))
		case n.kind == nodeSink:
			t.fail(kind, name, fmt.Sprintf("parent %q is a sink", p))
		case n.global:
			t.fail(kind, name, fmt.Sprintf("parent %q belongs to a global store, which has no children", p))
		case slices.Contains(found, n):
			t.fail(kind, name, fmt.Sprintf("parent %q is named twice", p))
		default:
			found = append(found, n)
		}
	}
	return found
}

func (t *Topology) connect(processor string, s *storeDef) {
	n := t.byName[processor]
	switch {
	case s.global:
		t.fail("processor", processor, fmt.Sprintf("store %q is global: every processor may read it, none is connected", s.spec.Name))
	case n == nil:
		t.fail("store", string(s.spec.Name), fmt.Sprintf("processor %q is unknown", processor))
	case n.kind != nodeProcessor:
		t.fail("store", string(s.spec.Name), fmt.Sprintf("%q is a %s; only processors have stores", processor, n.kind))
	case n.global:
		t.fail("store", string(s.spec.Name), fmt.Sprintf("%q is the processor of a global store and has no other", processor))
	case slices.ContainsFunc(n.stores, func(o *storeDef) bool { return o != s && o.writer == n }):
		t.fail("store", string(s.spec.Name), fmt.Sprintf("%q writes a store that is fed from a topic, and has no other: a restore of that one could not tell what belongs there", processor))
	case !slices.Contains(n.stores, s):
		n.stores = append(n.stores, s)
		s.users = append(s.users, n)
	}
}

func (t *Topology) sourceOf(topic string) *nodeDef {
	for _, n := range t.nodes {
		if n.kind == nodeSource && slices.Contains(n.topics, topic) {
			return n
		}
	}
	return nil
}

// nodeDef is a node as it was added.
type nodeDef struct {
	name    string
	kind    nodeKind
	index   int // in Topology.nodes; parents have smaller ones
	parents []*nodeDef

	topics      []string // of a source (external) or sink; empty for a repartition
	repartition string   // name of the repartition this source or sink belongs to
	internal    string   // topic of a repartition, behind the application's id
	partitions  int32    // of a repartition, 0 when not stated
	follows     bool     // of a repartition, see RepartitionOptions
	source      SourceOptions
	partitioner Partitioner
	// dynamic: a sink whose topic extract chooses, or its parents where that is nil.
	dynamic  bool
	extract  TopicExtractor
	supplier Supplier
	stores   []*storeDef
	// global: source or processor of a global store, which have no other neighbours.
	global bool
}

// storeDef is a store as it was declared.
type storeDef struct {
	spec  store.Spec
	users []*nodeDef
	// sourceTopic takes the place of a changelog; empty for a store that has one of its own, or none.
	sourceTopic string
	// writer alone writes to a store that is fed from a topic; nil: all users may.
	writer *nodeDef
	global bool
}
