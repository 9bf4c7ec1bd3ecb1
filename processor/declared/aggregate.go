package declared

import (
	"bytes"
	"errors"
	"strings"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/internal/accumulate"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// grouping is an aggregate, understood.
type grouping struct {
	plan   *accumulate.Plan
	inputs *inputs
	// separate says that the state is in a store of its own.
	separate bool
}

// aggregate understands the groups of r, which s makes of what it is made of.
func (m *model) aggregate(r *relation, s *step) {
	a := r.Aggregate
	g := &grouping{inputs: &inputs{}}
	var functions []accumulate.Function
	before := len(m.errs)
	for _, c := range a.Columns {
		functions = append(functions, m.function(r, s, g, c))
	}
	m.window(r)
	m.by(r, s)
	if len(m.errs) > before {
		return
	}
	var err error
	if g.plan, err = accumulate.NewPlan(functions); err != nil {
		m.functions(r, err)
		return
	}
	ofTable := r.from.Kind == Table && !r.from.windowed
	if ofTable && !g.plan.Reversible() {
		m.bad(r, "aggregate", r.Place, "aggregate a stream made from "+r.From+", or use count, sum and avg",
			"%s is a table, whose rows change and go away: only count, sum and avg can take them out again", r.From)
		return
	}
	g.separate = ofTable || !g.plan.ResultIsState()
	s.inputs, s.tombstones = g.inputs, ofTable
	r.groups = g
	r.windowed, r.session = a.Window != (Window{}), a.Window.Session > 0
	r.own = true
	r.layout = expr.Layout{Format: expr.JSONObject, KeyFormat: r.layout.KeyFormat}
	for _, c := range g.plan.Columns() {
		t, err := expr.ParseType(c.Type)
		m.add(r, "aggregate", err)
		r.layout.Columns = append(r.layout.Columns, expr.Column{Name: c.Name, Type: t, Optional: true})
	}
	r.schema = m.schema(r, r.layout)
	if r.Sink != nil {
		m.sink(r, s)
	}
}

// function compiles a column.
func (m *model) function(r *relation, s *step, g *grouping, c AggregateColumn) accumulate.Function {
	f := accumulate.Function{Name: c.Name, Kind: string(c.Function), Of: c.Value != nil, K: c.K, Q: c.Q}
	part := "aggregate." + c.Name
	var in input
	var err error
	switch {
	case c.Value != nil:
		if in.value, err = expr.Compile(*c.Value, s.schema, expr.JSON); err != nil {
			m.add(r, part, err)
		} else {
			f.Type = in.value.Type().String()
		}
	case c.Function != Count:
		m.bad(r, part, c.Place, "write {"+string(c.Function)+": expression}", "%s needs what it is about", c.Function)
	}
	switch {
	case c.Function == TopK && c.By == nil:
		m.bad(r, part, c.Place, "write {top_k: page, by: clicks, k: 10}", "top_k needs by, which it compares")
	case c.Function != TopK && c.By != nil:
		m.bad(r, part+".by", c.Place, "", "only top_k has by")
	case c.Function != TopK && c.K != 0:
		m.bad(r, part+".k", c.Place, "", "only top_k has k")
	case c.Function != Quantile && c.Q != 0:
		m.bad(r, part+".q", c.Place, "", "only quantile has q")
	case c.By != nil:
		if in.by, err = expr.Compile(*c.By, s.schema, expr.Any); err != nil {
			m.add(r, part+".by", err)
			break
		}
		if t := in.by.Type(); t != expr.Int && t != expr.Double && t != expr.Timestamp && t != expr.Duration {
			m.bad(r, part+".by", c.Place, "int, double, timestamp and duration do", "%s cannot be compared here", t)
		}
	}
	if strings.Contains(c.Name, ".") {
		m.bad(r, part, c.Place, "write _", "the name of a column has no dot")
	}
	g.inputs.columns = append(g.inputs.columns, in)
	return f
}

// functions places what the plan finds wrong.
func (m *model) functions(r *relation, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			m.functions(r, e)
		}
		return
	}
	e, ok := errors.AsType[*accumulate.FunctionError](err)
	if !ok || e.Name == "" {
		m.bad(r, "aggregate", r.Place, "", "%s", err)
		return
	}
	m.bad(r, "aggregate."+e.Name, r.Aggregate.Columns[e.Index].Place, e.Hint, "%s", e.Reason)
}

// by compiles the key of groups.
func (m *model) by(r *relation, s *step) {
	a := r.Aggregate
	if a.By == nil {
		if a.KeyFormat != "" {
			m.bad(r, "key_format", r.Place, "", "the key stays as it is, without group_by")
		}
		if r.from.Kind == Table && !r.from.windowed {
			m.bad(r, "group_by", r.Place, "say what groups are made by", "a table has one row per key: without group_by each is a group of its own")
		}
		return
	}
	format := a.KeyFormat
	if format == "" {
		p, err := expr.Compile(*a.By, s.schema, expr.Any)
		if err != nil {
			m.add(r, "group_by", err)
			return
		}
		format = formatOf(p.Type())
	}
	var err error
	s.key, err = expr.CompileOutput(*a.By, s.schema, format)
	m.add(r, "group_by", err)
	s.aside = r.from.Kind == Table && !r.from.windowed
	r.layout.KeyFormat = format
}

