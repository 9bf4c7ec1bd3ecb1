package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/statemesh/statemesh/sink"
)

// found is a column as the database has it.
type found struct {
	name, typ         string
	notNull, supplied bool // supplied: it has a value where none is written
}

// settle sees to it that both tables are there and take what is written. All that is wrong is one *sink.SchemaError. The
// catalogue is asked rather than information_schema, which hides what one may not use.
func (t *Target) settle(ctx context.Context, l *layout, offsets, id string) error {
	tx, err := t.pool.Begin(ctx)
	if err != nil {
		return plain("connect", err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after a commit
	// Instances start together, and "if not exists" alone lets two of them make one table.
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('statemesh'))"); err != nil {
		return plain("lock", err)
	}
	e := &sink.SchemaError{Table: l.plain}
	wanted := []struct {
		name, create string
		check        func([]found) []sink.SchemaProblem
	}{
		{offsets, createOffsets(offsets), func(have []found) []sink.SchemaProblem { return checkOffsets(offsets, have) }},
		{l.table, l.create(), l.check},
	}
	made := false // the table of the rows, which is the last
	for _, w := range wanted {
		have, err := columnsOf(ctx, tx, w.name)
		made = len(have) == 0
		if err == nil && len(have) == 0 {
			if t.cfg.NoCreate {
				e.Problems = append(e.Problems, sink.SchemaProblem{Reason: "there is no table " + w.name, SQL: w.create})
				continue
			}
			have, err = t.make(ctx, tx, w.name, w.create)
		}
		switch {
		case hasCode(err, insufficientPrivilege):
			// What this transaction has found so far is told by the next attempt, once the table is there.
			e.Problems = append(e.Problems, sink.SchemaProblem{Reason: "there is no table " + w.name + ", and no right to make it", SQL: w.create})
			return e
		case err != nil:
			return plain("look at "+w.name, err)
		}
		e.Problems = append(e.Problems, w.check(have)...)
		missing, err := missingGrants(ctx, tx, w.name)
		if err != nil {
			return plain("look at "+w.name, err)
		}
		e.Problems = append(e.Problems, missing...)
	}
	if len(e.Problems) == 0 && !l.append {
		unique, err := hasUnique(ctx, tx, l)
		if err != nil {
			return plain("look at "+l.table, err)
		}
		if !unique {
			e.Problems = append(e.Problems, sink.SchemaProblem{
				Reason: fmt.Sprintf("no unique index has just the columns of the key (%s)", strings.Join(l.keyNames(), ", ")),
				SQL:    fmt.Sprintf("alter table %s add primary key (%s)", l.table, strings.Join(l.keyNames(), ", ")),
			})
		}
	}
	if len(e.Problems) == 0 && made {
		if e.Problems, err = dropped(ctx, tx, l, offsets, id); err != nil {
			return plain("look at "+offsets, err)
		}
	}
	if len(e.Problems) > 0 {
		return e
	}
	if err := tx.Commit(ctx); err != nil {
		return plain("make the tables", err)
	}
	return nil
}

// dropped looks whether there are offsets of a sink whose table is not there: rows before them would be missing for ever.
func dropped(ctx context.Context, tx pgx.Tx, l *layout, offsets, id string) ([]sink.SchemaProblem, error) {
	var written bool
	err := tx.QueryRow(ctx, "select exists (select from "+offsets+" where sink = $1 and next_offset > 0)", id).Scan(&written)
	if err != nil || !written {
		return nil, err
	}
	return []sink.SchemaProblem{{
		Reason: fmt.Sprintf("there is no table %s, and %s says that rows were written to it: it was dropped or renamed, or is to be another one now; bring it "+
			"back, or have it filled from the beginning", l.table, offsets),
		SQL: fmt.Sprintf("delete from %s where sink = '%s'", offsets, strings.ReplaceAll(id, "'", "''")),
	}}, nil
}

// make makes a table, and says what it is like.
func (t *Target) make(ctx context.Context, tx pgx.Tx, name, create string) ([]found, error) {
	if _, err := tx.Exec(ctx, create); err != nil {
		return nil, err
	}
	have, err := columnsOf(ctx, tx, name)
	if err == nil && len(have) == 0 {
		err = errors.New("the table was made and is not there")
	}
	return have, err
}

// columnsOf lists the columns of a table; none: there is no table.
func columnsOf(ctx context.Context, tx pgx.Tx, name string) ([]found, error) {
	rows, err := tx.Query(ctx, `select attname, format_type(atttypid, null), attnotnull, atthasdef or attidentity <> '' or attgenerated <> ''
		from pg_attribute where attrelid = to_regclass($1) and attnum > 0 and not attisdropped order by attnum`, name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		return f, row.Scan(&f.name, &f.typ, &f.notNull, &f.supplied)
	})
}

