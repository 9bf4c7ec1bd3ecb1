package configfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Origin is the file, or the environment variable or flag that carries the value.
	Origin string
	// Line and Column count from 1; 0 when the origin is no file.
	Line, Column int
	Text         string
	// Hint says what to write instead; may be empty.
	Hint string
}

func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.Origin)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		b.WriteString("; ")
		b.WriteString(p.Hint)
	}
	return b.String()
}

// LoadError is everything that is wrong, in the order of the file: one run shows all of it.
type LoadError []Problem

func (ps LoadError) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// orNil sorts and returns nil when there is nothing, so that a nil error is a nil interface. What several parts have found is said once.
func (ps LoadError) orNil() error {
	if len(ps) == 0 {
		return nil
	}
	said := make(map[Problem]bool)
	ps = slices.DeleteFunc(ps, func(p Problem) bool {
		again := said[p]
		said[p] = true
		return again
	})
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return ps
}
