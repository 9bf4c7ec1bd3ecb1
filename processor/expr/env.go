package expr

import (
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
	"cel.dev/cel-go/parser"
)

// Limits. They bound what an expression may take of a task, whatever it says and whatever the record holds.
const (
	// MaxTextLength of an expression, in characters.
	MaxTextLength = 16 << 10
	// MaxNodes of an expression, after its macros are expanded.
	MaxNodes = 2000
	// MaxDepth of its nesting.
	MaxDepth = 100
	// MaxRegexSize is the size of the program that a regular expression becomes.
	MaxRegexSize = 500
	// MaxMatchBytes is the longest text that a regular expression is tried on.
	MaxMatchBytes = 64 << 10
	// MaxValueBytes is the largest text, sequence of bytes, or JSON of a list or map, that an expression makes of others.
	MaxValueBytes = 1 << 20
	// MaxCompared is how much one comparison of lists and maps may look at: each item is one, and each 16 bytes of text.
	MaxCompared = 1 << 20
	// MaxCost is the number of steps that an expression which goes through lists and maps may take for one record. An operator, a
	// call and a look at a variable are each one or, where they go through text, one per ten characters.
	MaxCost = 1_000_000
)

// present is what has() becomes for a variable. It cannot be written in an expression.
const present = "@present"

// newEnv declares the language.
func (s *Schema) newEnv() (*cel.Env, error) {
	settleSharedErrors()
	options := []cel.EnvOption{
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		cel.EnableIdentifierEscapeSyntax(),
		cel.ParserExpressionSizeLimit(MaxTextLength),
		cel.ExpressionNodeLimit(MaxNodes),
		cel.ParserRecursionLimit(MaxDepth),
		cel.RegexProgramSizeLimit(MaxRegexSize),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		cel.CostSizingStrategy(cost.AggregateSizingStrategy( // of lists in lists as well; beyond these the cost has no limit
			types.SizeCalculatorMaxDepth(MaxDepth), types.SizeCalculatorMaxTraversal(MaxCost))),
		ext.Strings(),
		ext.Math(),
		ext.Bindings(),
		cel.Macros(s.hasMacro()),
	}
	for _, v := range s.vars {
		options = append(options, cel.Variable(v.name, v.cel))
	}
	options = append(options, extras()...)
	return cel.NewEnv(append(options, extracts()...)...)
}

// hasMacro gives has() a meaning for columns and what else every record has: not null. For everything else it is CEL's.
func (s *Schema) hasMacro() cel.Macro {
	return cel.GlobalMacro("has", 1, func(eh cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		if name, ok := qualifiedName(args[0]); ok {
			if _, ok := s.variable(name); ok {
				return eh.NewCall(present, args[0]), nil
			}
		}
		return parser.MakeHas(eh, target, args)
	})
}

// qualifiedName is the name that identifiers joined by dots are.
func qualifiedName(e ast.Expr) (string, bool) {
	var parts []string
	for e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		parts = append([]string{e.AsSelect().FieldName()}, parts...)
		e = e.AsSelect().Operand()
	}
	if e.Kind() != ast.IdentKind {
		return "", false
	}
	return strings.Join(append([]string{e.AsIdent()}, parts...), "."), true
}

// settleSharedErrors gives the errors that the library shares among all evaluations a node, once and before there are any:
// otherwise each evaluation that ends with one writes its own into it, while others read it.
var settleSharedErrors = sync.OnceFunc(func() {
	const beyond = 1 << 60 // seconds that no instant has
	for _, v := range []ref.Val{types.NoSuchOverloadErr(), types.Int(beyond).ConvertToType(types.TimestampType)} {
		types.LabelErrNode(noNode, v)
	}
})

// noNode is the node of an error that does not say where it arose.
const noNode = -1
