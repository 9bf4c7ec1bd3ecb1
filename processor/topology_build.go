package processor

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// Built is a topology of one application, checked and compiled. It is immutable.
type Built struct {
	application string
	subs        []*subtopology // by id
	// bySource leads from a topic that is read, external or repartition, to where it enters.
	bySource map[string]entry
	stores   map[store.Name]*builtStore
	shape    uint64
}

// entry is where the records of a topic enter.
type entry struct {
	sub  *subtopology
	node int32 // index of the source in sub.nodes
}

// subtopology is a connected set of nodes and stores (upstream's sub-topology). One task runs one partition of it.
type subtopology struct {
	id int32
	// nodes in the order in which they were added: each one comes after its parents.
	nodes []node
	// sources holds the topics that are read, sorted, and where each one enters.
	sources []sourceTopic
	// stores sorted by name.
	stores []*builtStore
	// global: its nodes are those of a global store. It has no tasks.
	global bool
}

// sourceTopic is one topic that a sub-topology reads.
type sourceTopic struct {
	topic string
	node  int32
	// repartition is the name it was declared under; empty for a topic from outside.
	repartition string
	// partitions were stated for a repartition topic; 0 when they were not.
	partitions int32
	// follows: it has the partitions of the topics it meets.
	follows bool
}

// node is one node of a sub-topology. Nodes refer to each other by their index in subtopology.nodes.
type node struct {
	name     string
	kind     nodeKind
	children []int32 // in the order in which they were added
	parents  []int32

	source      SourceOptions // of a source
	topics      []string      // full names: those a source reads, the one a sink writes
	partitioner Partitioner   // of a sink; nil: Kafka's default
	dynamic     bool          // a sink whose records name their topics; extract may be nil
	extract     TopicExtractor
	supplier    Supplier     // of a processor
	stores      []store.Name // that a processor may use, in the order of their connection
	repartition bool         // source or sink of a repartition topic
}

// builtStore is one store with its place.
type builtStore struct {
	spec store.Spec
	sub  *subtopology
	// changelog is the name of its topic; empty without a changelog of its own.
	changelog string
	// source is the topic that takes the place of a changelog, "" for none; writer is the node that makes the store of it,
	// as index in sub.nodes, -1 when all users may write.
	source string
	writer int32
	// fedBy holds the source topics whose records can reach a processor that uses the store, sorted. They must agree
	// on the number of partitions: a key has to be in the same partition of each.
	fedBy []string
}

// nodeKind tells sources, processors and sinks apart.
type nodeKind uint8

const (
	nodeSource nodeKind = iota
	nodeProcessor
	nodeSink
)

func (k nodeKind) String() string {
	switch k {
	case nodeSource:
		return "source"
	case nodeProcessor:
		return "processor"
	case nodeSink:
		return "sink"
	default:
		return fmt.Sprintf("node-kind-%d", uint8(k))
	}
}

// Build checks the topology and compiles it for the application with this id. The error joins everything that is
// wrong, each as a [*TopologyError]. The topology can be extended and built again.
func (t *Topology) Build(applicationID string) (*Built, error) {
	errs := slices.Clone(t.errs)
	fail := func(kind, name, reason string) {
		errs = append(errs, &TopologyError{Kind: kind, Name: name, Reason: reason})
	}
	if reason := badName(applicationID); reason != "" {
		fail("topology", "", "application id: "+reason)
	}
	if !slices.ContainsFunc(t.nodes, func(n *nodeDef) bool { return n.kind == nodeSource && n.repartition == "" && !n.global }) {
		fail("topology", "", "needs at least one source")
	}
	for _, s := range t.stores {
		if len(s.users) == 0 {
			fail("store", string(s.spec.Name), "is connected to no processor")
		}
	}
	t.checkTopics(applicationID, fail)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t.compile(applicationID), nil
}

// checkTopics reports internal topics whose names are too long, or those of somebody else's topic.
func (t *Topology) checkTopics(app string, fail func(kind, name, reason string)) {
	used := make(map[string]string) // topic -> who uses it
	for _, n := range t.nodes {
		for _, topic := range n.topics {
			used[topic] = fmt.Sprintf("%s %q", n.kind, n.name)
		}
	}
	internal := func(kind, name, topic string) {
		if len(topic) > maxTopicName {
			fail(kind, name, fmt.Sprintf("its topic %s has a name of %d bytes, above %d", topic, len(topic), maxTopicName))
		}
		if by, ok := used[topic]; ok {
			fail(kind, name, fmt.Sprintf("its topic %s is used by %s", topic, by))
		}
		used[topic] = fmt.Sprintf("%s %q", kind, name)
	}
	for _, n := range t.nodes {
		if n.repartition != "" && n.kind == nodeSource {
			internal("repartition", n.repartition, repartitionTopic(app, n.internal))
		}
	}
	for _, s := range t.stores {
		if !s.spec.NoChangelog && s.sourceTopic == "" {
			internal("store", string(s.spec.Name), changelogTopic(app, s.spec.Name))
		}
	}
}

func changelogTopic(app string, s store.Name) string { return app + "-" + string(s) + "-changelog" }

func repartitionTopic(app, topic string) string { return app + "-" + topic }