// window checks the windows of an aggregate.
func (m *model) window(r *relation) {
	w := r.Aggregate.Window
	n := 0
	for _, d := range []bool{w.Tumbling != 0, w.Hopping != 0, w.Sliding != 0, w.Session != 0} {
		if d {
			n++
		}
	}
	bad := func(part, hint, reason string) { m.bad(r, part, r.Place, hint, "%s", reason) }
	switch {
	case n > 1:
		bad("window", "", "give one of tumbling, hopping, sliding and session")
		return
	case n == 0 && (w.Advance != 0 || w.Grace != 0):
		bad("window", "give one of tumbling, hopping, sliding and session", "advance and grace are of windows")
		return
	case n == 0 && r.Aggregate.OnClose:
		bad("emit", "", "there are no windows to be closed")
		return
	case n == 0 && r.Store.Retention != 0:
		bad("store.retention", "", "there are no windows to be kept")
		return
	case n == 0:
		return
	case (w.Advance != 0) != (w.Hopping != 0):
		bad("window.advance", "", "hopping and advance go together")
		return
	case r.from.Kind == Table && !r.from.windowed:
		bad("window", "make a stream of "+r.From+" first", "the rows of a table are in no windows")
		return
	}
	var err error
	switch {
	case w.Session != 0:
		err = windows.Session{Gap: w.Session, Grace: w.Grace}.Validate()
	case w.Sliding != 0:
		err = windows.Sliding{Difference: w.Sliding, Grace: w.Grace}.Validate()
	default:
		err = w.grid().Validate()
	}
	if err != nil {
		bad("window", "", err.Error())
	}
}

// grid are windows of one size.
func (w Window) grid() windows.Time {
	if w.Hopping != 0 {
		return windows.Hopping(w.Hopping, w.Advance, w.Grace)
	}
	return windows.Tumbling(w.Tumbling, w.Grace)
}

// cell is the state of a group on its way through an aggregation, and what has gone wrong with it: functions that add have no error, what
// writes the result has.
type cell struct {
	state *accumulate.State
	// stored is what it was read from, until somebody asks for the state: many are only handed on. Only of groups that store what they answer with.
	stored []byte
	err    error
}

// states is how states are stored: as what they answer with, if that is enough.
func (g *grouping) states() serde.Serde[*cell] {
	if g.separate {
		return serde.New("aggregate", func(dst []byte, c *cell) ([]byte, error) {
			if c.err != nil {
				return nil, c.err
			}
			return g.plan.AppendState(dst, c.state), nil
		}, func(b []byte) (*cell, error) {
			s, err := g.plan.DecodeState(b)
			return &cell{state: s}, err
		})
	}
	return serde.New("aggregate", func(dst []byte, c *cell) ([]byte, error) {
		switch {
		case c.err != nil:
			return nil, c.err
		case c.stored != nil:
			return append(dst, c.stored...), nil
		default:
			return g.plan.AppendResult(dst, c.state)
		}
	}, func(b []byte) (*cell, error) { return &cell{stored: b}, nil }).As(serde.FormatJSON)
}

// open makes the state of what was read.
func (g *grouping) open(c *cell) {
	if c.stored != nil {
		c.state, c.err = g.plan.DecodeResult(c.stored)
		c.stored = nil
	}
}

// result is what a group answers with.
func (g *grouping) result(c *cell) []byte {
	switch {
	case c == nil:
		return nil
	case c.stored != nil:
		return bytes.Clone(c.stored)
	}
	b, err := g.plan.AppendResult(nil, c.state)
	if err != nil { // of another plan: there is none
		return nil
	}
	return b
}

func (g *grouping) initial() *cell { return &cell{state: g.plan.New()} }

// fewColumns is how many inputs need no memory of their own.
const fewColumns = 8

// add adds what a step has made of a record.
func (g *grouping) add(_, v []byte, c *cell) *cell {
	if g.open(c); c.err != nil {
		return c
	}
	var few [fewColumns]accumulate.Input
	in, at, err := g.inputs.decode(v, few[:0])
	if err == nil {
		err = c.state.Add(at, in)
	}
	c.err = err
	return c
}

// subtract takes it out again; a group without rows is none.
func (g *grouping) subtract(_, v []byte, c *cell) *cell {
	if g.open(c); c.err != nil {
		return c
	}
	var few [fewColumns]accumulate.Input
	in, at, err := g.inputs.decode(v, few[:0])
	if err == nil {
		err = c.state.Subtract(at, in)
	}
	if c.err = err; err == nil && c.state.Empty() {
		return nil
	}
	return c
}

func (g *grouping) merge(_ []byte, a, b *cell) *cell {
	g.open(a)
	g.open(b)
	if err := errors.Join(a.err, b.err); err != nil {
		return &cell{err: err}
	}
	s, err := g.plan.Merge(a.state, b.state)
	return &cell{state: s, err: err}
}
