package accumulate

import (
	"math"
	"time"
)

// State is what is kept of the records of one group. It belongs to one goroutine.
type State struct {
	plan *Plan
	// rows is how many records it is of. When the plan does not count them: 1 for any number above 0.
	rows  int64
	cells []cell
	// fromResult says that it was made of a result: how many records have no value is not known.
	fromResult bool
}

// cell is what is kept for one function. Zero: no value was there.
type cell struct {
	// n is how many values that are not null there were; of functions that do not count them: 1 for any number above 0.
	n int64
	// value of sum, min, max, first, latest; avg of double has its sum in value.f, avg of int in high and value.n, as 128 bits.
	value value
	high  int64
	// at is the time of the value of first and latest, in Unix milliseconds.
	at int64
	// top of top_k.
	top top
	// distinct and quantile.
	distinct distinct
	quantile quantile
}

// Empty tells that there are no records in it: none were added, or all were taken out again.
func (s *State) Empty() bool { return s.rows == 0 }

// Add adds a record with its timestamp, which counts in milliseconds, and one input for each function of the plan. Strings are kept,
// bytes are copied. An error is an [*Error], with which the state is as it was, or [ErrOtherPlan].
func (s *State) Add(at time.Time, in []Input) error {
	if len(in) != len(s.cells) {
		return ErrOtherPlan
	}
	rows := int64(1)
	if s.plan.countsRows {
		if s.rows == math.MaxInt64 {
			return &Error{Reason: ReasonArithmetic}
		}
		rows = s.rows + 1
	}
	for i := range in {
		c := &s.plan.columns[i]
		if reason := c.check(&s.cells[i], in[i]); reason != "" {
			return &Error{Column: c.name, Reason: reason}
		}
	}
	s.rows = rows
	for i := range in {
		c := &s.plan.columns[i]
		if c.skips(in[i]) {
			continue
		}
		c.add(&s.cells[i], at.UnixMilli(), in[i])
	}
	return nil
}

// Subtract takes a record out that was added with the same inputs. An error is an [*Error], with which the state is as it was,
// [ErrNotReversible], or [ErrOtherPlan].
func (s *State) Subtract(_ time.Time, in []Input) error {
	switch {
	case !s.plan.reversible || s.fromResult:
		return ErrNotReversible
	case len(in) != len(s.cells):
		return ErrOtherPlan
	case s.rows < 1:
		return &Error{Reason: ReasonAbsent}
	}
	for i := range in {
		c := &s.plan.columns[i]
		if reason := c.checkSubtract(&s.cells[i], in[i]); reason != "" {
			return &Error{Column: c.name, Reason: reason}
		}
	}
	s.rows--
	for i := range in {
		c := &s.plan.columns[i]
		if c.skips(in[i]) {
			continue
		}
		c.subtract(&s.cells[i], in[i].Value)
	}
	return nil
}

// skips tells that a record has nothing for a function: a value that is null, an order that is, or that it counts records.
func (c *column) skips(in Input) bool {
	switch {
	case c.kind == 0:
		return true
	case c.fn == fnTopK && null(in.By):
		return true
	}
	return null(in.Value)
}

// check returns why a record cannot be added; empty when it can.
func (c *column) check(x *cell, in Input) (reason string) {
	if c.skips(in) {
		return ""
	}
	if c.fn != fnCount {
		if reason := c.kind.check(in.Value); reason != "" {
			return reason
		}
	}
	switch c.fn {
	case fnCount, fnAvg, fnSum, fnQuantile:
		if x.n == math.MaxInt64 {
			return ReasonArithmetic
		}
	case fnTopK:
		return x.top.check(in.By)
	default: // any value will do
	}
	if c.fn != fnSum && c.fn != fnAvg {
		return ""
	}
	if c.kind == kindDouble {
		if f, _ := in.Value.(float64); !finite(x.value.f + f) {
			return ReasonArithmetic
		}
		return ""
	}
	if c.fn == fnSum {
		n, _ := in.Value.(int64)
		if _, ok := addInt(x.value.n, n); !ok {
			return ReasonArithmetic
		}
	}
	return ""
}

// add adds a record that was checked and has a value.
func (c *column) add(x *cell, at int64, in Input) {
	switch c.fn {
	case fnCount:
		x.n++
	case fnSum:
		x.n++
		x.value.n += valueOf(in.Value).n
		x.value.f += valueOf(in.Value).f
	case fnAvg:
		x.n++
		x.addWide(valueOf(in.Value))
	case fnMin, fnMax:
		v := valueOf(in.Value)
		if x.n == 0 || c.better(v, x.value) {
			x.n, x.value = 1, v
		}
	case fnFirst:
		if x.n == 0 || at < x.at {
			x.n, x.value, x.at = 1, valueOf(in.Value), at
		}
	case fnLatest:
		if x.n == 0 || at >= x.at {
			x.n, x.value, x.at = 1, valueOf(in.Value), at
		}
	case fnTopK:
		x.n = 1
		x.top.add(c, valueOf(in.Value), in.By)
	case fnDistinct:
		x.n = 1
		x.distinct.add(c.kind.hash(in.Value))
	case fnQuantile:
		x.n++
		x.quantile.add(number(in.Value))
	}
}

// better tells that a is what min or max keeps of a and b.
func (c *column) better(a, b value) bool {
	if c.fn == fnMin {
		return c.kind.compare(a, b) < 0
	}
	return c.kind.compare(a, b) > 0
}

// checkSubtract returns why a record cannot be taken out; empty when it can.
func (c *column) checkSubtract(x *cell, in Input) (reason string) {
	if c.skips(in) {
		return ""
	}
	if c.fn != fnCount {
		if reason := c.kind.check(in.Value); reason != "" {
			return reason
		}
	}
	if x.n < 1 {
		return ReasonAbsent
	}
	switch {
	case c.fn == fnCount || x.n == 1: // the sum begins anew
	case c.kind == kindDouble:
		if f, _ := in.Value.(float64); !finite(x.value.f - f) {
			return ReasonArithmetic
		}
	case c.fn == fnSum:
		n, _ := in.Value.(int64)
		if _, ok := subtractInt(x.value.n, n); !ok {
			return ReasonArithmetic
		}
	}
	return ""
}

// subtract takes out a value that was checked.
func (c *column) subtract(x *cell, v any) {
	if x.n == 1 {
		*x = cell{} // what rounding has left of a sum of doubles goes, too
		return
	}
	x.n--
	switch c.fn {
	case fnSum:
		x.value.n -= valueOf(v).n
		x.value.f -= valueOf(v).f
	case fnAvg:
		x.subtractWide(valueOf(v))
	default: // count is counted, and the others take nothing out
	}
}

// number is the value of an int or a double.
func number(x any) float64 {
	if n, ok := x.(int64); ok {
		return float64(n)
	}
	f, _ := x.(float64)
	return f
}
