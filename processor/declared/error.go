package declared

import (
	"errors"
	"fmt"
	"strings"

	"github.com/statemesh/statemesh/processor/expr"
)

func (e *Error) Error() string {
	var b strings.Builder
	if e.Place.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", e.Place.File, e.Place.Line, e.Place.Column)
	}
	b.WriteString(e.Path + ": " + e.Reason)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// findings collects what is wrong.
type findings struct{ errs []error }

// bad notes what is wrong with a relation, or a part of it.
func (f *findings) bad(r *relation, part string, at Place, hint, format string, args ...any) {
	path := r.path
	if part != "" {
		path += "." + part
	}
	if at.Line == 0 {
		at = r.Place
	}
	f.errs = append(f.errs, &Error{Path: path, Place: at, Reason: fmt.Sprintf(format, args...), Hint: hint})
}

// add notes an error of another package: expressions have places of their own.
func (f *findings) add(r *relation, part string, err error) {
	if err == nil {
		return
	}
	if all := expr.Errors(err); len(all) > 0 {
		for _, e := range all {
			f.errs = append(f.errs, e)
		}
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.add(r, part, e)
		}
		return
	}
	if e, ok := errors.AsType[*expr.SchemaError](err); ok {
		f.bad(r, part, Place{}, "", "%s: %s", e.Path, e.Reason)
		return
	}
	f.bad(r, part, Place{}, "", "%s", err)
}
