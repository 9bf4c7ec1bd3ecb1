package declared

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
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
