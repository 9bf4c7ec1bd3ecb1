package declared

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
)

// join understands the join i, of what cur has come to, and returns the step behind it.
func (m *model) join(r *relation, cur *step, i int) *step {
	j := &join{Join: &r.Joins[i]}
	part := fmt.Sprintf("joins[%d]", i)
	if j.with = m.byName[j.With]; j.with == nil || j.with.schema == nil {
		return nil
	}
	if !m.joinable(r, j, part) || cur.schema == nil {
		return nil
	}
	r.joins = append(r.joins, j)
	if !r.own && cur.left == nil && i == 0 {
		var err error
		if cur.left, err = joinedShape(cur.schema); err != nil {
			m.add(r, part, err)
			return nil
		}
		r.layout = objectLayout(r.layout, cur.schema)
		if r.from.Kind != Table { // what is evaluated before the join is the object
			cur.schema = m.schema(r, r.layout)
		}
	}
	m.on(r, cur, j, part)
	name := cmp.Or(j.As, j.With)
	next := r.newStep()
	j.side = &side{name: name, keyFrom: r.keyFrom(j)}
	if !j.with.own {
		var err error
		if j.side.shape, err = joinedShape(j.with.schema); err != nil {
			m.add(r, part, err)
			return nil
		}
	}
	switch {
	case r.from.Kind != Table, r.foreign(j) && i > 0: // cur has put the sides before together
		next.sides = []*side{j.side}
	default:
		next.left, next.sides = cur.left, append(slices.Clone(cur.sides), j.side)
		cur.left = nil
	}
	if r.foreign(j) {
		cur.tombstones = true // its rows are a table's
	}
	r.layout = joinedLayout(r.layout, j, name)
	if next.schema = m.schema(r, r.layout); next.schema == nil {
		return nil
	}
	r.own = true
	j.next = next
	return next
}

// joinedShape is that of a relation's values; names with dots would be members of members.
func joinedShape(s *expr.Schema) (*shape, error) {
	for _, c := range s.Columns() {
		if strings.Contains(c.Name, ".") {
			return nil, errors.New("column " + c.Name + " has a dot: name it without one, and say field: " + c.Name)
		}
	}
	return newShape(s)
}

// objectLayout describes the objects that a shape writes.
func objectLayout(l expr.Layout, s *expr.Schema) expr.Layout {
	columns := s.Columns()
	for i := range columns {
		columns[i].Field = ""
	}
	return expr.Layout{Format: expr.JSONObject, Columns: columns, KeyFormat: l.KeyFormat, KeyOptional: l.KeyOptional}
}

// joinedLayout has the columns of both sides.
func joinedLayout(l expr.Layout, j *join, name string) expr.Layout {
	columns := slices.Clone(l.Columns)
	if j.Kind == Outer {
		for i := range columns {
			columns[i].Optional = true
		}
	}
	for _, c := range j.with.schema.Columns() {
		columns = append(columns, expr.Column{Name: name + "." + c.Name, Type: c.Type, Optional: c.Optional || j.Kind == Left || j.Kind == Outer})
	}
	if l := j.with.layout; j.hasKey() {
		t, _ := expr.FormatType(l.KeyFormat)
		columns = append(columns, expr.Column{Name: name + "." + keyColumn, Type: t, Optional: j.Kind != Inner || l.KeyOptional || t == expr.JSON})
	}
	l.Columns = columns
	return l
}

// joinable tells whether two relations can be joined so.
func (m *model) joinable(r *relation, j *join, part string) bool {
	before := len(m.errs)
	bad := func(at, hint, format string, args ...any) { m.bad(r, part+at, j.Place, hint, format, args...) }
	streams := r.from.Kind == Stream && j.with.Kind == Stream
	switch j.Kind {
	case "":
		j.Kind = Inner
	case Inner, Left:
	case Outer:
		if !streams && (r.from.Kind != Table || j.with.Kind != Table || j.On != nil) {
			bad(".kind", "write left", "outer is of two streams, or two tables by their keys")
		}
	default:
		bad(".kind", "write inner, left or outer", "%q is no kind of join", j.Kind)
	}
	switch {
	case j.with == r:
		bad(".with", "", "a relation is not joined with itself")
	case j.with.windowed:
		bad(".with", "make a stream of it first", "%s has windows, which are joined with nothing", j.With)
	case r.from.Kind == Table && j.with.Kind != Table:
		bad(".with", "make a stream of "+r.From+" first", "a table is joined with tables only, and %s is a %s", j.With, j.with.Kind)
	case streams && j.Before <= 0 && j.After <= 0:
		bad("", "write within: 5m, or before and after", "two streams are joined where their records are close in time")
	case !streams && (j.Before != 0 || j.After != 0 || j.OtherOn != nil):
		bad("", "", "within, before, after and other_on are of two streams")
	case !streams && j.Grace != 0 && j.with.Source.History == 0:
		bad(".grace", "", "grace is of two streams, and of a table that has versioned.history")
	case j.Before < 0 || j.After < 0 || j.Grace < 0:
		bad("", "", "negative")
	}
	if strings.ContainsAny(cmp.Or(j.As, j.With), ".-") {
		bad(".as", "give a name of letters, digits and _ with as", "%q cannot be a prefix of columns", cmp.Or(j.As, j.With))
	}
	for _, c := range r.layout.Columns {
		if name := cmp.Or(j.As, j.With); c.Name == name || strings.HasPrefix(c.Name, name+".") {
			bad(".as", "give another name with as", "there is a column %s already", c.Name)
			break
		}
	}
	return len(m.errs) == before
}

// on compiles what must be equal.
func (m *model) on(r *relation, cur *step, j *join, part string) {
	format := cmp.Or(j.with.layout.KeyFormat, serde.FormatBytes)
	if j.OtherOn != nil {
		j.other = &step{schema: j.with.schema}
		p, err := expr.Compile(*j.OtherOn, j.with.schema, expr.Any)
		if err != nil {
			m.add(r, part+".other_on", err)
			return
		}
		format = formatOf(p.Type())
		j.other.key, err = expr.CompileOutput(*j.OtherOn, j.with.schema, format)
		m.add(r, part+".other_on", err)
	}
	if j.On == nil {
		if mine := cmp.Or(r.layout.KeyFormat, serde.FormatBytes); mine != format {
			m.bad(r, part, j.Place, "say with on what equals the key of "+j.With, "keys are written as %s, those of %s as %s", mine, j.With, format)
		}
		return
	}
	var err error
	if cur.key, err = expr.CompileOutput(*j.On, cur.schema, format); err != nil {
		m.add(r, part+".on", err)
		return
	}
	cur.aside = j.with.Kind == GlobalTable || r.foreign(j)
	if !cur.aside {
		r.layout.KeyFormat, r.layout.KeyOptional = format, false
	}
}
