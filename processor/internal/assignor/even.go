package assignor

import (
	"cmp"
	"slices"
)

// even moves standbys of a class from the fullest processes to the emptiest, as long as that makes loads more even and
// copies no nearer to each other. Where no standby can move all the way, one moves to a process between and another from
// there on: so of all placements it finds one that is as even as can be (the shortest augmenting path of a flow). It
// reports whether anything moved.
func (c *copies) even(k int, class class) (moved bool) {
	e := evening{c: c, k: k, class: class, from: make([]int32, len(c.f.processes)), stuck: make([]bool, len(c.f.processes))}
	for {
		p := e.fullest()
		if p == none {
			return moved
		}
		if !e.relieve(p) {
			continue // it is marked, with all that its standbys could go to
		}
		moved = true
	}
}

// evening is one search for relief.
type evening struct {
	c     *copies
	k     int // of the class
	class class
	from  []int32 // by process: whose standby would come here, itself for the start, none when not seen
	stuck []bool  // by process: nothing that its standbys could go to has less than it
}

// fullest is the process with most standbys for its capacity that may be relieved, if any process has so little that it
// could take one.
func (e *evening) fullest() int32 {
	most, least := none, none
	for _, p := range e.c.sites {
		if !e.stuck[p] && len(e.c.on[e.k][p]) > 0 && (most == none || e.over(most, p) < 0) {
			most = p
		}
		if least == none || e.c.f.lighter(p, least, e.c.loads, e.class.weight) {
			least = p
		}
	}
	if most == none || !e.relieves(most, least) {
		return none
	}
	return most
}

// over compares what p and q have, half of the last task counted.
func (e *evening) over(p, q int32) int {
	return e.c.f.compareLoad(p, q, e.c.loads, -e.class.weight)
}

// relieves reports whether a task less in p and one more in q is more even.
func (e *evening) relieves(p, q int32) bool {
	f, w := e.c.f, e.class.weight
	return (2*e.c.loads[p]-w)*f.sites[q].capacity > (2*e.c.loads[q]+w)*f.sites[p].capacity
}

// relieve moves one standby away from p, on to where there is less, or marks p as stuck.
func (e *evening) relieve(p int32) bool {
	for i := range e.from {
		e.from[i] = none
	}
	e.from[p] = p
	level := []int32{p}
	for len(level) > 0 {
		var next []int32
		best := none
		for _, u := range level {
			for _, v := range e.c.sites {
				if e.from[v] != none || !slices.ContainsFunc(e.c.on[e.k][u], func(t int32) bool { return e.may(t, u, v) }) {
					continue
				}
				e.from[v] = u
				next = append(next, v)
				if e.relieves(p, v) && (best == none || e.c.f.lighter(v, best, e.c.loads, e.class.weight)) {
					best = v
				}
			}
		}
		if best != none {
			if e.shift(best) {
				return true
			}
			e.stuck[p] = true
			return false
		}
		level = next
	}
	for _, q := range e.c.sites { // what p reaches, reaches no more than p
		if e.from[q] != none && e.over(q, p) <= 0 {
			e.stuck[q] = true
		}
	}
	return false
}

// shift moves one standby along each step of the way to q, each of another task: what two of one task have in common is
// not the sum of what each has. It reports whether there are such.
func (e *evening) shift(q int32) bool {
	type step struct{ t, from, to int32 }
	var steps []step
	var used []int32
	for v := q; e.from[v] != v; v = e.from[v] {
		t := e.candidate(e.from[v], v, used)
		if t == none {
			return false
		}
		steps, used = append(steps, step{t, e.from[v], v}), append(used, t)
	}
	for _, s := range steps {
		e.c.move(e.k, s.t, s.from, s.to, e.class.weight)
	}
	clear(e.stuck)
	return true
}

// may reports whether the standby of t in u could be in v instead.
func (e *evening) may(t, u, v int32) bool {
	c := e.c
	return c.open(t, v) && !c.pinned(t, u) && (c.f.aspects == 0 || c.nearness(t, v, u) <= c.nearness(t, u, u))
}

// candidate is the standby in u that would best go to v, or none: one that v has state of, then one that u has least of.
func (e *evening) candidate(u, v int32, not []int32) int32 {
	c := e.c
	best, bestRank := none, [2]int{}
	for _, t := range c.on[e.k][u] {
		if slices.Contains(not, t) || !e.may(t, u, v) {
			continue
		}
		rank := [2]int{c.worth(t, v), -c.worth(t, u)}
		if best == none || cmp.Or(cmp.Compare(rank[0], bestRank[0]), cmp.Compare(rank[1], bestRank[1]), cmp.Compare(best, t)) > 0 {
			best, bestRank = t, rank
		}
	}
	return best
}
