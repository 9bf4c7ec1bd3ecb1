package processor

import (
	"fmt"
	"slices"
	"strings"
)

// Mermaid is the topology as a picture in the language of Mermaid, which GitHub and others draw: sub-topologies as boxes with their nodes and
// stores, topics between them.
func (b *Built) Mermaid() string {
	d := b.drawing()
	var w strings.Builder
	w.WriteString("flowchart TD\n")
	shapes := map[shape][2]string{
		aSource: {"([", "])"}, aProcessor: {"[", "]"}, aSink: {"[[", "]]"}, aStore: {"[(", ")]"}, aTopic: {"[/", "/]"},
	}
	draw := func(indent string, n drawnNode) {
		s := shapes[n.shape]
		fmt.Fprintf(&w, "%s%s%s\"%s\"%s\n", indent, n.id, s[0], strings.ReplaceAll(n.label, `"`, "#quot;"), s[1])
	}
	for _, n := range d.topics {
		draw("  ", n)
	}
	for _, box := range d.boxes {
		fmt.Fprintf(&w, "  subgraph %s[\"%s\"]\n", box.id, box.label)
		for _, n := range box.nodes {
			draw("    ", n)
		}
		w.WriteString("  end\n")
	}
	for _, e := range d.edges {
		arrow := "-->"
		if e.store {
			arrow = "---"
		}
		fmt.Fprintf(&w, "  %s %s %s\n", e.from, arrow, e.to)
	}
	return w.String()
}

// DOT is the topology as a picture in the language of Graphviz; see [Built.Mermaid].
func (b *Built) DOT() string {
	d := b.drawing()
	var w strings.Builder
	fmt.Fprintf(&w, "digraph %q {\n  node [fontname=\"sans-serif\"];\n", b.application)
	shapes := map[shape]string{
		aSource: "ellipse", aProcessor: "box", aSink: "box, peripheries=2", aStore: "cylinder", aTopic: "parallelogram",
	}
	draw := func(indent string, n drawnNode) {
		fmt.Fprintf(&w, "%s%s [label=%q, shape=%s];\n", indent, n.id, n.label, shapes[n.shape])
	}
	for _, n := range d.topics {
		draw("  ", n)
	}
	for _, box := range d.boxes {
		fmt.Fprintf(&w, "  subgraph cluster_%s {\n    label=%q;\n", box.id, box.label)
		for _, n := range box.nodes {
			draw("    ", n)
		}
		w.WriteString("  }\n")
	}
	for _, e := range d.edges {
		dir := ""
		if e.store {
			dir = " [dir=none]"
		}
		fmt.Fprintf(&w, "  %s -> %s%s;\n", e.from, e.to, dir)
	}
	w.WriteString("}\n")
	return w.String()
}

// drawing is what both pictures show, in one order.
type drawing struct {
	topics []drawnNode
	boxes  []drawnBox
	edges  []drawnEdge
	ids    map[string]string // of topics
}

type drawnBox struct {
	id, label string
	nodes     []drawnNode
}

type drawnNode struct {
	id, label string
	shape     shape
}

type drawnEdge struct {
	from, to string
	store    bool // it is between a processor and its store
}

type shape uint8

const (
	aSource shape = iota
	aProcessor
	aSink
	aStore
	aTopic
)

func (b *Built) drawing() *drawing {
	d := &drawing{ids: make(map[string]string)}
	for _, sub := range b.subs {
		d.subtopology(sub)
	}
	return d
}

func (d *drawing) subtopology(sub *subtopology) {
	box := drawnBox{id: fmt.Sprintf("sub%d", sub.id), label: fmt.Sprintf("Sub-topology %d", sub.id)}
	if sub.global {
		box.label += " (global store)"
	}
	node := func(i int32) string { return fmt.Sprintf("n%d_%d", sub.id, i) }
	shapes := map[nodeKind]shape{nodeSource: aSource, nodeProcessor: aProcessor, nodeSink: aSink}
	for i := range sub.nodes {
		n := &sub.nodes[i]
		at := node(int32(i))
		box.nodes = append(box.nodes, drawnNode{id: at, label: n.name, shape: shapes[n.kind]})
		for _, topic := range slices.Sorted(slices.Values(n.topics)) {
			if n.kind == nodeSource {
				d.edges = append(d.edges, drawnEdge{from: d.topic(topic), to: at})
			} else {
				d.edges = append(d.edges, drawnEdge{from: at, to: d.topic(topic)})
			}
		}
		for _, c := range n.children {
			d.edges = append(d.edges, drawnEdge{from: at, to: node(c)})
		}
		for _, name := range n.stores {
			s := slices.IndexFunc(sub.stores, func(s *builtStore) bool { return s.spec.Name == name })
			d.edges = append(d.edges, drawnEdge{from: at, to: fmt.Sprintf("s%d_%d", sub.id, s), store: true})
		}
	}
	for i, s := range sub.stores {
		box.nodes = append(box.nodes, drawnNode{id: fmt.Sprintf("s%d_%d", sub.id, i), label: string(s.spec.Name), shape: aStore})
	}
	d.boxes = append(d.boxes, box)
}

// topic is the id of a topic, which is drawn once.
func (d *drawing) topic(name string) string {
	id, ok := d.ids[name]
	if !ok {
		id = fmt.Sprintf("t%d", len(d.topics))
		d.ids[name] = id
		d.topics = append(d.topics, drawnNode{id: id, label: name, shape: aTopic})
	}
	return id
}
