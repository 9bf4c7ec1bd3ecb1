package windows

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// Sliding is windows made by records (upstream's SlidingWindows): [start, start+Difference], one that ends with each record
// and one that begins behind it, so that each set of records that are at most Difference apart is what some window holds.
// Windows that would begin before 0 begin there, and empty ones are not kept.
type Sliding struct {
	Difference, Grace time.Duration
}

// Kept is a window of a key that a store has.
type Kept struct {
	Start int64
	// Latest is the greatest time of its records.
	Latest int64
}

// None is the Base of a window that begins empty.
const None = -1

// Step is a window to write.
type Step struct {
	Start int64
	// Base is the kept window whose value this one begins with, by index, as it was before the record; or None.
	Base int
	// Latest is the greatest time of its records.
	Latest int64
	// Counts says whether the record is in it; else the window shows what was there already.
	Counts bool
}

// Validate reports everything that is wrong, joined.
func (w Sliding) Validate() error {
	return errors.Join(whole("difference", w.Difference, time.Millisecond), whole("grace", w.Grace, 0))
}

// Near is where to look for the kept windows that a record of time t has to do with, by their starts, both inclusive.
func (w Sliding) Near(t int64) (from, to int64) {
	return max(0, t-2*w.Difference.Milliseconds()-1), later(t, time.Millisecond)
}

// Late reports whether a record is of no window that is still open.
func (w Sliding) Late(t, streamTime int64) bool {
	return t < streamTime-w.Grace.Milliseconds()-w.Difference.Milliseconds()
}

// Closed reports whether the window that begins at start is closed.
func (w Sliding) Closed(start, streamTime int64) bool { return w.Late(start, streamTime) }

// Plan returns the windows to write for a record of time t, those that are closed apart. kept are the windows of [Sliding.Near],
// ascending.
//
// What a window that is not kept would hold is found in the one before it. The records in [s, s+Difference] change only where
// s passes one of them (it leaves) or comes as near as Difference to one (it enters), and at each of these places a window
// is kept, unless it is empty. So a window at s holds what the last kept one before it holds, if any record of that is still
// in it at s; and nothing otherwise.
func (w Sliding) Plan(kept []Kept, t, streamTime int64) []Step {
	return w.AppendPlan(nil, kept, t, streamTime)
}

// AppendPlan appends the windows of [Sliding.Plan] to steps, for callers who plan often and keep a buffer.
func (w Sliding) AppendPlan(steps []Step, kept []Kept, t, streamTime int64) []Step {
	add := func(s Step) {
		if !w.Closed(s.Start, streamTime) {
			steps = append(steps, s)
		}
	}
	have := func(start int64) bool {
		_, ok := slices.BinarySearchFunc(kept, start, func(k Kept, start int64) int { return cmp.Compare(k.Start, start) })
		return ok
	}
	previous := int64(None) // the last record before this one, where it matters
	for i, k := range kept {
		if k.Latest < t {
			previous = max(previous, k.Latest)
		}
		if k.Start <= t && later(k.Start, w.Difference) >= t {
			add(Step{Start: k.Start, Base: i, Latest: max(k.Latest, t), Counts: true})
		}
	}
	left := max(0, t-w.Difference.Milliseconds())
	if !have(left) {
		base, latest := holds(kept, left), t
		if base != None {
			latest = max(latest, kept[base].Latest)
		}
		add(Step{Start: left, Base: base, Latest: latest, Counts: true})
	}
	// The window behind the previous record was empty, and this record is the first in it.
	if behind := previous + 1; behind > max(0, left) && behind <= t && !have(behind) {
		add(Step{Start: behind, Base: None, Latest: t, Counts: true})
	}
	// What came behind this record before it has a window without it.
	if right := later(t, time.Millisecond); right > t && !have(right) {
		if base := holds(kept, right); base != None {
			add(Step{Start: right, Base: base, Latest: kept[base].Latest})
		}
	}
	return steps
}

// holds is the kept window whose records are those of a window that would begin at start, or None when it would be empty.
func holds(kept []Kept, start int64) int {
	for i, k := range slices.Backward(kept) {
		if k.Start <= start {
			if k.Latest >= start {
				return i
			}
			return None
		}
	}
	return None
}

// MinRetention is how long a store must keep windows at least: a record looks back so far (upstream's rule).
func (w Sliding) MinRetention() time.Duration { return 2*w.Difference + w.Grace }
