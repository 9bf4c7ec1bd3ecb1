package group

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// A group's metadata is one record on the broker: every member's join metadata and assignment. Beyond the broker's limit
// (1,048,588 bytes by default) each SyncGroup fails and the whole group stops, for ever. So the leader keeps well below.
const (
	// SizeLimit is where the leader starts to do without, in bytes: members may send next to nothing of what they hold.
	SizeLimit = 512 << 10
	// sizeCopies is where it leaves out warm-ups and standbys, sizePromises where promises and words go.
	sizeCopies, sizePromises = 704 << 10, 832 << 10
	// SizeMax is where it refuses to place, in bytes: the group would be lost at the broker.
	SizeMax = 1_000_000
	// firstHeldBudget is what a member may spend on Held before a leader told it, in bytes: about 600 copies.
	firstHeldBudget = 4 << 10
	// minHeldBudget and maxHeldBudget are the least and the most that a leader grants one process. The least is enough for
	// the copies that are awaited, without which nothing would ever move.
	minHeldBudget, maxHeldBudget = 128, 64 << 10
)

// SizeError reports a group whose metadata the broker would not store.
type SizeError struct {
	Members, Tasks int
	Bytes, Max     int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("group metadata of %d members and %d tasks: %d bytes, the broker holds %d: start fewer threads",
		e.Members, e.Tasks, e.Bytes, e.Max)
}

// Size is the arithmetic of a group's metadata.
type Size struct {
	Members, Tasks int
	// Metadata and Assignments are summed over the members, Overhead is what the broker's record adds. Bytes.
	Metadata, Assignments, Overhead int
	// perTask is what tasks cost however many members share them.
	perTask int
}

// Total in bytes.
func (s Size) Total() int { return s.Metadata + s.Assignments + s.Overhead }

// MembersPossible estimates how many members like the present ones fit below [SizeLimit].
func (s Size) MembersPossible() int {
	if s.Members == 0 {
		return 0
	}
	each := max((s.Total()-s.perTask)/s.Members, 1)
	return max((SizeLimit-s.perTask)/each, 0)
}

// memberOverhead is what the broker's record holds of a member beside metadata and assignment: member id, client id (which
// the member id starts with, before a dash and a UUID), client host, two timeouts, lengths.
func memberOverhead(memberID string) int { return len(memberID) + max(len(memberID)-37, 0) + 64 }

// taskBytes is what a task with n inputs costs at its owner: each partition as owned and as assigned, and a few bytes in
// the user data of both.
func taskBytes(n int) int { return 8*n + 6 }

// heldBytes is what a copy costs at most: three bytes for the gap to the partition before it, enough for 2 million
// partitions, and its code.
func heldBytes(h Held) int {
	var code [binary.MaxVarintLen64]byte
	return 3 + binary.PutUvarint(code[:], heldCode(h))
}

// trimHeld returns the copies that fit into budget bytes, and how many it left out. First come those that are awaited,
// then the furthest ones, but before those of active tasks, which the leader knows from who claims them.
func trimHeld(list []Held, budget int, awaited []store.TaskID) ([]Held, int) {
	sorted := slices.Clone(list)
	rank := func(h Held) int {
		switch {
		case slices.Contains(awaited, h.Task):
			return 0
		case h.State == HeldOffset:
			return 1
		case h.State == HeldActive:
			return 2
		default:
			return 3
		}
	}
	slices.SortStableFunc(sorted, func(a, b Held) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), b.Compare(a), a.Task.Compare(b.Task))
	})
	n := 0
	for ; n < len(sorted); n++ {
		if budget -= heldBytes(sorted[n]); budget < 0 {
			break
		}
	}
	return sorted[:n], len(sorted) - n
}
