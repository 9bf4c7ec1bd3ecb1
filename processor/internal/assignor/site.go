package assignor

import (
	"math"
	"slices"
)

// site is a process as a place for copies.
type site struct {
	capacity     int64 // 0 when it drains
	cannotFollow bool
	draining     bool
	partial      bool    // its report of what it holds is
	values       []int32 // by aspect: equal numbers for equal values
}

// readSites fills in sites. The aspects are the tags asked for, or else the rack. Two processes that say nothing of one are
// taken to be in one place.
func (f *fleet) readSites() {
	f.sites = make([]site, len(f.processes))
	f.aspects = max(min(len(f.opts.RackAwareTags), maxAspects), 1)
	value := func(m *Member, i int) string {
		if len(f.opts.RackAwareTags) == 0 {
			return m.Rack
		}
		return m.Tags[f.opts.RackAwareTags[i]]
	}
	numbers := make([]map[string]int32, f.aspects)
	for i := range numbers {
		numbers[i] = make(map[string]int32)
	}
	for p, ms := range f.processes {
		s := &f.sites[p]
		for _, m := range ms {
			s.capacity += int64(f.members[m].Capacity)
			s.cannotFollow = s.cannotFollow || f.members[m].CannotFollow
			s.draining = s.draining || f.members[m].Draining
			s.partial = s.partial || f.members[m].HeldPartial
		}
		s.values = make([]int32, f.aspects)
		for i := range s.values {
			text := ""
			for _, m := range ms {
				if text = value(&f.members[m], i); text != "" {
					break
				}
			}
			n, ok := numbers[i][text]
			if !ok {
				n = int32(len(numbers[i]))
				numbers[i][text] = n
			}
			s.values[i] = n
		}
	}
	f.drain()
	if !slices.ContainsFunc(numbers, func(n map[string]int32) bool { return len(n) > 1 }) {
		f.aspects = 0 // what is the same for all decides nothing
	}
}

// drain takes away the capacity of the processes that are draining. If that are all, none is: each keeps what it has.
func (f *fleet) drain() {
	f.allDrain = !slices.ContainsFunc(f.sites, func(s site) bool { return !s.draining })
	for p := range f.sites {
		s := &f.sites[p]
		if s.draining = s.draining && !f.allDrain; s.draining {
			s.capacity = 0
		}
	}
}

// maxAspects is KIP-708's bound on tags; each takes a byte of a nearness.
const maxAspects = 5

// nearness says how much p has in common with others of the copies of a task: for each aspect how many of them share its
// value, the most important aspect in the highest byte. 0 is best.
func (f *fleet) nearness(p int32, active int32, chosen []int32, except int32) uint64 {
	var n uint64
	for i := range f.aspects {
		v := f.sites[p].values[i]
		same := 0
		if f.sites[active].values[i] == v {
			same++
		}
		for _, q := range chosen {
			if q != except && f.sites[q].values[i] == v {
				same++
			}
		}
		n = n<<8 | uint64(min(same, math.MaxUint8))
	}
	return n
}

// followers are the processes that can have copies.
func (f *fleet) followers() []int32 {
	var ps []int32
	for p := range f.sites {
		if !f.sites[p].cannotFollow {
			ps = append(ps, int32(p))
		}
	}
	return slices.Clip(ps)
}
