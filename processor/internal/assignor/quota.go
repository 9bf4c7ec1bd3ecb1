package assignor

import "cmp"

// bin is what tasks are put into: a process, or a member of one.
type bin struct {
	load     int64 // summed weight of what it has been given so far
	capacity int64 // 0: it drains, and gets nothing while another bin has any
	quota    int   // tasks of the class in hand
	left     int   // part of the quota not yet filled
	claimed  int   // tasks of the class that it was promised, or else owns
	held     int   // tasks of the class without such a claim of which it has the best copy
}

// halfway is the load per capacity with half of one more task of the weight, as a fraction. Half, not all or none of it
// (Webster's method, not d'Hondt's): so a bin of capacity 10 gets what ten bins of capacity 1 get, rounded to the nearest,
// and the members of any two processes differ by one task at most.
func (b *bin) halfway(weight int64) (num, den int64) { return 2*b.load + weight, b.capacity }

// setQuotas hands out n slots of the given weight, each to the bin that has least before it. Among equals, those go first
// that have a claim not yet covered. That a claim counts as yes or no, not by how many, makes a placement repeat itself
// also while only some have let go of what they must; that claims decide ties only, makes a new bin take slots from the
// others without shifting any between them.
func setQuotas(bins []bin, n int, weight int64) {
	h := slotHeap{bins: bins, weight: weight, heap: make([]int32, len(bins))}
	for i := range bins {
		bins[i].quota = 0
		h.heap[i] = int32(i)
	}
	for i := len(h.heap)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
	for range n {
		b := &bins[h.heap[0]]
		b.quota++
		b.load += weight
		h.down(0)
	}
	for i := range bins {
		bins[i].left = bins[i].quota
	}
}

// slotHeap orders bins by their next slot; a plain binary heap, for the top changes in place n times.
type slotHeap struct {
	bins   []bin
	weight int64
	heap   []int32
}

func (h *slotHeap) less(i, j int32) bool {
	a, b := &h.bins[i], &h.bins[j]
	an, ad := a.halfway(h.weight)
	bn, bd := b.halfway(h.weight)
	c := cmp.Or(
		cmp.Compare(an*bd, bn*ad),
		-compareBool(a.claimed > a.quota, b.claimed > b.quota),
		-compareBool(a.claimed+a.held > a.quota, b.claimed+b.held > b.quota),
		cmp.Compare(i, j),
	)
	return c < 0
}

func (h *slotHeap) down(i int) {
	for {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < len(h.heap); c++ {
			if h.less(h.heap[c], h.heap[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.heap[i], h.heap[least] = h.heap[least], h.heap[i]
		i = least
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
