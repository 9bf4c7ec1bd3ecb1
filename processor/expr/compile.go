package expr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// Program is an expression that passed every check. It never changes and is safe for concurrent use; what it is evaluated on is
// not.
type Program struct {
	schema *Schema
	source Source
	typ    Type
	prog   cel.Program // nil when the expression is a variable
	shared bool        // its steps count with those for the other items of a list
	direct int         // slot of that variable, else -1
	slots  []int       // that it looks at
	// classes and at say of each node why and where evaluation ends there.
	classes map[int64]string
	at      map[int64]place
	start   place
}

// Type of what the expression returns.
func (p *Program) Type() Type { return p.typ }

// Uses reports whether the expression looks at a column.
func (p *Program) Uses(column string) bool {
	v, ok := p.schema.variable(column)
	return ok && slices.Contains(p.slots, v.slot)
}

// Compile checks an expression against a schema and what it must return. All that is wrong is returned at once, each thing
// an [*Error], see [Errors].
//
// A wanted [Bool] is a decision, and must not be null. [Any] takes every type, and [JSON] every type that has a form in JSON.
func Compile(src Source, s *Schema, want Type) (*Program, error) {
	return compile(src, s, func(c *compiler, out *cel.Type) Type { return c.result(out, want) })
}

// compile leaves it to result which type the expression may have, and what it is then.
func compile(src Source, s *Schema, result func(c *compiler, out *cel.Type) Type) (*Program, error) {
	c := &compiler{src: src, text: []rune(src.Text), schema: s, places: src.places()}
	checked := c.check()
	if checked == nil {
		return nil, errors.Join(c.errs...)
	}
	native := checked.NativeRep()
	shape := examine(native)
	for _, f := range shape.findings {
		c.bad(c.offset(native, f.node), &Error{Reason: f.reason, Hint: f.hint})
	}
	typ := result(c, checked.OutputType())
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	p := &Program{schema: s, source: src, typ: typ, direct: -1, classes: shape.classes, at: make(map[int64]place)}
	p.source.Document = nil // of no more use
	p.start = c.place(c.startOffset())
	for id := range native.SourceInfo().OffsetRanges() {
		p.at[id] = c.place(c.offset(native, id))
	}
	for _, v := range s.vars {
		if shape.names[v.name] && !slices.Contains(p.slots, v.slot) {
			p.slots = append(p.slots, v.slot)
		}
	}
	if name, ok := qualifiedName(native.Expr()); ok {
		if v, ok := s.variable(name); ok {
			p.direct = v.slot
			return p, nil
		}
	}
	if err := p.plan(checked, shape); err != nil {
		return nil, err
	}
	return p, nil
}

// plan makes the program. An expression without loops needs no meter: each of its nodes is evaluated once at most, and each call
// is bounded by itself. What is evaluated for each item of a list is in a loop.
func (p *Program) plan(checked *cel.Ast, shape *shape) error {
	overrides, err := guarded(p.schema.env)
	if err != nil {
		return fmt.Errorf("expr: %w", err)
	}
	options := []cel.ProgramOption{
		cel.Functions(overrides...), //nolint:staticcheck // the library has no other way to bound its own functions
		cel.CustomDecoratorV2(boundComparisons(shape.deep)),
		cel.OptimizeRegex(expressions()...),
		cel.EvalOptions(cel.OptOptimize),
	}
	p.shared = p.schema.item >= 0
	if shape.loops || p.shared {
		options = append(options, cel.CostLimit(MaxCost), cel.CostTrackerOptions(cost.OverloadTracker(overloads.ExtFormatString, formatCost)))
	}
	if p.prog, err = p.schema.env.Program(checked, options...); err != nil {
		// What the checks let pass and the planner does not, such as a constant that cannot be converted.
		return &Error{File: p.source.File, Line: p.start.line, Column: p.start.column, Reason: "a constant in the expression cannot be converted"}
	}
	return nil
}

// compiler collects what is wrong with one expression.
type compiler struct {
	src    Source
	text   []rune
	schema *Schema
	places []place
	errs   []error
}

