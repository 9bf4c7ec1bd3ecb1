package accumulate

import "slices"

// Merge returns the state of the records of both, as if those of a had been added first and then those of b: of equal times, first
// is a's and latest is b's. Of a value that both have in top_k it keeps the greater By, as which came last is not known. Sums of
// doubles are added as sums: the last digit may differ. a and b stay as they are. An error is an [*Error], or [ErrOtherPlan].
func (p *Plan) Merge(a, b *State) (*State, error) {
	if a.plan != p || b.plan != p {
		return nil, ErrOtherPlan
	}
	s := p.New()
	s.fromResult = a.fromResult || b.fromResult
	var ok bool
	switch s.rows, ok = addInt(a.rows, b.rows); {
	case !p.countsRows:
		s.rows = max(a.rows, b.rows)
	case !ok:
		return nil, &Error{Reason: ReasonArithmetic}
	}
	for i := range s.cells {
		c, x := &p.columns[i], &s.cells[i]
		*x = a.cells[i].clone()
		if b.cells[i].n == 0 {
			continue
		}
		if reason := c.merge(x, &b.cells[i]); reason != "" {
			return nil, &Error{Column: c.name, Reason: reason}
		}
	}
	return s, nil
}

// merge takes over what b has, which is not nothing.
func (c *column) merge(x, b *cell) (reason string) {
	n, ok := addInt(x.n, b.n)
	switch c.fn {
	case fnCount, fnSum, fnAvg, fnQuantile:
		if !ok {
			return ReasonArithmetic
		}
	default:
		n = 1
	}
	empty := x.n == 0
	x.n = n
	switch c.fn {
	case fnSum:
		sum, ok := addInt(x.value.n, b.value.n)
		x.value.n, x.value.f = sum, x.value.f+b.value.f
		if !ok || !finite(x.value.f) {
			return ReasonArithmetic
		}
	case fnAvg:
		x.mergeWide(b)
		if !finite(x.value.f) {
			return ReasonArithmetic
		}
	case fnMin, fnMax:
		if empty || c.better(b.value, x.value) {
			x.value = b.value
		}
	case fnFirst:
		if empty || b.at < x.at {
			x.value, x.at = b.value, b.at
		}
	case fnLatest:
		if empty || b.at >= x.at {
			x.value, x.at = b.value, b.at
		}
	case fnTopK:
		return x.top.merge(c, &b.top)
	case fnDistinct:
		x.distinct.merge(&b.distinct)
	case fnQuantile:
		x.quantile.merge(&b.quantile)
	default: // count is counted
	}
	return ""
}

// clone returns a copy that shares nothing with x that changes.
func (x *cell) clone() cell {
	c := *x
	c.top.entries = slices.Clone(x.top.entries)
	c.distinct.exact = slices.Clone(x.distinct.exact)
	c.distinct.sparse = slices.Clone(x.distinct.sparse)
	c.distinct.dense = slices.Clone(x.distinct.dense)
	c.quantile.bins = slices.Clone(x.quantile.bins)
	return c
}