// missingGrants looks at what may be done with a table.
func missingGrants(ctx context.Context, tx pgx.Tx, name string) (problems []sink.SchemaProblem, err error) {
	for _, right := range []string{"select", "insert", "update", "delete"} {
		var has bool
		var user string
		if err := tx.QueryRow(ctx, "select has_table_privilege(to_regclass($1), $2), current_user::text", name, right).Scan(&has, &user); err != nil {
			return nil, err
		}
		if !has {
			problems = append(problems, sink.SchemaProblem{
				Reason: fmt.Sprintf("no right to %s in %s", right, name), SQL: fmt.Sprintf("grant %s on %s to %s", right, name, quote(user)),
			})
		}
	}
	return problems, nil
}

// hasUnique reports whether a unique index, which is what "on conflict" needs, is of the key's columns and no others.
func hasUnique(ctx context.Context, tx pgx.Tx, l *layout) (bool, error) {
	rows, err := tx.Query(ctx, `select array(select attname::text from pg_attribute a where a.attrelid = i.indrelid and a.attnum = any(i.indkey[0:i.indnkeyatts-1]))
		from pg_index i where i.indrelid = to_regclass($1) and i.indisunique and i.indimmediate and i.indisvalid
			and i.indpred is null and i.indexprs is null`, l.table)
	if err != nil {
		return false, err
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	if err != nil {
		return false, err
	}
	var want []string
	for _, c := range l.cols[:l.keys] {
		want = append(want, c.name)
	}
	slices.Sort(want)
	return slices.ContainsFunc(indexes, func(have []string) bool {
		slices.Sort(have)
		return slices.Equal(have, want)
	}), nil
}

// check compares the table's columns with those that are written, and takes note of what values must be cast to.
func (l *layout) check(have []found) (problems []sink.SchemaProblem) {
	bad := func(sql, format string, args ...any) {
		problems = append(problems, sink.SchemaProblem{Reason: fmt.Sprintf(format, args...), SQL: sql})
	}
	for i := range l.cols {
		c := &l.cols[i]
		made, taken := pgType(c.typ)
		at := slices.IndexFunc(have, func(f found) bool { return f.name == c.name })
		if at < 0 {
			bad(fmt.Sprintf("alter table %s add column %s %s", l.table, quote(c.name), made), "column %s is missing", quote(c.name))
			continue
		}
		switch typ := have[at].typ; {
		case !slices.Contains(taken, typ):
			bad(fmt.Sprintf("alter table %s alter column %s type %s using %s::%s", l.table, quote(c.name), made, quote(c.name), made),
				"column %s is %s, want %s", quote(c.name), typ, strings.Join(taken, " or "))
		case typ == "json", typ == "jsonb", typ == "uuid":
			c.cast = "::" + typ
		}
	}
	for _, f := range have {
		written := slices.ContainsFunc(l.cols, func(c column) bool { return c.name == f.name })
		if !written && f.notNull && !f.supplied {
			bad(fmt.Sprintf("alter table %s alter column %s drop not null", l.table, quote(f.name)),
				"column %s must not be null, and nothing writes it", quote(f.name))
		}
	}
	return problems
}

// offsetColumns are those of the offsets table, in order.
var offsetColumns = []struct{ name, typ, rest string }{
	{"sink", "text", "not null"},
	{"topic", "text", "not null"},
	{"partition", "integer", "not null"},
	{"topic_id", "uuid", "not null"},
	{"next_offset", "bigint", "not null"},
	{"leader_epoch", "integer", "not null default -1"},
	{"caught_up_at", "timestamp with time zone", "not null default now()"},
	{"updated_at", "timestamp with time zone", "not null default now()"},
}

func createOffsets(table string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "create table if not exists %s (", table)
	for _, c := range offsetColumns {
		fmt.Fprintf(&b, "%s %s %s, ", c.name, c.typ, c.rest)
	}
	return b.String() + "primary key (sink, topic, partition))"
}

func checkOffsets(table string, have []found) (problems []sink.SchemaProblem) {
	for _, c := range offsetColumns {
		at := slices.IndexFunc(have, func(f found) bool { return f.name == c.name })
		switch {
		case at < 0:
			problems = append(problems, sink.SchemaProblem{
				Reason: fmt.Sprintf("column %s of %s is missing", c.name, table), SQL: fmt.Sprintf("alter table %s add column %s %s %s", table, c.name, c.typ, c.rest),
			})
		case have[at].typ != c.typ:
			problems = append(problems, sink.SchemaProblem{
				Reason: fmt.Sprintf("column %s of %s is %s, want %s", c.name, table, have[at].typ, c.typ),
				SQL:    fmt.Sprintf("alter table %s alter column %s type %s using %s::%s", table, c.name, c.typ, c.name, c.typ),
			})
		}
	}
	return problems
}
