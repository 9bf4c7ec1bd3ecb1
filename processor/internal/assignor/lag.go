package assignor

import (
	"cmp"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// unknownEnd is the end of changelogs of which nothing is known.
const unknownEnd = int64(-1)

// role is what a process follows a task as.
type role uint8

const (
	notFollowing role = iota // it does not follow
	asStandby
	asWarmup
	asRetained
)

// copyAt is what is known of the copy of a task in a process.
type copyAt struct {
	process int32
	onDisk  bool // held is reported
	held    Held
	role    role
}

// aware reports whether the placement takes notice of lags.
func (f *fleet) aware() bool { return f.opts.Ends != nil }

func (f *fleet) readEnds() {
	f.ends = make([]int64, len(f.tasks))
	for t := range f.ends {
		f.ends[t] = unknownEnd
		if end, ok := f.opts.Ends[f.tasks[t].ID]; ok && end >= 0 {
			f.ends[t] = end
		}
	}
}

// readCopies fills in copies, and held from it.
func (f *fleet) readCopies(index map[store.TaskID]int32) {
	f.copies = make([][]copyAt, len(f.tasks))
	at := func(t, p int32) *copyAt {
		if c := f.copyOf(t, p); c != nil {
			return c
		}
		f.copies[t] = append(f.copies[t], copyAt{process: p})
		return &f.copies[t][len(f.copies[t])-1]
	}
	for m := range f.members {
		x := &f.members[m]
		for _, h := range x.Held {
			if t, ok := index[h.Task]; ok {
				if c := at(t, f.process[m]); !c.onDisk || h.Compare(c.held) > 0 {
					c.onDisk, c.held = true, h
				}
			}
		}
		for _, as := range [...]struct {
			role  role
			tasks []store.TaskID
		}{{asRetained, x.Retained}, {asWarmup, x.Warmup}, {asStandby, x.Standby}} { // the last one counts
			for _, id := range as.tasks {
				if t, ok := index[id]; ok && f.tasks[t].Stateful {
					at(t, f.process[m]).role = as.role
				}
			}
		}
	}
	f.rankHeld()
}

// rankHeld lists the copies on disk, those first that a task would best go to: with known ends the ones that have caught
// up, then those that are warming up for it, or followed and not reported; then those that are furthest on.
func (f *fleet) rankHeld() {
	type ranked struct {
		heldBy
		copy *copyAt
		rank int
	}
	var list []ranked
	for t := range f.copies {
		slices.SortFunc(f.copies[t], func(a, b copyAt) int { return cmp.Compare(a.process, b.process) })
		for i := range f.copies[t] {
			c := &f.copies[t][i]
			r := ranked{heldBy: heldBy{task: int32(t), process: c.process}, copy: c}
			switch {
			case !f.aware():
			case f.caughtUp(int32(t), c.process):
				r.rank = 2
			case c.role == asWarmup || f.unreported(c):
				r.rank = 1
			}
			if c.onDisk || r.rank > 0 {
				list = append(list, r)
			}
		}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.rank, a.rank), b.copy.held.Compare(a.copy.held), cmp.Compare(a.task, b.task), cmp.Compare(a.process, b.process))
	})
	f.held = make([]heldBy, len(list))
	for i := range list {
		f.held[i] = list[i].heldBy
	}
}

// unreported tells of a copy that is followed, and that there was no room to report: it is likely to have caught up, but
// nobody knows.
func (f *fleet) unreported(c *copyAt) bool {
	return (c.role == asStandby || c.role == asRetained) && !c.onDisk && f.sites[c.process].partial
}

func (f *fleet) copyOf(t, p int32) *copyAt {
	for i := range f.copies[t] {
		if f.copies[t][i].process == p {
			return &f.copies[t][i]
		}
	}
	return nil
}

// lag is how many offsets the copy of t in p is behind. A process without a copy has all of it to read (as upstream counts).
func (f *fleet) lag(t, p int32) (lag int64, known bool) {
	c := f.copyOf(t, p)
	switch {
	case c != nil && c.onDisk && c.held.State == HeldActive:
		return 0, true
	case f.ends[t] == unknownEnd:
		return 0, false
	case c != nil && c.onDisk && c.held.State == HeldOffset:
		return max(f.ends[t]-c.held.Offset, 0), true
	default:
		return f.ends[t], true
	}
}

// caughtUp reports whether t could run in p at once. Of who was promised it this was true when that was promised; who
// runs it counts as caught up unless it says that it is restoring, and has far to go.
func (f *fleet) caughtUp(t, p int32) bool {
	if f.processOf(f.expected[t]) == p {
		return true
	}
	lag, known := f.lag(t, p)
	if f.processOf(f.owner[t]) == p {
		c := f.copyOf(t, p)
		return c == nil || !c.onDisk || c.held.State != HeldOffset || !known || lag <= f.opts.AcceptableLag
	}
	return known && lag <= f.opts.AcceptableLag
}

// running reports whether p has t and has published it.
func (f *fleet) running(t, p int32) bool {
	if f.processOf(f.runs[t]) != p {
		return false
	}
	if c := f.copyOf(t, p); c != nil && c.onDisk {
		return c.held.State == HeldActive
	}
	return f.sites[p].partial // it may have been left out: the furthest are last to be
}
