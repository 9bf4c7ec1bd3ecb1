package assignor

import "cmp"

// reach says where each task can be active now, by KIP-441's rules: where it is wanted if it could run there at once;
// else where it is; else, if nobody has it or its owner is far behind, where it has caught up, or is furthest on; where it
// is wanted when nobody has any state. Who drains gives to any that could run it at once.
func (f *fleet) reach(wanted []int32) []int32 {
	active := make([]int32, len(wanted))
	copy(active, wanted)
	if !f.aware() {
		return active
	}
	loads := make([]int64, len(f.processes))
	for _, c := range f.classes {
		if !f.tasks[c.tasks[0]].Stateful {
			break // they are last
		}
		var open []int32
		for _, t := range c.tasks {
			switch p := f.claim(t); {
			case f.caughtUp(t, wanted[t]):
			case p != none && !f.sites[p].draining && f.caughtUp(t, p):
				active[t] = p
			default:
				open = append(open, t)
				continue
			}
			loads[active[t]] += c.weight
		}
		for _, t := range open {
			active[t] = f.nearest(t, wanted[t], loads, c.weight)
			loads[active[t]] += c.weight
		}
	}
	return active
}

// claim is the process that has t or was promised it, or none.
func (f *fleet) claim(t int32) int32 {
	if p := f.processOf(f.expected[t]); p != none {
		return p
	}
	return f.processOf(f.owner[t])
}

// nearest is where t is when it can neither go where it is wanted nor stay. Who drains comes last of those that have caught up:
// alone with a copy it keeps the task, or takes it, for else nobody would answer.
func (f *fleet) nearest(t, wanted int32, loads []int64, weight int64) int32 {
	best := none
	for i := range f.copies[t] {
		p := f.copies[t][i].process
		if f.sites[p].draining || !f.caughtUp(t, p) {
			continue
		}
		if best == none || f.lighter(p, best, loads, weight) {
			best = p
		}
	}
	if p := f.claim(t); best == none && p != none && f.caughtUp(t, p) {
		best = p
	}
	if best == none {
		best = f.anyCaughtUp(t)
	}
	if best != none {
		return best
	}
	if p := f.claim(t); p != none {
		return p
	}
	for i := range f.copies[t] {
		c := &f.copies[t][i]
		if f.sites[c.process].draining {
			continue // it would read for others
		}
		if best == none || f.further(c, f.copyOf(t, best), wanted) {
			best = c.process
		}
	}
	if best == none {
		return wanted
	}
	return best
}

// anyCaughtUp is a process where t has caught up, or none.
func (f *fleet) anyCaughtUp(t int32) int32 {
	for i := range f.copies[t] {
		if p := f.copies[t][i].process; f.caughtUp(t, p) {
			return p
		}
	}
	return none
}

// lighter reports whether p has less load than q for its capacity.
func (f *fleet) lighter(p, q int32, loads []int64, weight int64) bool {
	return f.compareLoad(p, q, loads, weight) < 0
}

func (f *fleet) compareLoad(p, q int32, loads []int64, weight int64) int {
	return cmp.Compare((2*loads[p]+weight)*f.sites[q].capacity, (2*loads[q]+weight)*f.sites[p].capacity)
}

// further reports whether a of two copies that are both behind is the better one to go on from.
func (f *fleet) further(a, b *copyAt, wanted int32) bool {
	held := func(c *copyAt) Held {
		if !c.onDisk {
			return Held{} // as good as unknown
		}
		return c.held
	}
	return cmp.Or(
		compareBool(f.unreported(a), f.unreported(b)),
		held(a).Compare(held(b)),
		compareBool(a.role != notFollowing, b.role != notFollowing),
		compareBool(a.process == wanted, b.process == wanted),
		cmp.Compare(b.process, a.process),
	) > 0
}

// settle takes it that tasks nobody has are where reach has put them. It reports whether that differs from where they were
// wanted: the balance then sees what it will see at the next placement, so that this one is as the next will be.
func (f *fleet) settle(wanted, active []int32) bool {
	differs := false
	for t := range active {
		differs = differs || f.claim(int32(t)) == none && active[t] != wanted[t]
	}
	if !differs {
		return false
	}
	onMember := f.withinProcesses(active)
	for t := range active {
		if f.claim(int32(t)) == none {
			f.owner[t] = onMember[t]
		}
	}
	return true
}
