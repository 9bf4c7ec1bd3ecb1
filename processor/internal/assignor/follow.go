package assignor

import (
	"cmp"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// copies places what follows: standbys, warm-ups and retained copies.
type copies struct {
	f              *fleet
	n              int     // standbys per task
	wanted, active []int32 // by task: process
	chosen         [][]int32
	warm           []int32   // by task: the process of its warm-up, or none
	retained       [][]int32 // by task
	sites          []int32   // that can have copies
	loads          []int64   // by process: weight of standbys
	// on lists the standbys of a process, by class.
	on [][][]int32
}

// follow adds the copies to the plan. Standbys are balanced by themselves, as a process with its share of actives and its
// share of standbys is ready for both.
func (f *fleet) follow(plan *Plan, wanted, active []int32) {
	c := &copies{
		f: f, n: max(f.opts.Standbys, 0), wanted: wanted, active: active, sites: f.followers(),
		chosen: make([][]int32, len(f.tasks)), warm: make([]int32, len(f.tasks)), retained: make([][]int32, len(f.tasks)),
		loads: make([]int64, len(f.processes)),
	}
	for t := range c.warm {
		c.warm[t] = none
	}
	if c.n == 0 && !f.aware() {
		return
	}
	budget := c.keepWarmups()
	if c.n > 0 {
		c.place()
	}
	c.addWarmups(budget)
	c.retain()
	c.report(plan)
}

// keepWarmups leaves warm-ups where they still help, and returns how many more there may be.
func (c *copies) keepWarmups() (budget int) {
	budget = max(c.f.opts.MaxWarmups, 1)
	for t := range c.f.tasks {
		if budget == 0 {
			break
		}
		if at := c.f.copyOf(int32(t), c.wanted[t]); c.waits(int32(t)) && at != nil && at.role == asWarmup {
			c.warm[t] = c.wanted[t]
			budget--
		}
	}
	return budget
}

// waits reports whether t is to go to a process that can follow it until then.
func (c *copies) waits(t int32) bool {
	return c.active[t] != c.wanted[t] && c.f.tasks[t].Stateful && !c.f.sites[c.wanted[t]].cannotFollow
}

// addWarmups makes new ones, first of what has least to read.
func (c *copies) addWarmups(budget int) {
	var want []int32
	for t := range c.f.tasks {
		if c.waits(int32(t)) && c.warm[t] == none && !slices.Contains(c.chosen[t], c.wanted[t]) {
			want = append(want, int32(t))
		}
	}
	slices.SortFunc(want, func(a, b int32) int {
		x, xKnown := c.f.lag(a, c.wanted[a])
		y, yKnown := c.f.lag(b, c.wanted[b])
		return cmp.Or(-compareBool(xKnown, yKnown), cmp.Compare(x, y), cmp.Compare(a, b))
	})
	for _, t := range want[:min(len(want), budget)] {
		c.warm[t] = c.wanted[t]
	}
}

// place places the standbys: those that are there stay, then what is missing is added, heavy tasks first, then all is
// spread and evened out, until that changes nothing. Each move makes a sum smaller that no other makes larger: what copies
// have in common or, that being equal, the squares of loads.
func (c *copies) place() {
	classes := c.f.classes
	for i := range classes {
		if !c.f.tasks[classes[i].tasks[0]].Stateful {
			classes = classes[:i]
			break
		}
	}
	c.on = make([][][]int32, len(classes))
	for k, class := range classes {
		c.on[k] = make([][]int32, len(c.f.processes))
		c.keep(k, class)
	}
	for k, class := range classes {
		for _, t := range class.tasks {
			for len(c.chosen[t]) < c.n {
				p := c.best(t, class.weight, none)
				if p == none {
					break
				}
				c.add(k, t, p, class.weight)
			}
		}
	}
	c.keepDraining(classes)
	for again := true; again; {
		again = false
		for k, class := range classes {
			apart := c.spreadApart(k, class)
			even := c.even(k, class)
			again = again || apart || even
		}
	}
}

func (c *copies) add(class int, t, p int32, weight int64) {
	c.chosen[t] = append(c.chosen[t], p)
	c.on[class][p] = append(c.on[class][p], t)
	c.loads[p] += weight
}

func (c *copies) move(class int, t, from, to int32, weight int64) {
	c.chosen[t] = slices.DeleteFunc(c.chosen[t], func(p int32) bool { return p == from })
	c.on[class][from] = slices.DeleteFunc(c.on[class][from], func(x int32) bool { return x == t })
	c.loads[from] -= weight
	c.add(class, t, to, weight)
}

// free reports whether p can have one more copy of t, or go on with the one it has.
func (c *copies) free(t, p int32) bool {
	return !c.f.sites[p].cannotFollow && p != c.active[t] && p != c.warm[t] && !slices.Contains(c.chosen[t], p)
}

// open reports whether p can be given a copy of t.
func (c *copies) open(t, p int32) bool { return !c.f.sites[p].draining && c.free(t, p) }

// keepDraining leaves copies with processes that are draining where there is nobody else to have them.
func (c *copies) keepDraining(classes []class) {
	for k, class := range classes {
		for _, t := range class.tasks {
			for i := range c.f.copies[t] {
				at := &c.f.copies[t][i]
				has := at.role != notFollowing || c.f.processOf(c.f.runs[t]) == at.process
				if len(c.chosen[t]) < c.n && has && c.f.sites[at.process].draining && c.free(t, at.process) {
					c.add(k, t, at.process, class.weight)
				}
			}
		}
	}
}

// pinned reports whether the standby of t in p has to stay: its active waits for it, or nobody knows whether another would
// catch up.
func (c *copies) pinned(t, p int32) bool {
	if c.active[t] != c.wanted[t] && c.wanted[t] == p {
		return true
	}
	at := c.f.copyOf(t, p)
	return c.f.aware() && c.f.ends[t] == unknownEnd && at != nil && at.role == asStandby
}

// keep leaves standbys where they are; of more than asked for, those that fit best.
func (c *copies) keep(k int, class class) {
	var crowded []int32
	here := func(t int32) []int32 {
		var ps []int32
		for i := range c.f.copies[t] {
			if at := &c.f.copies[t][i]; at.role == asStandby && c.open(t, at.process) {
				ps = append(ps, at.process)
			}
		}
		return ps
	}
	for _, t := range class.tasks {
		ps := here(t)
		if len(ps) > c.n {
			crowded = append(crowded, t)
			continue
		}
		for _, p := range ps {
			c.add(k, t, p, class.weight)
		}
	}
	for _, t := range crowded {
		ps := here(t)
		for len(c.chosen[t]) < c.n {
			best := none
			for _, p := range ps {
				if c.open(t, p) && (best == none || c.better(t, p, best, class.weight, none)) {
					best = p
				}
			}
			c.add(k, t, best, class.weight)
		}
	}
}

// best is where one more standby of t would best be, or none. The standby that it replaces is not counted.
func (c *copies) best(t int32, weight int64, replaces int32) int32 {
	best := none
	for _, p := range c.sites {
		if c.open(t, p) && (best == none || c.better(t, p, best, weight, replaces)) {
			best = p
		}
	}
	return best
}

// better compares two places for a standby of t: apart from its other copies, then where state is, then where there is
// less.
func (c *copies) better(t, p, q int32, weight int64, replaces int32) bool {
	x, y := c.nearness(t, p, replaces), c.nearness(t, q, replaces)
	if x != y {
		return x < y
	}
	if n := cmp.Compare(c.worth(t, q), c.worth(t, p)); n != 0 {
		return n < 0
	}
	a, b := c.f.copyOf(t, p), c.f.copyOf(t, q)
	if a != nil && b != nil && a.onDisk && b.onDisk {
		if n := b.held.Compare(a.held); n != 0 {
			return n < 0
		}
	}
	return cmp.Or(c.f.compareLoad(p, q, c.loads, weight), cmp.Compare(p, q)) < 0
}

func (c *copies) nearness(t, p, except int32) uint64 {
	return c.f.nearness(p, c.active[t], c.chosen[t], except)
}

// worth ranks what p has of t: the former owner's state is the last commit itself; then copies that are followed, that
// have caught up, that are on disk; then where the active wants to go anyway.
func (c *copies) worth(t, p int32) int {
	at := c.f.copyOf(t, p)
	switch {
	case c.f.processOf(c.f.runs[t]) == p:
		return 5
	case at != nil && at.role != notFollowing:
		return 4
	case at != nil && at.onDisk && c.f.aware() && c.f.caughtUp(t, p):
		return 3
	case at != nil && at.onDisk:
		return 2
	case c.wanted[t] == p:
		return 1
	default:
		return 0
	}
}

// spreadApart moves standbys of a class to where they have less in common with the other copies of their task.
func (c *copies) spreadApart(k int, class class) (moved bool) {
	if c.f.aspects == 0 {
		return false
	}
	for _, t := range class.tasks {
		for changed := true; changed; {
			changed = false
			for _, p := range c.chosen[t] {
				near := c.nearness(t, p, p)
				if near == 0 || c.pinned(t, p) {
					continue
				}
				if q := c.best(t, class.weight, p); q != none && c.nearness(t, q, p) < near {
					c.move(k, t, p, q, class.weight)
					changed, moved = true, true
					break
				}
			}
		}
	}
	return moved
}

// retain keeps copies that have caught up until as many of the task's proper ones have, and its active runs.
func (c *copies) retain() {
	if !c.f.aware() {
		return
	}
	for i := range c.f.tasks {
		t := int32(i)
		if !c.f.tasks[t].Stateful {
			continue
		}
		missing := 0
		if !c.f.running(t, c.active[t]) {
			missing++
		}
		for _, p := range c.chosen[t] {
			if !c.ready(t, p) {
				missing++
			}
		}
		if missing == 0 {
			continue
		}
		var ps []int32
		for j := range c.f.copies[t] {
			at := &c.f.copies[t][j]
			if (at.role != notFollowing || c.f.processOf(c.f.runs[t]) == at.process) && c.free(t, at.process) && c.ready(t, at.process) {
				ps = append(ps, at.process)
			}
		}
		slices.SortFunc(ps, func(p, q int32) int {
			return cmp.Or(cmp.Compare(c.worth(t, q), c.worth(t, p)), c.f.copyOf(t, q).held.Compare(c.f.copyOf(t, p).held), cmp.Compare(p, q))
		})
		c.retained[t] = ps[:min(len(ps), missing)]
	}
}

// ready reports whether the copy of t in p can answer. Where nobody knows the ends, those that were kept until now stay.
func (c *copies) ready(t, p int32) bool {
	if c.f.ends[t] == unknownEnd {
		at := c.f.copyOf(t, p)
		return at != nil && at.role == asRetained || c.f.running(t, p)
	}
	if c.f.processOf(c.f.runs[t]) == p {
		return c.f.running(t, p)
	}
	return c.f.caughtUp(t, p)
}

// report writes the copies into the plan.
func (c *copies) report(plan *Plan) {
	by := make([]Copies, len(c.f.processes))
	for i := range c.f.tasks {
		t, id := int32(i), c.f.tasks[i].ID
		if !c.f.tasks[t].Stateful {
			continue
		}
		for _, p := range c.chosen[t] {
			by[p].Standby = append(by[p].Standby, id) // in order, as the tasks are
		}
		if p := c.warm[t]; p != none {
			by[p].Warmup = append(by[p].Warmup, id)
		}
		for _, p := range c.retained[t] {
			by[p].Retained = append(by[p].Retained, id)
			plan.Retained++
		}
		if w := c.wanted[t]; w != c.active[t] {
			plan.Waiting++
			if c.warm[t] == w || slices.Contains(c.chosen[t], w) {
				by[w].Awaited = append(by[w].Awaited, id)
			}
		}
		plan.Missing += c.n - len(c.chosen[t])
	}
	for p, ms := range c.f.processes {
		if slices.ContainsFunc([][]store.TaskID{by[p].Standby, by[p].Warmup, by[p].Retained}, func(ids []store.TaskID) bool { return len(ids) > 0 }) {
			by[p].Process = c.f.members[ms[0]].Process
			plan.Processes = append(plan.Processes, by[p])
		}
	}
}
