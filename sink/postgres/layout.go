package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// column of the table.
type column struct {
	name string
	typ  expr.Type
	key  bool // part of what tells rows apart
	// cast is what values are made of in SQL, where PostgreSQL does not do it by itself; empty: nothing.
	cast string
}

// layout is the table as the sink sees it: key columns, then those of values. Of a stream the first two are partition and offset.
type layout struct {
	table  string // quoted
	plain  string // as people say it
	append bool
	cols   []column
	// keys is how many columns tell rows apart.
	keys int
}

// pgType is the type of a column that is made, and what else is taken for it where it exists.
func pgType(t expr.Type) (made string, taken []string) {
	switch t {
	case expr.Int:
		return "bigint", []string{"bigint", "integer", "smallint", "numeric"}
	case expr.Double:
		return "double precision", []string{"double precision"}
	case expr.Bool:
		return "boolean", []string{"boolean"}
	case expr.Bytes:
		return "bytea", []string{"bytea"}
	case expr.Timestamp:
		return "timestamp with time zone", []string{"timestamp with time zone"}
	case expr.Duration:
		return "interval", []string{"interval"}
	case expr.JSON:
		return "jsonb", []string{"jsonb", "json"}
	default:
		return "text", []string{"text", "character varying", "uuid"}
	}
}

// arrayType is how the values of many rows travel.
func arrayType(t expr.Type) string {
	if t == expr.JSON {
		return "text[]" // so that one that PostgreSQL does not take is met where it is cast
	}
	made, _ := pgType(t)
	return made + "[]"
}

// newLayout puts the names of the configuration to the columns of the relation.
func newLayout(c Config, s sink.Schema) (*layout, error) {
	l := &layout{table: pgx.Identifier{c.Schema, c.Table}.Sanitize(), plain: c.Schema + "." + c.Table, append: s.Append}
	var problems []sink.SchemaProblem
	bad := func(format string, args ...any) {
		problems = append(problems, sink.SchemaProblem{Reason: fmt.Sprintf(format, args...)})
	}
	if s.Append {
		l.cols = []column{{name: c.PartitionColumn, typ: expr.Int, key: true}, {name: c.OffsetColumn, typ: expr.Int, key: true}}
	}
	if len(c.KeyColumns) > 0 && len(c.KeyColumns) != len(s.Keys) {
		bad("%d names are given for the %d columns of the key", len(c.KeyColumns), len(s.Keys))
	}
	for i, k := range s.Keys {
		name := k.Name
		if i < len(c.KeyColumns) {
			name = c.KeyColumns[i]
		}
		l.cols = append(l.cols, column{name: name, typ: k.Type, key: !s.Append})
	}
	for _, col := range s.Columns {
		name := col.Name
		if to, ok := c.Columns[col.Name]; ok {
			name = to
		}
		if problem := badName(name); problem != "" {
			bad("column %q: %s; rename it", name, problem)
		}
		l.cols = append(l.cols, column{name: name, typ: col.Type})
	}
	for from := range c.Columns {
		if !slices.ContainsFunc(s.Columns, func(col sink.Column) bool { return col.Name == from }) {
			bad("column %q is renamed, and there is none in the relation", from)
		}
	}
	for i, col := range l.cols {
		if col.key {
			l.keys++
		}
		if slices.ContainsFunc(l.cols[:i], func(o column) bool { return o.name == col.name }) {
			bad("two columns are called %q; rename one of them", col.name)
		}
	}
	if len(problems) > 0 {
		return nil, &sink.SchemaError{Table: l.plain, Problems: problems}
	}
	return l, nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// keyNames are the columns that tell rows apart, quoted.
func (l *layout) keyNames() (names []string) {
	for _, c := range l.cols[:l.keys] {
		names = append(names, quote(c.name))
	}
	return names
}

// create is the statement that makes the table.
func (l *layout) create() string {
	var b strings.Builder
	fmt.Fprintf(&b, "create table if not exists %s (", l.table)
	for _, c := range l.cols {
		made, _ := pgType(c.typ)
		if c.key {
			made += " not null"
		}
		fmt.Fprintf(&b, "%s %s, ", quote(c.name), made)
	}
	fmt.Fprintf(&b, "primary key (%s))", strings.Join(l.keyNames(), ", "))
	return b.String()
}

// upsert is the statement that writes rows: one array for each column. A stream's partition is no array.
func (l *layout) upsert() string {
	var names, sources, values, updates []string
	for i, c := range l.cols {
		names = append(names, quote(c.name))
		if l.append && i == 0 {
			values = append(values, "$1::integer")
			continue
		}
		sources = append(sources, fmt.Sprintf("$%d::%s", i+1, arrayType(c.typ)))
		values = append(values, fmt.Sprintf("u.c%d%s", i, c.cast))
		if !c.key {
			updates = append(updates, fmt.Sprintf("%s = excluded.%s", quote(c.name), quote(c.name)))
		}
	}
	s := fmt.Sprintf("insert into %s (%s) select %s from unnest(%s) as u(%s)", l.table, strings.Join(names, ", "), strings.Join(values, ", "),
		strings.Join(sources, ", "), l.aliases(len(l.cols)))
	if l.append {
		return s
	}
	return s + fmt.Sprintf(" on conflict (%s) do update set %s", strings.Join(l.keyNames(), ", "), strings.Join(updates, ", "))
}

// remove is the statement that deletes rows: one array for each column of the key.
func (l *layout) remove() string {
	var sources, equal []string
	for i, c := range l.cols[:l.keys] {
		sources = append(sources, fmt.Sprintf("$%d::%s", i+1, arrayType(c.typ)))
		equal = append(equal, fmt.Sprintf("t.%s = u.c%d%s", quote(c.name), i, c.cast))
	}
	return fmt.Sprintf("delete from %s t using unnest(%s) as u(%s) where %s", l.table, strings.Join(sources, ", "), l.aliases(l.keys),
		strings.Join(equal, " and "))
}

// aliases names the columns of the arrays of the first n columns.
func (l *layout) aliases(n int) string {
	var names []string
	for i := range n {
		if !l.append || i > 0 {
			names = append(names, fmt.Sprintf("c%d", i))
		}
	}
	return strings.Join(names, ", ")
}
