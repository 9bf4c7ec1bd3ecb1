package declared

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

var errNoRow = errors.New("declared: no row for the timestamp")

// milliseconds is an instant as a record's timestamp.
func milliseconds(v any) (int64, error) {
	t, ok := v.(time.Time)
	if !ok {
		return 0, &processor.DeserializationError{Reason: "invalid timestamp", Err: errors.New("the record has no time")}
	}
	return t.UnixMilli(), nil
}

// relation understands one, whose sources are understood.
func (m *model) relation(r *relation) {
	switch r.Kind {
	case Stream, Table, GlobalTable:
	default:
		m.bad(r, "kind", r.Place, "write stream, table or global_table", "%q is no kind", r.Kind)
		return
	}
	switch {
	case (r.Topic == "") == (r.From == ""):
		m.bad(r, "", r.Place, "", "give either topic or from")
	case r.Topic != "":
		m.source(r)
	default:
		m.derived(r)
	}
}

// source understands a relation that is read from a topic.
func (m *model) source(r *relation) {
	m.onlyRead(r)
	if r.Source.History != 0 && r.Kind != Table {
		m.bad(r, "versioned.history", r.Place, "", "only a table has versions")
	}
	r.layout = r.Source.Layout
	var err error
	if r.schema, err = expr.NewSchema(r.layout); err != nil {
		m.add(r, "", err)
		return
	}
	if r.Source.Timestamp == nil {
		return
	}
	p, err := expr.Compile(*r.Source.Timestamp, r.schema, expr.Timestamp)
	if err != nil {
		m.add(r, "timestamp", err)
		return
	}
	r.timing = newProgram(p, r.schema)
}

// onlyRead refuses what is done with a relation that is read from a topic: that is for another one, which is made of it.
func (m *model) onlyRead(r *relation) {
	kind, to := "", "..."
	if r.Kind == Table {
		kind = "kind: table, "
	}
	if r.Sink != nil {
		to = r.Sink.Topic
	}
	for _, p := range []struct {
		part, value string
		given       bool
	}{
		{"joins", "[...]", len(r.Joins) > 0},
		{"each", "{...}", r.Each != nil},
		{"where", "...", r.Where != nil},
		{"select", "{...}", len(r.Select) > 0},
		{"key", "...", r.Key != nil},
		{"aggregate", "{...}", r.Aggregate != nil},
		{"suppress", "{...}", r.Suppress != nil},
		{"to", to, r.Sink != nil},
	} {
		if !p.given {
			continue
		}
		hint := fmt.Sprintf("write a relation of its own: {from: %s, %s%s: %s}", r.Name, kind, p.part, p.value)
		if r.Kind == GlobalTable {
			hint = "declare a table of the topic, and " + p.part + " of one made from that"
		}
		m.bad(r, p.part, r.Place, hint, "a relation that is read from a topic has no %s", p.part)
	}
}

// derived understands a relation that is made of another one.
func (m *model) derived(r *relation) {
	r.from = m.find(r, "from", r.Place, r.From)
	for i := range r.Joins {
		m.find(r, fmt.Sprintf("joins[%d].with", i), r.Joins[i].Place, r.Joins[i].With)
	}
	if r.from == nil || r.from.schema == nil || !m.fits(r) {
		return
	}
	r.layout, r.own = r.from.layout, r.from.own
	if r.from.windowed {
		r.layout, r.own = withWindow(r.layout), true
	}
	cur := r.newStep()
	if r.from.windowed {
		cur.schema = m.schema(r, r.layout)
	}
	r.first = cur
	for i := range r.Joins {
		if cur = m.join(r, cur, i); cur == nil {
			return
		}
	}
	if len(r.joins) == 0 {
		r.first = nil
	}
	r.last = cur
	m.finish(r, cur)
	m.narrow(r)
}

