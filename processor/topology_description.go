package processor

import (
	"cmp"
	"slices"

	"github.com/statemesh/statemesh/router"
)

// Description is the topology as data, with the three forms of [Built.Describe], [Built.Mermaid] and [Built.DOT].
func (b *Built) Description() *router.Topology {
	t := &router.Topology{Application: b.application, Text: b.Describe(), Mermaid: b.Mermaid(), DOT: b.DOT()}
	for _, sub := range b.subs {
		t.Subtopologies = append(t.Subtopologies, sub.description())
	}
	return t
}

// Topology is what this instance runs.
func (r *Runtime) Topology() *router.Topology { return r.built.Description() }

func (sub *subtopology) description() router.Subtopology {
	s := router.Subtopology{ID: sub.id, Global: sub.global}
	kinds := map[nodeKind]router.NodeKind{nodeSource: router.NodeSource, nodeProcessor: router.NodeProcessor, nodeSink: router.NodeSink}
	for i := range sub.nodes {
		n := &sub.nodes[i]
		d := router.TopologyNode{
			Name: n.name, Kind: kinds[n.kind], Stores: slices.Sorted(slices.Values(n.stores)),
			Successors: sub.sortedNames(n.children), Predecessors: sub.sortedNames(n.parents),
		}
		if !n.dynamic {
			d.Topics = slices.Sorted(slices.Values(n.topics))
		}
		s.Nodes = append(s.Nodes, d)
	}
	for _, st := range sub.stores {
		s.Stores = append(s.Stores, router.TopologyStore{
			Name: st.spec.Name, Kind: st.spec.Kind, Changelog: cmp.Or(st.changelog, st.source), InMemory: st.spec.InMemory,
		})
	}
	return s
}

func (sub *subtopology) sortedNames(nodes []int32) []string {
	var names []string
	for _, at := range nodes {
		names = append(names, sub.nodes[at].name)
	}
	slices.Sort(names)
	return names
}
