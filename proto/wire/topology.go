package wire

import (
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// FromTopology makes the description of what instance by runs.
func FromTopology(t *router.Topology, by string) *statemeshv1.DescribeTopologyResponse {
	m := &statemeshv1.DescribeTopologyResponse{
		Application: t.Application, AnsweredBy: by, Text: t.Text, Mermaid: t.Mermaid, Dot: t.DOT,
	}
	for _, sub := range t.Subtopologies {
		s := &statemeshv1.Subtopology{Id: sub.ID, Global: sub.Global}
		for _, n := range sub.Nodes {
			s.Nodes = append(s.Nodes, &statemeshv1.TopologyNode{
				Name: n.Name, Kind: statemeshv1.TopologyNodeKind(n.Kind), Topics: n.Topics, Stores: texts[string](n.Stores),
				Successors: n.Successors, Predecessors: n.Predecessors,
			})
		}
		for _, st := range sub.Stores {
			s.Stores = append(s.Stores, &statemeshv1.TopologyStore{
				Name: string(st.Name), Kind: fromKind(st.Kind), Changelog: st.Changelog, InMemory: st.InMemory,
			})
		}
		m.Subtopologies = append(m.Subtopologies, s)
	}
	return m
}

// ToTopology reads it.
func ToTopology(m *statemeshv1.DescribeTopologyResponse) *router.Topology {
	t := &router.Topology{Application: m.GetApplication(), Text: m.GetText(), Mermaid: m.GetMermaid(), DOT: m.GetDot()}
	for _, sub := range m.GetSubtopologies() {
		s := router.Subtopology{ID: sub.GetId(), Global: sub.GetGlobal()}
		for _, n := range sub.GetNodes() {
			kind := router.NodeKind(n.GetKind())
			if n.GetKind() < 0 || n.GetKind() > statemeshv1.TopologyNodeKind(router.NodeSink) {
				kind = router.NodeUnknown
			}
			s.Nodes = append(s.Nodes, router.TopologyNode{
				Name: n.GetName(), Kind: kind, Topics: n.GetTopics(), Stores: texts[store.Name](n.GetStores()),
				Successors: n.GetSuccessors(), Predecessors: n.GetPredecessors(),
			})
		}
		for _, st := range sub.GetStores() {
			s.Stores = append(s.Stores, router.TopologyStore{
				Name: store.Name(st.GetName()), Kind: toKind(st.GetKind()), Changelog: st.GetChangelog(), InMemory: st.GetInMemory(),
			})
		}
		t.Subtopologies = append(t.Subtopologies, s)
	}
	return t
}

// texts are names of another type; nil for none.
func texts[To, From ~string](names []From) []To {
	if len(names) == 0 {
		return nil
	}
	out := make([]To, len(names))
	for i, n := range names {
		out[i] = To(n)
	}
	return out
}
