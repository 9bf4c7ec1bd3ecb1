package streams

import (
	"errors"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// Builder collects the operators of a topology (upstream's StreamsBuilder). It belongs to one goroutine.
type Builder struct {
	nodes   []*graphNode
	byName  map[string]*graphNode
	sources []*sourceDecl
	index   int
	// merging, reusing, selfJoining: see MergeRepartitions, ReuseSourceTopics, SingleStoreSelfJoin.
	merging, reusing, selfJoining bool
	errs                          []error
	// declared are the stores of processors that the topology in hand has.
	declared map[StateStore]bool
	// late report what can be wrong only when all operators are known.
	late     []func()
	warnings []Warning
	// shared are the repartitioned streams that joins may share, by what they repartition and its topic.
	shared map[string]any
}

// NewBuilder returns an empty builder.
func NewBuilder() *Builder {
	return &Builder{byName: make(map[string]*graphNode), shared: make(map[string]any)}
}

// Warning is something in a topology that works and will hurt later.
type Warning struct {
	// Node is the operator it is about.
	Node string
	// Text says what it is and what to do.
	Text string
}

func (w Warning) String() string { return w.Node + ": " + w.Text }

// Warnings lists what works and will hurt later, in the order of the operators: stores, buffers and internal topics that are named by the
// position of their operator.
func (b *Builder) Warnings() []Warning { return slices.Clone(b.warnings) }

// graphNode is a node of the topology as the builder knows it: what optimisations look at, and how it is written.
type graphNode struct {
	name    string
	parents []*graphNode
	// rekeys and revalues: the operator makes other keys or values; merges: it only joins streams of one type.
	rekeys, revalues, merges bool
	// out is the far side of an operator on streams, an outlet of its records.
	out any
	// repartition is not nil for a repartition that an operator needed.
	repartition *repartition
	// final knows when a key of the table that the node makes changes no more: a finality of its keys; nil: never.
	final any
	// add writes the node, its stores and what belongs to it, after those of its parents.
	add func(t *processor.Topology, parents ...string)
}

// Build makes the topology, or returns all that is wrong with it, joined: a *processor.TopologyError each. More may be added afterwards, and
// Build be called again.
func (b *Builder) Build() (*processor.Topology, error) {
	found := len(b.errs)
	for _, check := range b.late {
		check()
	}
	errs := b.errs
	if b.errs = errs[:found:found]; len(errs) > 0 { // the late ones may be mended before Build is called again
		return nil, errors.Join(errs...)
	}
	t := processor.NewTopology()
	b.declared = make(map[StateStore]bool)
	for _, n := range b.optimised() {
		parents := make([]string, len(n.parents))
		for i, p := range n.parents {
			parents[i] = p.name
		}
		n.add(t, parents...)
	}
	return t, nil
}

// fail keeps what is wrong with an operator.
func (b *Builder) fail(node, format string, args ...any) {
	b.errs = append(b.errs, &processor.TopologyError{Kind: "processor", Name: node, Reason: fmt.Sprintf(format, args...)})
}

// name is the next name by position, as upstream's InternalStreamsBuilder makes them.
func (b *Builder) name(prefix string) string {
	b.index++
	return fmt.Sprintf("%s%010d", prefix, b.index-1)
}

// nameOr is the name that was given, or the next by position, which is used up in either case: names of other operators do not depend on it.
func (b *Builder) nameOr(given, prefix string) string {
	name := b.name(prefix)
	if given != "" {
		return given
	}
	return name
}

// put adds a node.
func (b *Builder) put(n *graphNode) *graphNode {
	if b.byName[n.name] != nil {
		b.fail(n.name, "the name is taken by another operator")
	}
	b.nodes = append(b.nodes, n)
	b.byName[n.name] = n
	return n
}

// addProcessor returns what writes a processor with its stores: those it declares, and those of others that it is connected to.
func addProcessor(name string, s processor.Supplier, declares []store.Spec, uses []store.Name) func(*processor.Topology, ...string) {
	return func(t *processor.Topology, parents ...string) {
		t.AddProcessor(name, s, parents...)
		for _, spec := range declares {
			t.AddStateStore(spec, name)
		}
		if len(uses) > 0 {
			t.ConnectProcessorAndStateStores(name, uses...)
		}
	}
}
