package processor

import (
	"fmt"
	"slices"
	"strings"
)

// Describe is the topology as text, in the form of upstream's TopologyDescription, which tools can draw.
func (b *Built) Describe() string {
	var w strings.Builder
	w.WriteString("Topologies:\n")
	for _, sub := range b.subs {
		fmt.Fprintf(&w, "   Sub-topology: %d%s\n", sub.id, map[bool]string{true: " for global store (will not generate tasks)"}[sub.global])
		for i := range sub.nodes {
			sub.describe(&w, &sub.nodes[i])
		}
		w.WriteString("\n")
	}
	return w.String()
}

func (sub *subtopology) describe(w *strings.Builder, n *node) {
	switch n.kind {
	case nodeSource:
		fmt.Fprintf(w, "    Source: %s (topics: [%s])\n", n.name, strings.Join(slices.Sorted(slices.Values(n.topics)), ", "))
	case nodeProcessor:
		names := make([]string, len(n.stores))
		for i, s := range n.stores {
			names[i] = string(s)
		}
		slices.Sort(names)
		fmt.Fprintf(w, "    Processor: %s (stores: [%s])\n", n.name, strings.Join(names, ", "))
	case nodeSink:
		if n.dynamic {
			fmt.Fprintf(w, "    Sink: %s (extractor class: TopicExtractor)\n", n.name)
			break
		}
		fmt.Fprintf(w, "    Sink: %s (topic: %s)\n", n.name, n.topics[0])
	}
	if n.kind != nodeSink {
		fmt.Fprintf(w, "      --> %s\n", sub.names(n.children))
	}
	if n.kind != nodeSource {
		fmt.Fprintf(w, "      <-- %s\n", sub.names(n.parents))
	}
}

// names of nodes, sorted as upstream prints them.
func (sub *subtopology) names(nodes []int32) string {
	if len(nodes) == 0 {
		return "none"
	}
	return strings.Join(sub.sortedNames(nodes), ", ")
}