// fits tells whether the kinds of a relation and of what it is made of go together.
func (m *model) fits(r *relation) bool {
	before := len(m.errs)
	of := r.from
	switch {
	case r.Kind == GlobalTable:
		m.bad(r, "kind", r.Place, "write table", "a global table is read from a topic")
	case of.Kind == GlobalTable:
		m.bad(r, "from", r.Place, "join it", "%s is a global table, which nothing is made from", of.Name)
	case r.Aggregate != nil && r.Kind != Table:
		m.bad(r, "kind", r.Place, "leave kind out", "an aggregate is a table")
	case of.windowed && r.Kind == Table && r.Aggregate == nil:
		m.bad(r, "kind", r.Place, "make a stream of it, and of that a table with key: joinKey(key, string(window.start))",
			"%s has windows: a table of its rows needs them in its key", of.Name)
	case of.windowed && len(r.Joins) > 0:
		m.bad(r, "joins", r.Place, "make a stream of it first, in a relation of its own", "%s has windows, which are joined with nothing", of.Name)
	}
	if r.Source.Layout.Format != "" || len(r.Source.Layout.Columns) > 0 || r.Source.Timestamp != nil || r.Source.History != 0 {
		m.bad(r, "", r.Place, "", "format, columns, timestamp and versioned are of relations that are read from a topic")
	}
	if r.Each != nil && r.Kind == Table && of.Kind == Table && !of.windowed {
		m.bad(r, "each", r.Each.Place, "make a stream of "+of.Name+" first, in a relation of its own, and aggregate that",
			"%s is a table, whose rows cannot become several", of.Name)
	}
	if r.Suppress != nil {
		m.suppress(r)
	}
	if r.Kind == Stream && (r.Store.InMemory || r.Store.NoCache || r.Store.Retention != 0 || r.Store.Changelog != nil) {
		m.bad(r, "store", r.Place, "", "a stream has no store")
	}
	return len(m.errs) == before
}

func (m *model) suppress(r *relation) {
	s := r.Suppress
	switch {
	case r.Kind != Table:
		m.bad(r, "suppress", r.Place, "", "only a table's changes are held back")
	case s.UntilClose == (s.Until != 0):
		m.bad(r, "suppress", r.Place, "", "give either until_close or until")
	case s.Until < 0 || s.MaxRecords < 0 || s.MaxBytes < 0:
		m.bad(r, "suppress", r.Place, "", "negative")
	case s.ShutDown && s.MaxRecords == 0 && s.MaxBytes == 0:
		m.bad(r, "suppress.when_full", r.Place, "give max_records or max_bytes", "shut_down needs a bound")
	case s.UntilClose && (r.Aggregate == nil || r.Aggregate.Window == (Window{})):
		m.bad(r, "suppress.until_close", r.Place, "write until", "there are no windows")
	case s.UntilClose && r.Aggregate.OnClose:
		m.bad(r, "suppress.until_close", r.Place, "leave one of them out", "emit: on_close does the same")
	}
}

// withWindow are the columns of a windowed table, and its windows.
func withWindow(l expr.Layout) expr.Layout {
	l.Columns = append(slices.Clone(l.Columns),
		expr.Column{Name: "window.start", Type: expr.Timestamp}, expr.Column{Name: "window.end", Type: expr.Timestamp})
	return l
}

// newStep is one that evaluates what r is made of.
func (r *relation) newStep() *step {
	return &step{schema: r.from.schema, tombstones: r.from.Kind == Table && !r.from.windowed && r.Kind == Table && r.Aggregate == nil}
}

// schema of a layout that this package makes.
func (m *model) schema(r *relation, l expr.Layout) *expr.Schema {
	s, err := expr.NewSchema(l)
	m.add(r, "", err)
	return s
}

