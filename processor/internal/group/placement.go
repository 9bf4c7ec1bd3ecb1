package group

import (
	"slices"

	"github.com/statemesh/statemesh/processor/internal/assignor"
	"github.com/statemesh/statemesh/store"
)

// placement is what the assignor wants, in terms of the members that joined.
type placement struct {
	target []int32 // by task: its member, nobody when no member may have any
	plan   assignor.Plan
	copies map[string]*assignor.Copies // by process
}

// place asks the assignor.
func place(ix *index, list []joined, c *claims, opts Options) placement {
	members := make([]assignor.Member, 0, len(list))
	at := make([]int32, 0, len(list))
	slot := make([]int32, len(list))
	for m := range list {
		slot[m] = nobody
		if list[m].refused() {
			continue
		}
		slot[m] = int32(len(members))
		at = append(at, int32(m))
		j := &list[m].member
		members = append(members, assignor.Member{
			ID: list[m].id, Process: j.ProcessID, Rack: j.Rack, Tags: j.Tags, Capacity: j.Capacity, Held: j.Held,
			HeldPartial: j.HeldPartial || !j.follows(), Standby: j.Standby, Warmup: j.Warmup, Retained: j.Retained,
			CannotFollow: !j.follows(), Draining: j.Draining,
		})
	}
	for t, m := range c.owner {
		if m != nobody && slot[m] != nobody {
			members[slot[m]].Owned = append(members[slot[m]].Owned, ix.shape.Tasks[t].ID)
		}
	}
	for id, m := range promises(list) { // in any order: the assignor makes a table of them
		if slot[m] != nobody {
			members[slot[m]].Expected = append(members[slot[m]].Expected, id)
		}
	}
	p := placement{target: make([]int32, len(ix.shape.Tasks)), plan: assignor.Assign(ix.shape, members, opts)}
	for t := range p.target {
		p.target[t] = nobody
	}
	for i, pl := range p.plan.Members {
		for _, id := range pl.Active {
			p.target[ix.byID[id]] = at[i]
		}
	}
	p.copies = make(map[string]*assignor.Copies, len(p.plan.Processes))
	for i := range p.plan.Processes {
		p.copies[p.plan.Processes[i].Process] = &p.plan.Processes[i]
	}
	return p
}

// tellCopies tells one thread of each process what the process is to follow, and who lets go of a task that it is to keep
// as a standby.
func (p *placement) tellCopies(ix *index, list []joined, out []Assignment, opts Options) {
	holding := make(map[store.TaskID]string) // the process that has the task in the map
	for m := range out {
		process := list[m].member.ProcessID
		for _, id := range out[m].Active {
			holding[id] = process
		}
		for i := range out[m].Releasing {
			rel := &out[m].Releasing[i]
			holding[rel.Task] = process
			c := p.copies[process]
			rel.Keep = c != nil && !list[m].refused() &&
				(contains(c.Standby, rel.Task) || contains(c.Warmup, rel.Task) || contains(c.Retained, rel.Task))
		}
	}
	coming := p.followedMeanwhile(ix, list, out)
	for process, m := range leads(list) {
		a := &out[m]
		a.Copies = true
		elsewhere := func(ids []store.TaskID) []store.TaskID { // without those active here until the next generation
			return slices.DeleteFunc(slices.Clone(ids), func(id store.TaskID) bool { return holding[id] == process })
		}
		standby := coming[process]
		if c := p.copies[process]; c != nil {
			standby = slices.Concat(c.Standby, standby)
			a.Warmup, a.Retained, a.Awaited = elsewhere(c.Warmup), elsewhere(c.Retained), elsewhere(c.Awaited)
		}
		slices.SortFunc(standby, store.TaskID.Compare)
		a.Standby = elsewhere(standby)
		if len(a.Awaited) > 0 {
			a.ReadyLag = max(opts.AcceptableLag, 0) / 2
		}
	}
}

// followedMeanwhile lists the tasks on their way to a process that follows them: it goes on doing so until they come.
func (p *placement) followedMeanwhile(ix *index, list []joined, out []Assignment) map[string][]store.TaskID {
	type at struct {
		process string
		task    store.TaskID
	}
	follows := make(map[at]bool)
	for m := range list {
		j := &list[m].member
		for _, id := range slices.Concat(j.Standby, j.Warmup, j.Retained) {
			follows[at{j.ProcessID, id}] = true
		}
	}
	coming := make(map[string][]store.TaskID)
	for m := range out {
		process := list[m].member.ProcessID
		for _, id := range out[m].Incoming {
			if t, ok := ix.byID[id]; ok && ix.shape.Tasks[t].Stateful && follows[at{process, id}] {
				coming[process] = append(coming[process], id)
			}
		}
	}
	return coming
}

// leads returns the thread that hears of the copies of its process, for each process that can have any: the one with the
// lowest number, so that it stays the same from generation to generation.
func leads(list []joined) map[string]int32 {
	lead := make(map[string]int32)
	for m := range list {
		j := &list[m]
		if j.refused() || !j.member.follows() {
			continue
		}
		have, ok := lead[j.member.ProcessID]
		if !ok || j.member.Thread < list[have].member.Thread {
			lead[j.member.ProcessID] = int32(m)
		}
	}
	return lead
}

// contains looks a task up in a sorted list.
func contains(sorted []store.TaskID, id store.TaskID) bool {
	_, ok := slices.BinarySearchFunc(sorted, id, store.TaskID.Compare)
	return ok
}
