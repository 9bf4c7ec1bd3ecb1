package assignor

import (
	"cmp"
	"slices"
)

// distribution puts the tasks of one class into bins.
type distribution struct {
	f     *fleet
	class class
	bins  []bin
	// owner and expected return the bin that has the task now, or was promised it, or none.
	owner, expected func(task int32) int32
	// held lists copies of tasks by bin, best first; tasks of other classes among them are passed over.
	held []heldBy

	in []bool // by task: is it in the class
}

// unplaced marks a task of the class that has no bin yet.
const unplaced = int32(-2)

// run writes the bin of each task of the class into result, and adds the class to the loads of the bins.
func (d *distribution) run(result []int32) {
	d.in = make([]bool, len(d.f.tasks))
	for _, t := range d.class.tasks {
		d.in[t], result[t] = true, unplaced
	}
	d.count()
	setQuotas(d.bins, len(d.class.tasks), d.class.weight)
	d.keep(result)
	for _, t := range d.class.tasks { // the promise cannot be kept, the owner has room: stay
		if b := d.owner(t); b != none && result[t] == unplaced {
			d.put(result, t, b)
		}
	}
	for _, h := range d.held { // where the state is
		if d.in[h.task] && result[h.task] == unplaced {
			d.put(result, h.task, h.process)
		}
	}
	d.spread(result)
}

// claim is the bin that t belongs to if nothing speaks against it: the one it was promised to, which is news against
// who owns it now; else the owner.
func (d *distribution) claim(t int32) int32 {
	if b := d.expected(t); b != none {
		return b
	}
	return d.owner(t)
}

// count fills in each bin's claims; a task counts once.
func (d *distribution) count() {
	free := make([]bool, len(d.in))
	for _, t := range d.class.tasks {
		if b := d.claim(t); b != none {
			d.bins[b].claimed++
		} else {
			free[t] = true
		}
	}
	for _, h := range d.held {
		if free[h.task] {
			d.bins[h.process].held++
			free[h.task] = false
		}
	}
}

// put places t into b if b has room.
func (d *distribution) put(result []int32, t, b int32) {
	if d.bins[b].left > 0 {
		d.bins[b].left--
		result[t] = b
	}
}

// keep leaves with every bin what it claims, up to its quota. A bin that claims more gives up first what a bin with room
// has state of; the rest it gives up evenly over its members and sub-topologies.
func (d *distribution) keep(result []int32) {
	surplus := make([]int, len(d.bins))
	for b := range d.bins {
		kept := min(d.bins[b].claimed, d.bins[b].quota)
		surplus[b] = d.bins[b].claimed - kept
		d.bins[b].left -= kept
	}
	for _, h := range d.held {
		if !d.in[h.task] || result[h.task] != unplaced {
			continue
		}
		from := d.claim(h.task)
		if from == none || from == h.process || surplus[from] == 0 {
			continue
		}
		if d.put(result, h.task, h.process); result[h.task] != unplaced {
			surplus[from]--
		}
	}
	claimed := make([][]int32, len(d.bins))
	for _, t := range d.class.tasks {
		if b := d.claim(t); b != none && result[t] == unplaced {
			claimed[b] = append(claimed[b], t)
		}
	}
	for b, tasks := range claimed {
		if surplus[b] > 0 {
			tasks = d.keepOrder(tasks)[:len(tasks)-surplus[b]]
		}
		for _, t := range tasks {
			result[t] = int32(b)
		}
	}
}

// keepOrder sorts tasks so that giving up from the end takes, again and again, one from the member with the most left
// and there from the sub-topology with the most left; what was promised but has not come yet is given up before all else.
func (d *distribution) keepOrder(tasks []int32) []int32 {
	member := func(t int32) int32 { return d.f.owner[t] }
	sub := func(t int32) int32 { return d.f.tasks[t].ID.Subtopology }
	inSub := make(map[[2]int32]int) // tasks so far of a member and sub-topology
	rank := make(map[int32]int, len(tasks))
	for _, t := range tasks { // sorted by ID: a rank is the number of its like before it
		k := [2]int32{member(t), sub(t)}
		rank[t] = inSub[k]
		inSub[k]++
	}
	order := slices.Clone(tasks)
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
	inMember := make(map[int32]int)
	for _, t := range order { // the same again, one level up
		rank[t] = inMember[member(t)]
		inMember[member(t)]++
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(compareBool(d.owner(a) != d.claim(a), d.owner(b) != d.claim(b)), cmp.Compare(rank[a], rank[b]), cmp.Compare(member(a), member(b)), cmp.Compare(a, b))
	})
	return order
}

// spread places what is left: each task where the fewest of its sub-topology are, among the bins with room.
func (d *distribution) spread(result []int32) {
	count := make([]int, len(d.bins))
	tasks := d.class.tasks
	for len(tasks) > 0 {
		sub := d.f.tasks[tasks[0]].ID.Subtopology
		n := 0
		clear(count)
		for ; n < len(tasks) && d.f.tasks[tasks[n]].ID.Subtopology == sub; n++ {
			if b := result[tasks[n]]; b != unplaced {
				count[b]++
			}
		}
		for _, t := range tasks[:n] {
			if result[t] != unplaced {
				continue
			}
			best := none
			for b := range d.bins {
				if d.bins[b].left == 0 {
					continue
				}
				if best == none || count[b] < count[best] || count[b] == count[best] && d.bins[b].left > d.bins[best].left {
					best = int32(b)
				}
			}
			count[best]++
			d.put(result, t, best)
		}
		tasks = tasks[n:]
	}
}
