package accumulate

import (
	"strconv"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// AppendResult appends the results as a JSON object: the columns in their order, without those that are null. The only error is
// [ErrOtherPlan].
func (p *Plan) AppendResult(dst []byte, s *State) ([]byte, error) {
	if s.plan != p {
		return nil, ErrOtherPlan
	}
	dst = append(dst, '{')
	open := len(dst)
	for i := range p.columns {
		c, x := &p.columns[i], &s.cells[i]
		if x.n == 0 && c.fn != fnCount && c.fn != fnDistinct {
			continue
		}
		if len(dst) > open {
			dst = append(dst, ',')
		}
		dst = append(dst, c.member...)
		dst = c.appendResult(dst, s, x)
	}
	return append(dst, '}'), nil
}

// appendResult appends a result that is not null.
func (c *column) appendResult(dst []byte, s *State, x *cell) []byte {
	switch c.fn {
	case fnCount:
		if c.kind == 0 {
			return strconv.AppendInt(dst, s.rows, 10)
		}
		return strconv.AppendInt(dst, x.n, 10)
	case fnAvg:
		return decode.AppendNumber(dst, c.mean(x))
	case fnTopK:
		return x.top.appendJSON(dst, c)
	case fnDistinct:
		return strconv.AppendInt(dst, x.distinct.estimate(), 10)
	case fnQuantile:
		return decode.AppendNumber(dst, x.quantile.at(c.q, x.n))
	default:
		return c.kind.appendJSON(dst, x.value)
	}
}
