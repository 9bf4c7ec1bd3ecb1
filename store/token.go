package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Token says how far a reader has seen one store, partition by partition. A read `at least` a token does not go back behind
// it, whichever copy answers and whoever owns the partition by then. Tokens of one store merge by their maximum. The zero
// value asks for nothing.
type Token struct { //nolint:recvcheck // Raise alone changes it
	// Cuts are places in the changelog, by partition of the store.
	Cuts map[Partition]Cut
	// Inputs are positions in input topics, as a produce acknowledgement gives them: read your writes. Checked as
	// Position.Meets does, by the store's own partition number.
	Inputs Position
}

// Cut is a place in one partition of a changelog.
type Cut struct {
	// TopicID tells a recreated changelog from the one that was read; offsets of different ids do not compare.
	TopicID [16]byte
	// Next is the first offset that was not seen.
	Next Offset
}

// Raise makes sure that t asks for at least what o asks for. A cut of another topic id replaces the one that is there.
func (t *Token) Raise(o Token) {
	for p, c := range o.Cuts {
		if have, ok := t.Cuts[p]; ok && have.TopicID == c.TopicID && have.Next >= c.Next {
			continue
		}
		if t.Cuts == nil {
			t.Cuts = make(map[Partition]Cut)
		}
		t.Cuts[p] = c
	}
	if len(o.Inputs) > 0 {
		t.Inputs = t.Inputs.Clone()
		t.Inputs.Merge(o.Inputs)
	}
}

// At is the part of t that concerns partition p.
func (t Token) At(p Partition) Token {
	var part Token
	if c, ok := t.Cuts[p]; ok {
		part.Cuts = map[Partition]Cut{p: c}
	}
	for topic, m := range t.Inputs {
		if o, ok := m[p]; ok {
			if part.Inputs == nil {
				part.Inputs = make(Position)
			}
			part.Inputs.Set(topic, p, o)
		}
	}
	return part
}

// Empty reports whether t asks for nothing.
func (t Token) Empty() bool { return len(t.Cuts) == 0 && len(t.Inputs) == 0 }

// Clone returns a deep copy.
func (t Token) Clone() Token {
	c := Token{Cuts: maps.Clone(t.Cuts)}
	if t.Inputs != nil {
		c.Inputs = t.Inputs.Clone()
	}
	return c
}

// String lists the parts in order: "changelog 0@17, orders-0@4". Topic ids are left out.
func (t Token) String() string {
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(t.Cuts)) {
		parts = append(parts, fmt.Sprintf("changelog %d@%d", p, t.Cuts[p].Next))
	}
	for _, topic := range slices.Sorted(maps.Keys(t.Inputs)) {
		for _, p := range slices.Sorted(maps.Keys(t.Inputs[topic])) {
			parts = append(parts, fmt.Sprintf("%s-%d@%d", topic, p, t.Inputs[topic][p]))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
