package declared

import (
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/processor/expr"
)

// narrow leaves out of joined records what nobody looks at: keys of the other sides, and columns. Where nothing is selected, all is seen.
func (m *model) narrow(r *relation) {
	visible := len(r.Select) == 0 && r.Aggregate == nil
	for i, j := range r.joins {
		var later []*step
		for _, k := range r.joins[i:] {
			later = append(later, k.next)
		}
		if !j.hasKey() || !visible && !used(j.side.name+"."+keyColumn, later...) {
			continue
		}
		var err error
		j.side.key, err = keyShape(j.with.layout.KeyFormat)
		m.add(r, fmt.Sprintf("joins[%d]", i), err)
	}
	if visible || len(r.joins) == 0 {
		return
	}
	// What becomes of a record in the last step is in no store and no topic: a later version of the declaration, which looks at more, finds it.
	narrowed := func(sh *shape, prefix string, steps ...*step) *shape {
		if sh == nil {
			return nil
		}
		var names []string
		for _, c := range sh.schema.Columns() {
			if used(prefix+c.Name, steps...) {
				names = append(names, c.Name)
			}
		}
		sh, err := newShapeOf(sh.schema, names...)
		m.add(r, "joins", err)
		return sh
	}
	for _, s := range r.last.sides {
		s.shape = narrowed(s.shape, s.name+".", r.last)
	}
	r.last.left = narrowed(r.last.left, "", r.last)
	if len(r.joins) == 1 && r.from.Kind == Stream && !r.keepsLeft() {
		r.first.left = narrowed(r.first.left, "", r.first, r.last)
	}
}

// keepsLeft tells whether the records of a stream are in a store or a topic before its only join.
func (r *relation) keepsLeft() bool {
	switch j := r.joins[0]; j.with.Kind {
	case GlobalTable:
		return false
	case Table:
		return j.On != nil || j.Grace > 0 || r.from.rekeyed()
	default:
		return true
	}
}

// rekeyed tells whether a stream may have keys that are not those of its topic's partitions.
func (r *relation) rekeyed() bool {
	if r.Kind != Stream || r.Topic != "" {
		return false
	}
	byOther := slices.ContainsFunc(r.joins, func(j *join) bool { return j.On != nil })
	return r.Key != nil || byOther || r.from.windowed || r.from.rekeyed()
}

// used tells whether a program of the steps looks at a column.
func used(column string, steps ...*step) bool {
	return slices.ContainsFunc(steps, func(s *step) bool {
		return slices.ContainsFunc(s.programs(), func(p *expr.Program) bool { return p.Uses(column) })
	})
}
