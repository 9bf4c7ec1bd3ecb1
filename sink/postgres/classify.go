package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/statemesh/statemesh/sink"
)

// SQLSTATE codes that are told apart.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	readOnly              = "25006" // a server that is no primary, or not any more
	programLimit          = "54000" // a key too long for an index, JSON that is too large
	withCheckOption       = "44000" // of a view
)

// refusal is what the database says of a row that it does not take; ok is false for every other error. Its words may hold what is in
// the row, so they are left out.
func refusal(err error) (r sink.Refusal, ok bool) {
	e, found := errors.AsType[*pgconn.PgError](err)
	if !found || len(e.Code) != 5 {
		return r, false
	}
	switch e.Code[:2] {
	case "22", // data
		"23", // constraints
		"21", // two keys of a batch that the table takes for one
		"P0": // raised by a trigger
	default:
		if e.Code != programLimit && e.Code != withCheckOption {
			return r, false
		}
	}
	r.Code = e.Code
	var parts []string
	for _, p := range []struct{ what, name string }{{"table", e.TableName}, {"column", e.ColumnName}, {"constraint", e.ConstraintName}, {"type", e.DataTypeName}} {
		if p.name != "" {
			parts = append(parts, p.what+" "+p.name)
		}
	}
	r.Detail = strings.Join(parts, ", ")
	return r, true
}

// hasCode reports whether an error is the database's, with that code.
func hasCode(err error, code string) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == code
}

// otherTables reports whether the database's error is that the tables are not what they were.
func otherTables(err error) bool {
	return hasCode(err, undefinedTable) || hasCode(err, undefinedColumn) || hasCode(err, insufficientPrivilege)
}

// stateError is the database's error without its details.
type stateError struct {
	op  string
	err *pgconn.PgError
}

func (e *stateError) Error() string {
	return fmt.Sprintf("postgres: %s: %s (SQLSTATE %s)", e.op, e.err.Message, e.err.Code)
}

// Unwrap returns the database's error.
func (e *stateError) Unwrap() error { return e.err }

// plain is an error for logs: the database's without its details, which may hold rows.
func plain(op string, err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &stateError{op: op, err: e}
	}
	return fmt.Errorf("postgres: %s: %w", op, err)
}
