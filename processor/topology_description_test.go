package processor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/router"
)

// wantSameDescription checks that the description as data says what the text says.
func wantSameDescription(t *testing.T, b *Built) {
	t.Helper()
	d := b.Description()
	if d.Text != b.Describe() || d.Mermaid != b.Mermaid() || d.DOT != b.DOT() {
		t.Error("the three forms differ from those of the topology")
	}
	orNone := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	text := "Topologies:\n"
	for _, sub := range d.Subtopologies {
		text += fmt.Sprintf("   Sub-topology: %d\n", sub.ID)
		for _, n := range sub.Nodes {
			switch n.Kind {
			case router.NodeSource:
				text += fmt.Sprintf("    Source: %s (topics: [%s])\n", n.Name, strings.Join(n.Topics, ", "))
			case router.NodeProcessor:
				names := make([]string, len(n.Stores))
				for i, s := range n.Stores {
					names[i] = string(s)
					if !slices.ContainsFunc(sub.Stores, func(st router.TopologyStore) bool { return st.Name == s }) {
						t.Errorf("store %s of %s is not in sub-topology %d", s, n.Name, sub.ID)
					}
				}
				text += fmt.Sprintf("    Processor: %s (stores: [%s])\n", n.Name, strings.Join(names, ", "))
			default:
				text += fmt.Sprintf("    Sink: %s (topic: %s)\n", n.Name, n.Topics[0])
			}
			if n.Kind != router.NodeSink {
				text += "      --> " + orNone(n.Successors) + "\n"
			}
			if n.Kind != router.NodeSource {
				text += "      <-- " + orNone(n.Predecessors) + "\n"
			}
		}
		text += "\n"
	}
	if text != d.Text {
		t.Errorf("the description says\n%swant\n%s", text, d.Text)
	}
}
