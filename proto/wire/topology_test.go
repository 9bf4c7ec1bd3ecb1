package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestTopology: a description comes as it was sent; a kind of a later version is unknown.
func TestTopology(t *testing.T) {
	t.Parallel()
	want := &router.Topology{
		Application: "app", Text: "t", Mermaid: "m", DOT: "d",
		Subtopologies: []router.Subtopology{
			{
				Nodes: []router.TopologyNode{
					{Name: "in", Kind: router.NodeSource, Topics: []string{"a", "b"}, Successors: []string{"p"}},
					{Name: "p", Kind: router.NodeProcessor, Stores: []store.Name{"s"}, Successors: []string{"out"}, Predecessors: []string{"in"}},
					{Name: "out", Kind: router.NodeSink, Topics: []string{"c"}, Predecessors: []string{"p"}},
				},
				Stores: []router.TopologyStore{{Name: "s", Kind: store.KindSession, Changelog: "app-s-changelog", InMemory: true}},
			},
			{ID: 1, Global: true, Nodes: []router.TopologyNode{{Name: "g", Kind: router.NodeSource, Topics: []string{"g"}}}},
		},
	}
	m := reread(t, FromTopology(want, "i"), &statemeshv1.DescribeTopologyResponse{})
	if got := ToTopology(m); !reflect.DeepEqual(got, want) || m.GetAnsweredBy() != "i" {
		t.Errorf("got %+v of %q", got, m.GetAnsweredBy())
	}
	for n, name := range statemeshv1.TopologyNodeKind_name {
		if kind := router.NodeKind(n); n > 0 && name != "TOPOLOGY_NODE_KIND_"+strings.ToUpper(kind.String()) {
			t.Errorf("%s is read as %s", name, kind)
		}
	}
	later := &statemeshv1.DescribeTopologyResponse{Subtopologies: []*statemeshv1.Subtopology{{Nodes: []*statemeshv1.TopologyNode{{Kind: 99}}}}}
	if kind := ToTopology(later).Subtopologies[0].Nodes[0].Kind; kind != router.NodeUnknown {
		t.Errorf("a kind of a later version is %s", kind)
	}
}
