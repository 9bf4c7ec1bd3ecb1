package processor

import (
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// ReuseSourceTopic makes a source topic the changelog of a store (upstream's reuse.ktable.source.topics): no changelog
// topic is created, and a copy is restored from the topic, as far as the group has processed it. The store must be written by
// one processor only, writer, whose only parent is a source of this topic alone; other processors that are connected to the
// store may read it.
//
// A restore runs records through a new processor of the writer's supplier, whose forwards go nowhere. So what the store holds
// must follow from the records of the topic in their order, and from nothing else; and the topic must keep the last record of
// each key: one that deletes by time or size is refused when the application starts.
func (t *Topology) ReuseSourceTopic(name store.Name, writer string) *Topology {
	s, n := t.byID[name], t.byName[writer]
	fail := func(format string, args ...any) *Topology {
		t.fail("store", string(name), fmt.Sprintf(format, args...))
		return t
	}
	switch {
	case s == nil:
		return fail("is unknown")
	case s.global || s.sourceTopic != "":
		return fail("has a source topic as changelog already")
	case n == nil || !slices.Contains(n.stores, s):
		return fail("processor %q is not connected to it", writer)
	case len(n.stores) > 1:
		return fail("processor %q writes other stores too: a restore could not tell what belongs here", writer)
	case len(n.parents) != 1 || n.parents[0].kind != nodeSource:
		return fail("processor %q must have one parent, a source", writer)
	case n.parents[0].repartition != "":
		return fail("source %q is a repartition topic, of which consumed records are deleted", n.parents[0].name)
	case len(n.parents[0].topics) != 1:
		return fail("source %q must read one topic, it reads %d", n.parents[0].name, len(n.parents[0].topics))
	}
	if reason := badFed(s.spec); reason != "" {
		return fail("%s", reason)
	}
	s.sourceTopic, s.writer = n.parents[0].topics[0], n
	return t
}

// AddReadOnlyStateStore adds a store that is fed from a topic (KIP-813): a source of the topic, a processor, which alone writes
// the store, and the store, whose changelog is the topic itself. Other processors are connected by
// [Topology.ConnectProcessorAndStateStores] and may read it. See [Topology.ReuseSourceTopic] for what the processor may do.
func (t *Topology) AddReadOnlyStateStore(spec store.Spec, source string, opts SourceOptions, topic, processor string,
	supplier Supplier,
) *Topology {
	t.AddSource(source, opts, topic)
	t.AddProcessor(processor, supplier, source)
	t.AddStateStore(spec, processor)
	return t.ReuseSourceTopic(spec.Name, processor)
}

// AddGlobalStore adds a store that every instance holds whole (upstream's addGlobalStore): each reads all partitions of topic,
// from its start, through a processor made by supplier, which alone writes the store. It is restored before the application
// runs, and every processor of the topology may read it by [Context.Store]. The topic is its changelog: a restart goes on
// from the local copy, and nothing is committed to the group.
//
// The processor has no children. It sees the records of one partition in order, and each one again after a failure: what it
// puts must follow from the record. In the options, the offset reset means nothing.
func (t *Topology) AddGlobalStore(spec store.Spec, source string, opts SourceOptions, topic, processor string,
	supplier Supplier,
) *Topology {
	if reason := badSpec(spec); reason != "" {
		t.fail("store", string(spec.Name), reason)
	} else if reason := badFed(spec); reason != "" {
		t.fail("store", string(spec.Name), reason)
	} else if spec.Kind == store.KindVersioned || spec.Caching {
		t.fail("store", string(spec.Name), "is global: only a key-value store without caching can be")
	}
	if t.byID[spec.Name] != nil {
		t.fail("store", string(spec.Name), "is declared twice")
		return t
	}
	before := len(t.nodes)
	t.AddSource(source, opts, topic)
	t.AddProcessor(processor, supplier, source)
	if len(t.nodes) != before+2 {
		return t // the reason is noted
	}
	src, writer := t.nodes[before], t.nodes[before+1]
	s := &storeDef{spec: spec, users: []*nodeDef{writer}, sourceTopic: topic, writer: writer, global: true}
	src.global, writer.global = true, true
	writer.stores = []*storeDef{s}
	t.byID[spec.Name] = s
	t.stores = append(t.stores, s)
	return t
}

// badFed says what keeps a store from being fed from a topic; empty when nothing does.
func badFed(s store.Spec) string {
	switch {
	case s.NoChangelog || len(s.ChangelogConfig) > 0:
		return "has the settings of a changelog, but its source topic takes the place of one"
	case s.Kind != store.KindKeyValue && s.Kind != store.KindTimestampedKeyValue && s.Kind != store.KindVersioned:
		return fmt.Sprintf("is a %s store: a topic has no windows or sessions to restore", s.Kind)
	default:
		return ""
	}
}
