package expr

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/operators"

	"github.com/statemesh/statemesh/internal/nearest"
)

// The library tells what is wrong in words alone. What is understood of them is told in those of this package, with types and a
// way out; everything else is passed on as it is.
var (
	noOverload = regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '(.*)'$`)
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	unexpected = regexp.MustCompile(`^Syntax error: (?:mismatched input|extraneous input|no viable alternative at input|token recognition error at:) '(.*?)'(?: expecting .*)?$`)
	lacking    = regexp.MustCompile(`^Syntax error: missing '(.*?)' at '(.*?)'$`)
	nullables  = regexp.MustCompile(`wrapper\(([a-z_]+)\)`)
	numbers    = regexp.MustCompile(`\b(int|double|uint)\b`)
)

// plainTypes puts the library's names of types into ours.
func plainTypes(text string) string {
	text = nullables.ReplaceAllString(text, "$1 or null")
	return strings.NewReplacer("google.protobuf.Timestamp", "timestamp", "google.protobuf.Duration", "duration", "dyn", "json").Replace(text)
}

// explain makes an Error of what the library says of a place. The place is the caller's to set.
func (c *compiler) explain(message string, offset int) *Error {
	if m := noOverload.FindStringSubmatch(message); m != nil {
		return explainOverload(m[1], plainTypes(m[2]))
	}
	if m := undeclared.FindStringSubmatch(message); m != nil {
		if c.isCall(offset, m[1]) {
			return &Error{Reason: fmt.Sprintf("there is no function %s", m[1]), Hint: "docs/expressions.md lists all"}
		}
		return &Error{Reason: fmt.Sprintf("there is no %s", m[1]), Hint: c.names(m[1])}
	}
	if strings.HasPrefix(message, "Syntax error: ") {
		switch m := unexpected.FindStringSubmatch(message); {
		case m != nil && m[1] == "<EOF>":
			return &Error{Reason: "the expression ends too early"}
		case m != nil:
			return &Error{Reason: "unexpected " + m[1]}
		}
		switch m := lacking.FindStringSubmatch(message); {
		case m != nil && m[2] == "<EOF>":
			return &Error{Reason: "the expression ends too early"}
		case m != nil:
			return &Error{Reason: fmt.Sprintf("%s is missing before %s", m[1], m[2])}
		}
	}
	return &Error{Reason: plainTypes(strings.TrimSuffix(message, "."))}
}

func explainOverload(function, found string) *Error {
	e := &Error{Found: found}
	if op, ok := operators.FindReverse(function); ok && op != "" {
		e.Reason = fmt.Sprintf("%s does not take %s", op, found)
	} else {
		e.Reason = fmt.Sprintf("%s does not take %s", strings.Trim(function, "_"), found)
	}
	kinds := numbers.FindAllString(found, -1)
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	switch {
	case slices.Equal(kinds, []string{"double", "int"}):
		e.Hint = "numbers of one type are wanted: write 2.0 for 2, or double(...) or int(...)"
	case strings.HasSuffix(found, ", null)"), strings.HasPrefix(found, "(null, "):
		e.Hint = "only what is optional may be null"
	case strings.Contains(found, "or null"):
		e.Hint = "a column that may be null has a value after coalesce(column, ...)"
	}
	return e
}

// isCall reports whether a name in the text is called.
func (c *compiler) isCall(offset int, name string) bool {
	rest := c.text[min(offset, len(c.text)):]
	return strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(string(rest), name), " \t\n"), "(")
}

// names says what there is instead of a name.
func (c *compiler) names(unknown string) string {
	var near []string
	for _, v := range c.schema.vars {
		if strings.EqualFold(v.name, unknown) || nearest.Distance(v.name, unknown) <= len(unknown)/3 {
			near = append(near, v.name)
		}
	}
	if len(near) > 0 {
		return "did you mean " + strings.Join(near[:min(len(near), 3)], " or ") + "?"
	}
	var columns []string
	for _, col := range c.schema.layout.Columns {
		columns = append(columns, col.Name)
	}
	const shown = 12
	if len(columns) > shown {
		columns = append(columns[:shown], "...")
	}
	return "the columns are " + strings.Join(columns, ", ")
}