// compile turns checked definitions into sub-topologies.
func (t *Topology) compile(app string) *Built {
	b := &Built{application: app, bySource: make(map[string]entry), stores: make(map[store.Name]*builtStore)}
	group := t.groups()
	place := make([]int32, len(t.nodes)) // index within its sub-topology
	for _, def := range t.nodes {
		id := group[def.index]
		for int(id) >= len(b.subs) {
			b.subs = append(b.subs, &subtopology{id: int32(len(b.subs))})
		}
		sub := b.subs[id]
		at := int32(len(sub.nodes))
		place[def.index] = at
		sub.global = def.global
		n := node{
			name: def.name, kind: def.kind, source: def.source, topics: slices.Clone(def.topics),
			partitioner: def.partitioner, dynamic: def.dynamic, extract: def.extract, supplier: def.supplier, repartition: def.repartition != "",
		}
		if def.repartition != "" {
			n.topics = []string{repartitionTopic(app, def.internal)}
		}
		for _, s := range def.stores {
			n.stores = append(n.stores, s.spec.Name)
		}
		for _, p := range def.parents {
			n.parents = append(n.parents, place[p.index])
			sub.nodes[place[p.index]].children = append(sub.nodes[place[p.index]].children, at)
		}
		sub.nodes = append(sub.nodes, n)
		if def.kind == nodeSource {
			for _, topic := range n.topics {
				sub.sources = append(sub.sources, sourceTopic{
					topic: topic, node: at,
					repartition: def.repartition, partitions: def.partitions, follows: def.follows,
				})
				b.bySource[topic] = entry{sub: sub, node: at}
			}
		}
	}
	for _, s := range t.stores {
		sub := b.subs[group[s.users[0].index]]
		bs := &builtStore{spec: s.spec, sub: sub, source: s.sourceTopic, writer: -1}
		if s.writer != nil {
			bs.writer = place[s.writer.index]
		}
		if !s.spec.NoChangelog && s.sourceTopic == "" {
			bs.changelog = changelogTopic(app, s.spec.Name)
		}
		bs.fedBy = sub.feeding(s, place)
		b.stores[s.spec.Name] = bs
		sub.stores = append(sub.stores, bs)
	}
	for _, sub := range b.subs {
		slices.SortFunc(sub.sources, func(x, y sourceTopic) int { return strings.Compare(x.topic, y.topic) })
		slices.SortFunc(sub.stores, func(x, y *builtStore) int {
			return strings.Compare(string(x.spec.Name), string(y.spec.Name))
		})
	}
	b.shape = b.hash()
	return b
}

// feeding returns the source topics whose records can reach a user of s, sorted.
func (sub *subtopology) feeding(s *storeDef, place []int32) []string {
	var topics []string
	seen := make(map[int32]bool)
	var climb func(at int32)
	climb = func(at int32) {
		if seen[at] {
			return
		}
		seen[at] = true
		n := &sub.nodes[at]
		if n.kind == nodeSource {
			topics = append(topics, n.topics...)
		}
		for _, p := range n.parents {
			climb(p)
		}
	}
	for _, u := range s.users {
		climb(place[u.index])
	}
	slices.Sort(topics)
	return topics
}

// groups gives each node the id of its sub-topology. Nodes are together when one is a parent of the other or when they
// share a store. Ids follow upstream's InternalTopologyBuilder: sources by name take the next free id for their group.
// Every group has a source, as every node has a parent or is one.
func (t *Topology) groups() []int32 {
	root := make([]int, len(t.nodes)) // a forest of disjoint sets
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for _, n := range t.nodes {
		for _, p := range n.parents {
			root[find(n.index)] = find(p.index)
		}
	}
	for _, s := range t.stores {
		for _, u := range s.users[1:] {
			root[find(u.index)] = find(s.users[0].index)
		}
	}
	sources := slices.DeleteFunc(slices.Clone(t.nodes), func(n *nodeDef) bool { return n.kind != nodeSource })
	slices.SortFunc(sources, func(x, y *nodeDef) int { return strings.Compare(x.name, y.name) })
	ids := make(map[int]int32)
	for _, n := range sources {
		r := find(n.index)
		if _, ok := ids[r]; !ok {
			ids[r] = int32(len(ids))
		}
	}
	group := make([]int32, len(t.nodes))
	for i := range group {
		group[i] = ids[find(i)]
	}
	return group
}

// hash covers what two instances must agree on to share the tasks of a group: the sub-topologies, what they read, their
// repartition topics and their stores. It leaves out what an upgrade may change while old and new instances run side by
// side, as the names of processors.
func (b *Built) hash() uint64 {
	h := sha256.New()
	text := func(parts ...string) {
		for _, p := range parts {
			h.Write(binary.AppendUvarint(nil, uint64(len(p))))
			h.Write([]byte(p))
		}
	}
	number := func(n int64) { h.Write(binary.AppendVarint(nil, n)) }
	text("statemesh shape 1", b.application)
	for _, sub := range b.subs {
		number(int64(sub.id))
		number(int64(len(sub.sources)))
		for _, s := range sub.sources {
			text(s.topic, s.repartition)
			number(int64(s.partitions))
		}
		number(int64(len(sub.stores)))
		for _, s := range sub.stores {
			text(string(s.spec.Name), s.changelog)
			number(int64(s.spec.Kind))
			if s.source != "" {
				text("from", s.source)
			}
		}
		if sub.global {
			text("global")
		}
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}
