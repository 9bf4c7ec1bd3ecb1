// Package nearest finds what somebody meant who wrote a name that there is not.
package nearest

import "strings"

// Of returns the candidate that name was most likely meant to be, or "" when none is close.
func Of(name string, candidates []string) string {
	best, bestCost := "", max(2, len(name)/3)+1
	name = strings.ToLower(name)
	for _, c := range candidates {
		cost := Distance(name, strings.ToLower(c))
		if cost < bestCost {
			best, bestCost = c, cost
		}
	}
	return best
}

// Distance is the number of single-character edits, with a swap of neighbours as one (optimal string alignment).
func Distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