// finish compiles the end of a relation: where, select, key, aggregate.
func (m *model) finish(r *relation, s *step) {
	if s.schema == nil {
		return
	}
	if r.Each != nil && !m.each(r, s) {
		return
	}
	var err error
	if r.Where != nil {
		s.where, err = expr.Compile(*r.Where, s.schema, expr.Bool)
		m.add(r, "where", err)
	}
	if r.Key != nil && r.Kind == Table && r.from.Kind == Table {
		m.bad(r, "key", r.Place, "make a stream of it, or aggregate it with group_by", "the key of a table stays")
		return
	}
	if r.Aggregate != nil {
		if len(r.Select) > 0 || r.Key != nil {
			m.bad(r, "select", r.Place, "declare a stream with select and key, and aggregate that", "an aggregate has its own columns and key")
			return
		}
		m.aggregate(r, s)
		return
	}
	layout := r.layout
	if r.Key != nil {
		format := r.KeyFormat
		if format == "" {
			p, err := expr.Compile(*r.Key, s.schema, expr.Any)
			if err != nil {
				m.add(r, "key", err)
				return
			}
			format = formatOf(p.Type())
		}
		if s.key, err = expr.CompileOutput(*r.Key, s.schema, format); err != nil {
			m.add(r, "key", err)
		}
		layout.KeyFormat, layout.KeyOptional = format, true
	} else if r.KeyFormat != "" {
		m.bad(r, "key_format", r.Place, "", "there is no key to be written so")
	}
	if len(r.Select) > 0 {
		if layout.Columns = m.selected(r, s); layout.Columns == nil {
			return
		}
		layout = expr.Layout{Format: expr.JSONObject, Columns: layout.Columns, KeyFormat: layout.KeyFormat, KeyOptional: layout.KeyOptional}
		r.own = true
	}
	r.layout = layout
	r.schema = m.schema(r, layout)
	if r.Sink != nil {
		m.sink(r, s)
	}
}

// each compiles the list whose items become records, and adds the item to the columns.
func (m *model) each(r *relation, s *step) bool {
	part := "each." + r.Each.Name
	e, err := expr.CompileEach(r.Each.Value, s.schema, r.Each.Name)
	if refused, ok := errors.AsType[*expr.SchemaError](err); ok {
		m.bad(r, part, r.Each.Place, "", "%s", refused.Reason)
		return false
	}
	if err != nil {
		m.add(r, part, err)
		return false
	}
	s.each, s.schema = e, e.Schema()
	r.layout.Columns = append(slices.Clone(r.layout.Columns), e.Item())
	if len(r.Select) > 0 || r.Aggregate != nil { // nobody sees more than is computed
		return true
	}
	var sh *shape
	if r.own {
		if sh, err = newShapeOf(s.schema, r.Each.Name); err == nil {
			s.tail = sh.object
		}
	} else {
		if sh, err = joinedShape(s.schema); err == nil {
			s.object, r.layout, r.own = sh.object, objectLayout(r.layout, s.schema), true
		}
	}
	if err != nil {
		m.add(r, part, err)
		return false
	}
	s.fields = append(s.fields, sh.fields...)
	return true
}

// selected compiles the columns, and returns what they are.
func (m *model) selected(r *relation, s *step) []expr.Column {
	var fields []expr.Field
	for _, c := range r.Select {
		p, err := expr.Compile(c.Value, s.schema, expr.JSON)
		if err != nil {
			m.add(r, "select."+c.Name, err)
			continue
		}
		if strings.Contains(c.Name, ".") {
			m.bad(r, "select."+c.Name, c.Place, "write _", "the name of a column has no dot")
			continue
		}
		fields = append(fields, expr.Field{Name: c.Name, Program: p})
		s.fields = append(s.fields, p)
	}
	if len(fields) < len(r.Select) {
		return nil
	}
	var err error
	if s.object, err = expr.NewObject(fields); err != nil {
		m.add(r, "select", err)
		return nil
	}
	return s.object.Columns()
}

// sink makes objects of what is written to a topic as it was read.
func (m *model) sink(r *relation, s *step) {
	if r.Sink.Topic == "" {
		m.bad(r, "to", r.Sink.Place, "", "the topic has no name")
	}
	if r.own || r.schema == nil {
		return
	}
	sh, err := joinedShape(s.schema)
	if err != nil {
		m.add(r, "to", err)
		return
	}
	s.object, s.fields = sh.object, append(s.fields, sh.fields...)
	r.layout, r.own = objectLayout(r.layout, r.schema), true
	r.schema = m.schema(r, r.layout)
}
