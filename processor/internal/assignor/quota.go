package assignor

import "cmp"

// bin is what tasks are put into: a process, or a member of one.
type bin struct {
	load     int64 // summed weight of what it has been given so far
	capacity int64 // > 0
	quota    int   // tasks of the class in hand
	left     int   // part of the quota not yet filled
	owned    int   // tasks of the class it has claims on, by strength of the claim:
	expected int
	held     int
}

// after is the load per capacity once one more task of the weight is in, as a fraction.
func (b *bin) after(weight int64) (num, den int64) { return b.load + weight, b.capacity }

// setQuotas hands out n slots of the given weight, each to the bin that will be least loaded with it. Among equals, the
// bin goes first that has claims not yet covered: that is what makes a placement repeat itself, and what makes a new
// bin take slots from the others without shifting any between them.
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
	an, ad := a.after(h.weight)
	bn, bd := b.after(h.weight)
	c := cmp.Or(
		cmp.Compare(an*bd, bn*ad),
		-cmp.Compare(max(a.owned-a.quota, 0), max(b.owned-b.quota, 0)),
		-cmp.Compare(max(a.owned+a.expected-a.quota, 0), max(b.owned+b.expected-b.quota, 0)),
		-cmp.Compare(max(a.owned+a.expected+a.held-a.quota, 0), max(b.owned+b.expected+b.held-b.quota, 0)),
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
