package history

import (
	"fmt"
	"strconv"
)

// judgeRest judges the rows at rest.
func (c *Checker) judgeRest() {
	asked := make(map[*row]struct{})
	for _, f := range c.finals {
		asked[f.row] = struct{}{}
		if f.row.split {
			c.report.Unordered++
			continue
		}
		c.report.checked(RuleLost)
		c.report.checked(RuleDoubled)
		if f.row.model == Counter {
			c.restOfCounter(f.row, f.is)
		} else {
			c.restOfRegister(f.row, f.is)
		}
	}
	for _, r := range c.rows {
		_, ok := asked[r]
		if !ok && r.sure+r.unknown > 0 || !ok && len(r.logs) > 0 {
			c.report.Unfinished++
		}
		if r.log != nil && r.model == Counter {
			if n, err := number(r.log); err != nil || n < r.sure || n > r.sure+r.unknown {
				c.violate(RuleLost, c.now, 0, "%s: the input log has %s; %d acknowledged, %d of unknown outcome", r, quote(r.log.Value), r.sure, r.unknown)
			}
		}
	}
}

func (c *Checker) restOfCounter(r *row, is *Row) {
	n, err := number(is)
	if err != nil {
		c.violate(RuleLost, c.now, 0, "%s at rest: %v", r, err)
		return
	}
	low, high := r.sure, r.sure+r.unknown
	if r.log != nil {
		if log, err := number(r.log); err == nil {
			low, high = log, log
		}
	}
	if top := r.seen.top(); top > low && r.log == nil {
		low = min(top, high)
	}
	want := fmt.Sprint(low)
	if high > low {
		want = fmt.Sprintf("%d to %d", low, high)
	}
	switch {
	case n < low:
		c.violate(RuleLost, c.now, 0, "%s at rest: %d at %s, want %s", r, n, is.Instance, want)
	case n > high:
		c.violate(RuleDoubled, c.now, 0, "%s at rest: %d at %s, want %s", r, n, is.Instance, want)
	}
}

func (c *Checker) restOfRegister(r *row, is *Row) {
	if r.log != nil {
		if is.Found != r.log.Found || is.Value != r.log.Value {
			c.violate(RuleLost, c.now, 0, "%s at rest: %s at %s, the input log has %s", r, is.show(), is.Instance, r.log.show())
		}
		return
	}
	var last int64 // the rank of the newest acknowledged write
	for _, l := range r.logs {
		if n := len(l.steps); n > 0 {
			last = l.steps[n-1].offset + 1
		}
	}
	rank := int64(0)
	if is.Found {
		rank = c.values.find(r, is.Value)
	}
	switch {
	case rank == valueForeign || rank == valueRefused:
		c.violate(RuleDoubled, c.now, 0, "%s at rest: %s at %s was never written", r, is.show(), is.Instance)
	case rank == valueUnknown || rank == valueOpen:
	case rank < last:
		c.violate(RuleLost, c.now, 0, "%s at rest: %s at %s, want what was written at %d", r, is.show(), is.Instance, last-1)
	}
}

// number is the value of a row of a counter.
func number(is *Row) (int64, error) {
	if !is.Found {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(is.Value), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is no counter", quote(is.Value))
	}
	return n, nil
}

func (r *Row) show() string {
	if !r.Found {
		return "not found"
	}
	return quote(r.Value)
}

// top is the highest rank of all.
func (s *stairs) top() int64 {
	if len(s.steps) == 0 {
		return 0
	}
	return s.steps[len(s.steps)-1].rank
}
