package streams

import "slices"

// MergeRepartitions has several groupings and joins behind one operator that changes keys share one repartition topic, that of the first
// (upstream's MERGE_REPARTITION_TOPICS). What lies between the operator and them comes behind the topic then. It is off by default, as
// upstream: switched on later, it orphans the topics that are merged away. A single topic stays where it is; upstream moves that one, too.
func (b *Builder) MergeRepartitions() *Builder {
	b.merging = true
	return b
}

// ReuseSourceTopics makes the topic of a source table the changelog of its store (upstream's REUSE_KTABLE_SOURCE_TOPICS). The topic must be
// compacted, or at least keep the last record of each key. It is off by default, as upstream: switched later, the store begins anew.
func (b *Builder) ReuseSourceTopics() *Builder {
	b.reusing = true
	return b
}

// SingleStoreSelfJoin keeps the records of a stream that is joined with itself once (upstream's SINGLE_STORE_SELF_JOIN), for inner joins. It is
// off by default, as upstream: switched later, it leaves a store behind, or begins one anew.
func (b *Builder) SingleStoreSelfJoin() *Builder {
	b.selfJoining = true
	return b
}

// repartition is what optimisations know of a repartition that an operator needed and nobody asked for.
type repartition struct {
	// enter makes the way into the topic from a node that makes the same types; false for another.
	enter func(from *graphNode) bool
}

// optimised are the nodes as they are written, parents first. The builder's own stay as they are.
func (b *Builder) optimised() []*graphNode {
	if !b.merging {
		return b.nodes
	}
	nodes := make([]*graphNode, len(b.nodes))
	copies := make(map[*graphNode]*graphNode, len(b.nodes))
	for i, n := range b.nodes {
		c := *n
		c.parents = make([]*graphNode, len(n.parents))
		for j, p := range n.parents {
			c.parents[j] = copies[p]
		}
		nodes[i], copies[n] = &c, &c
	}
	groups := make(map[*graphNode][]*graphNode)
	for _, n := range nodes {
		if n.repartition == nil {
			continue
		}
		if changer, _ := n.changer(); changer != nil {
			groups[changer] = append(groups[changer], n)
		}
	}
	for _, changer := range slices.Clone(nodes) {
		if group := groups[changer]; len(group) > 1 && group[0].repartition.enter(changer) {
			nodes = mergeRepartitions(nodes, changer, group)
		}
	}
	return nodes
}

// changer is the operator whose keys a repartition partitions by, or where the last streams of such keys are merged, and its child on the
// way. nil where something in between makes other values, or has another parent, which would have to be repartitioned as well.
func (n *graphNode) changer() (changer, child *graphNode) {
	for child = n; len(child.parents) == 1; child = child.parents[0] {
		switch p := child.parents[0]; {
		case p.rekeys || p.merges:
			return p, child
		case p.revalues || p.repartition != nil || p.final != nil:
			return nil, nil
		}
	}
	return nil, nil
}

// mergeRepartitions puts the first repartition of a group right behind the operator that changes keys, in the place of all.
func mergeRepartitions(nodes []*graphNode, changer *graphNode, group []*graphNode) []*graphNode {
	first := group[0]
	// What follows each of them, and what comes before it, is noted before anything is moved.
	type place struct{ way, parent, repartition *graphNode }
	places := make([]place, len(group))
	followers := make(map[*graphNode][]place)
	for i, r := range group {
		_, way := r.changer()
		places[i] = place{way: way, parent: r.parents[0], repartition: r}
		if way == r { // nothing lies between
			places[i].parent = first
		}
	}
	for _, n := range nodes {
		for _, p := range places {
			if slices.Contains(n.parents, p.repartition) {
				followers[n] = append(followers[n], p)
			}
		}
	}
	for _, p := range places {
		if p.way != p.repartition {
			p.way.parents = []*graphNode{first}
		}
	}
	for n, after := range followers {
		for _, p := range after {
			n.parents[slices.Index(n.parents, p.repartition)] = p.parent
		}
	}
	first.parents = []*graphNode{changer}
	nodes = slices.DeleteFunc(nodes, func(n *graphNode) bool { return slices.Contains(group, n) })
	return slices.Insert(nodes, slices.Index(nodes, changer)+1, first)
}
