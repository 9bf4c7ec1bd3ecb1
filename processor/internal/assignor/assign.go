package assignor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// none marks a task without an owner.
const none = int32(-1)

// Assign places the tasks of shape on members. Tasks listed twice count once; claims of tasks that the shape does not
// have are ignored. Without members the plan is empty.
//
// First it says where actives are wanted, class by class (stateful before stateless, heavy before light) and on two
// levels: every process gets a quota of the class, by filling up the least loaded, and the tasks are matched to the
// quotas: what was promised or is owned stays where it fits, state attracts, the rest is spread; then each process does
// the same among its members. With [Options.Ends] a stateful task goes where it is wanted only if its state there has
// caught up ([fleet.reach]). Last come the copies ([fleet.follow]).
func Assign(shape Shape, members []Member, opts Options) Plan {
	plan := Plan{Members: make([]Placement, len(members))}
	for i := range members {
		plan.Members[i].Member = members[i].ID
	}
	if len(members) == 0 {
		return plan
	}
	f := newFleet(shape, members, opts)
	wanted := f.want()
	active := f.reach(wanted)
	if f.settle(wanted, active) {
		wanted = f.want()
		active = f.reach(wanted)
	}
	for t, m := range f.withinProcesses(active) {
		p := &plan.Members[f.order[m]]
		p.Active = append(p.Active, f.tasks[t].ID) // f.tasks is sorted, so this is too
	}
	f.follow(&plan, wanted, active)
	return plan
}

// want returns the process of each task that the balance wants it on.
func (f *fleet) want() []int32 {
	wanted := make([]int32, len(f.tasks))
	loads := make([]int64, len(f.processes))
	for _, c := range f.classes {
		d := distribution{
			f: f, class: c, bins: f.processBins(loads),
			owner:    func(t int32) int32 { return f.processOf(f.owner[t]) },
			expected: func(t int32) int32 { return f.processOf(f.expected[t]) },
			held:     f.held,
		}
		d.run(wanted)
		for i := range loads {
			loads[i] = d.bins[i].load
		}
	}
	if f.allDrain {
		for t := range wanted {
			if p := f.claim(int32(t)); p != none {
				wanted[t] = p
			}
		}
	}
	return wanted
}

// fleet is the input in numbers: tasks and members as indices, sorted by ID.
type fleet struct {
	tasks     []TaskShape
	members   []Member
	order     []int // members[i] was at order[i] in the caller's slice
	process   []int32
	processes [][]int32 // the members of each process
	owner     []int32   // by task: member or none
	runs      []int32   // as owner, without what settle adds
	expected  []int32
	copies    [][]copyAt // by task
	held      []heldBy   // best copies first
	classes   []class

	opts    Options
	ends    []int64 // by task: end of its changelogs, unknownEnd
	sites   []site  // by process
	aspects int     // how many properties of a place count
	// allDrain: every process does.
	allDrain bool
}

// class is a set of tasks that are alike for the balance.
type class struct {
	tasks  []int32 // sorted by ID
	weight int64
}

// heldBy is a copy and the process that has it.
type heldBy struct {
	task, process int32
}

func newFleet(shape Shape, members []Member, opts Options) *fleet {
	f := &fleet{opts: opts}
	f.sortTasks(shape.Tasks)
	f.sortMembers(members)
	index := make(map[store.TaskID]int32, len(f.tasks))
	for t := range f.tasks {
		index[f.tasks[t].ID] = int32(t)
	}
	f.owner = f.claims(index, func(m *Member) []store.TaskID { return m.Owned })
	f.expected = f.claims(index, func(m *Member) []store.TaskID { return m.Expected })
	f.runs = slices.Clone(f.owner)
	f.readSites()
	f.readEnds()
	f.readCopies(index)
	f.sortClasses()
	return f
}

func (f *fleet) sortTasks(tasks []TaskShape) {
	f.tasks = slices.Clone(tasks)
	slices.SortStableFunc(f.tasks, func(a, b TaskShape) int { return a.ID.Compare(b.ID) })
	f.tasks = slices.CompactFunc(f.tasks, func(a, b TaskShape) bool { return a.ID == b.ID })
	for i := range f.tasks {
		f.tasks[i].Weight = max(f.tasks[i].Weight, 1)
	}
}

