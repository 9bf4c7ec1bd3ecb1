package store

import "maps"

// Position says how far a state has read its inputs: input topic -> partition -> highest offset applied. Components only
// grow. It follows upstream's Position (KIP-796). The zero value knows nothing and must not be written to; use Clone or
// make one.
type Position map[string]map[Partition]Offset

// Set raises the component (topic, p) to o; a lower o changes nothing.
func (pos Position) Set(topic string, p Partition, o Offset) {
	m := pos[topic]
	if m == nil {
		m = make(map[Partition]Offset)
		pos[topic] = m
	}
	if have, ok := m[p]; !ok || o > have {
		m[p] = o
	}
}

// Merge raises every component of pos to that of o.
func (pos Position) Merge(o Position) {
	for topic, m := range o {
		for p, off := range m {
			pos.Set(topic, p, off)
		}
	}
}

// Clone returns a deep copy, never nil.
func (pos Position) Clone() Position {
	c := make(Position, len(pos))
	for topic, m := range pos {
		c[topic] = maps.Clone(m)
	}
	return c
}

// Meets reports whether pos has reached bound in partition p of every topic that bound names for that partition.
// Topics of the bound that lack p are ignored, as upstream does.
func (pos Position) Meets(bound Position, p Partition) bool {
	for topic, m := range bound {
		want, ok := m[p]
		if !ok {
			continue
		}
		have, ok := pos[topic][p]
		if !ok || have < want {
			return false
		}
	}
	return true
}
