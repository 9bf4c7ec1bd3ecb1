package expr

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// finding is what is wrong at a node.
type finding struct {
	node         int64
	reason, hint string
}

// traits of an expression that decide how it is evaluated.
type shape struct {
	findings []finding
	// loops: a part of it may be evaluated more than once.
	loops bool
	// classes says of each node why evaluation ends there, if it does.
	classes map[int64]string
	// names of the variables it looks at.
	names map[string]bool
	// deep are the comparisons of what may be a list or a map.
	deep map[int64]bool
}

// examine looks at a checked expression: for what is not in the language here, and for what its evaluation needs to know.
func examine(a *ast.AST) *shape {
	s := &shape{classes: make(map[int64]string), names: make(map[string]bool), deep: make(map[int64]bool)}
	for _, r := range a.ReferenceMap() {
		if len(r.OverloadIDs) == 0 {
			s.names[r.Name] = true
		}
	}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			s.loops = true
		case ast.StructKind:
			s.refuse(e, "messages cannot be made here", "")
		case ast.SelectKind:
			s.classes[e.ID()] = ReasonMissing
		case ast.CallKind:
			s.call(a, e)
		default:
		}
	}))
	return s
}

func (s *shape) refuse(e ast.Expr, reason, hint string) {
	s.findings = append(s.findings, finding{e.ID(), reason, hint})
}

func (s *shape) call(a *ast.AST, e ast.Expr) {
	call := e.AsCall()
	s.classes[e.ID()] = classOf(call.FunctionName())
	args := call.Args()
	switch call.FunctionName() {
	case operators.Equals, operators.NotEquals:
		s.deep[e.ID()] = !isScalar(a.GetType(args[0].ID())) && !isScalar(a.GetType(args[1].ID()))
	case overloads.Matches, extract, extractAll:
		pattern, ok := literal(args[len(args)-1])
		if !ok {
			s.refuse(args[len(args)-1], "a regular expression must be written out", "")
		} else if reason, hint := wrongExtract(pattern); reason != "" && call.FunctionName() != overloads.Matches {
			s.refuse(args[len(args)-1], reason, hint)
		}
	case overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDayOfYear, overloads.TimeGetDayOfMonth, overloads.TimeGetDate,
		overloads.TimeGetDayOfWeek, overloads.TimeGetHours, overloads.TimeGetMinutes, overloads.TimeGetSeconds, overloads.TimeGetMilliseconds:
		if len(args) == 1 && !fixedZone(args[0]) {
			s.refuse(args[0], "a time zone must be written out as an offset", `such as "+02:00": what names of zones mean differs from machine to machine`)
		}
	}
	if !call.IsMemberFunction() || len(args) != 1 {
		return
	}
	text, ok := literal(args[0])
	for _, id := range a.GetOverloadIDs(e.ID()) {
		switch {
		case id == overloadTruncate && ok && !isUnit(text):
			s.refuse(args[0], "no unit to cut an instant to", "one of "+strings.Join(units, ", "))
		case id == overloadFormat && ok && !isTimeFormat(text):
			s.refuse(args[0], "no format of an instant", "%Y %m %d %H %M %S and others, see docs/expressions.md")
		}
	}
}

// isScalar reports whether values of a type are of one piece.
func isScalar(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.BytesKind, types.DoubleKind, types.DurationKind, types.IntKind, types.NullTypeKind, types.StringKind,
		types.TimestampKind, types.TypeKind, types.UintKind:
		return true
	default:
		return false
	}
}

// offsetZone is a zone that is an offset.
var offsetZone = regexp.MustCompile(`^[+-]?(0[0-9]|1[0-4]):[0-5][0-9]$`)

func isUnit(s string) bool { return slices.Contains(units, s) }

func isTimeFormat(s string) bool {
	_, ok := formatTime(time.Time{}, s)
	return ok
}

// literal is the text that an expression is.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}

// fixedZone reports whether an expression is a literal zone that needs no data base.
func fixedZone(e ast.Expr) bool {
	zone, ok := literal(e)
	return ok && (zone == "UTC" || offsetZone.MatchString(zone))
}

// classOf says why evaluation ends at a call of a function.
func classOf(function string) string {
	switch function {
	case operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate:
		return ReasonArithmetic
	case operators.Index, operators.OptIndex, operators.OptSelect:
		return ReasonMissing
	case overloads.TypeConvertBool, overloads.TypeConvertBytes, overloads.TypeConvertDouble, overloads.TypeConvertDuration,
		overloads.TypeConvertInt, overloads.TypeConvertString, overloads.TypeConvertTimestamp, overloads.TypeConvertUint, "fromMillis":
		return ReasonConversion
	default:
		return ReasonArgument
	}
}