func (f *fleet) sortMembers(members []Member) {
	f.order = make([]int, len(members))
	for i := range f.order {
		f.order[i] = i
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return strings.Compare(members[a].ID, members[b].ID) })
	names := make([]string, 0, len(members))
	for _, i := range f.order {
		m := members[i]
		m.Capacity = max(m.Capacity, 1)
		f.members = append(f.members, m)
		names = append(names, m.Process)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	f.processes = make([][]int32, len(names))
	f.process = make([]int32, len(members))
	for i := range f.members {
		p, _ := slices.BinarySearch(names, f.members[i].Process)
		f.process[i] = int32(p)
		f.processes[p] = append(f.processes[p], int32(i))
	}
}

func (f *fleet) claims(index map[store.TaskID]int32, of func(*Member) []store.TaskID) []int32 {
	claims := make([]int32, len(f.tasks))
	for t := range claims {
		claims[t] = none
	}
	for m := range f.members {
		for _, id := range of(&f.members[m]) {
			if t, ok := index[id]; ok && claims[t] == none {
				claims[t] = int32(m)
			}
		}
	}
	return claims
}

func (f *fleet) sortClasses() {
	byLoad := make([]int32, len(f.tasks))
	for t := range byLoad {
		byLoad[t] = int32(t)
	}
	compare := func(a, b int32) int {
		x, y := &f.tasks[a], &f.tasks[b]
		if x.Stateful != y.Stateful {
			if x.Stateful {
				return -1
			}
			return 1
		}
		return cmp.Compare(y.Weight, x.Weight)
	}
	slices.SortStableFunc(byLoad, compare)
	for len(byLoad) > 0 {
		n := 1
		for n < len(byLoad) && compare(byLoad[0], byLoad[n]) == 0 {
			n++
		}
		f.classes = append(f.classes, class{tasks: byLoad[:n:n], weight: int64(f.tasks[byLoad[0]].Weight)})
		byLoad = byLoad[n:]
	}
}

// processOf returns the process of a member, or none.
func (f *fleet) processOf(member int32) int32 {
	if member == none {
		return none
	}
	return f.process[member]
}

func (f *fleet) processBins(loads []int64) []bin {
	bins := make([]bin, len(f.processes))
	for p := range f.processes {
		bins[p].load, bins[p].capacity = loads[p], f.sites[p].capacity
	}
	return bins
}

// withinProcesses spreads the tasks of each process over its members.
func (f *fleet) withinProcesses(onProcess []int32) []int32 {
	onMember := make([]int32, len(f.tasks))
	loads := make([]int64, len(f.members))
	local := make([]int32, len(f.members)) // index of a member in its process
	for _, ms := range f.processes {
		for i, m := range ms {
			local[m] = int32(i)
		}
	}
	here := make([][]int32, len(f.processes))
	chosen := make([]int32, len(f.tasks))
	for _, c := range f.classes {
		for p := range here {
			here[p] = here[p][:0]
		}
		for _, t := range c.tasks {
			here[onProcess[t]] = append(here[onProcess[t]], t)
		}
		for p, tasks := range here {
			if len(tasks) == 0 {
				continue
			}
			ms := f.processes[p]
			bins := make([]bin, len(ms))
			for i, m := range ms {
				bins[i] = bin{load: loads[m], capacity: int64(f.members[m].Capacity)}
			}
			inside := func(m int32) int32 {
				if m == none || f.process[m] != int32(p) {
					return none
				}
				return local[m]
			}
			d := distribution{
				f: f, class: class{tasks: tasks, weight: c.weight}, bins: bins,
				owner:    func(t int32) int32 { return inside(f.owner[t]) },
				expected: func(t int32) int32 { return inside(f.expected[t]) },
			}
			d.run(chosen)
			for i, m := range ms {
				loads[m] = d.bins[i].load
			}
			for _, t := range tasks {
				onMember[t] = ms[chosen[t]]
			}
		}
	}
	return onMember
}