func (c *compiler) bad(offset int, e *Error) {
	at := c.place(offset)
	e.File, e.Line, e.Column = c.src.File, at.line, at.column
	c.errs = append(c.errs, e)
}

func (c *compiler) place(offset int) place {
	return c.places[min(max(offset, 0), len(c.places)-1)]
}

// check parses and checks; nil when that finds errors.
func (c *compiler) check() *cel.Ast {
	if strings.TrimSpace(c.src.Text) == "" {
		c.bad(0, &Error{Reason: "no expression"})
		return nil
	}
	checked, issues := c.schema.env.Compile(c.src.Text)
	if issues == nil || issues.Err() == nil {
		return checked
	}
	lines := lineStarts(c.text)
	seen := make(map[string]bool)
	for _, e := range issues.Errors() {
		offset := 0
		if l := e.Location.Line(); l >= 1 && l <= len(lines) {
			offset = c.nameAt(lines[l-1] + max(e.Location.Column(), 0))
		}
		found := c.explain(e.Message, offset)
		if key := fmt.Sprint(offset, found.Reason); !seen[key] {
			seen[key] = true
			c.bad(offset, found)
		}
	}
	return nil
}

// nameAt is where the name begins of what the library places at the parenthesis or dot: calls and members.
func (c *compiler) nameAt(offset int) int {
	if offset >= len(c.text) {
		return offset
	}
	switch c.text[offset] {
	case '(':
		at := offset
		for at > 0 && isSpace(c.text[at-1]) {
			at--
		}
		end := at
		for at > 0 && isNamePart(c.text[at-1]) {
			at--
		}
		if at < end {
			return at
		}
	case '.':
		at := offset + 1
		for at < len(c.text) && (isSpace(c.text[at]) || c.text[at] == '?') {
			at++
		}
		if at < len(c.text) && isNamePart(c.text[at]) {
			return at
		}
	}
	return offset
}

func isNamePart(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// lineStarts are the offsets of lines, in characters.
func lineStarts(text []rune) []int {
	starts := []int{0}
	for i, r := range text {
		if r == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// result checks the type that the expression has.
func (c *compiler) result(out *cel.Type, want Type) Type {
	start := c.startOffset()
	typ, nullable, ok := typeOf(out)
	found := nameOf(out)
	mismatch := func(hint string) {
		e := &Error{Reason: fmt.Sprintf("the expression is %s, want %s", found, want), Found: found, Want: want.String(), Hint: hint}
		if want == Any {
			e.Reason = fmt.Sprintf("the expression is %s, which no column can hold", found)
		}
		c.bad(start, e)
	}
	switch {
	case !ok && out.Kind() == types.OpaqueKind:
		mismatch("an optional value has one after .orValue(...)")
	case !ok && out.Kind() == types.UintKind:
		mismatch("write int(...)")
	case !ok:
		mismatch("")
	case want == Any, want == JSON:
	case typ == JSON && out.Kind() == types.DynKind:
		mismatch(fmt.Sprintf("what JSON holds is known at run time only: write %s(...)", want))
	case typ != want:
		mismatch(conversion(typ, want))
	case want == Bool && nullable:
		mismatch("say what null means, as in coalesce(..., false)")
	}
	return typ
}

// conversion is the hint that one type becomes another.
func conversion(from, to Type) string {
	switch {
	case from == JSON:
		return ""
	case to == String, from == String && to != JSON, from == Int && to == Double, from == Double && to == Int,
		from == Timestamp && to == Int, from == Int && to == Timestamp:
		return fmt.Sprintf("write %s(...)", to)
	default:
		return ""
	}
}

// offset is where a node stands in the text, in characters.
func (c *compiler) offset(a *ast.AST, node int64) int {
	if r, ok := a.SourceInfo().GetOffsetRange(node); ok {
		return c.nameAt(int(r.Start))
	}
	return c.startOffset()
}

// startOffset is where the expression begins.
func (c *compiler) startOffset() int {
	return max(slices.IndexFunc(c.text, func(r rune) bool { return !isSpace(r) }), 0)
}
