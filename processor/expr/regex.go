package expr

import (
	"regexp"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"
)

// Functions of regular expressions besides matches, with the names and meanings of CEL's extension for them: the part that matches or, with
// a group in parentheses, that of the group. Its third one, replace, has no bound.
const (
	extract      = "regex.extract"
	extractAll   = "regex.extractAll"
	extractID    = "regex_extract_string_string"
	extractAllID = "regex_extractAll_string_string"
)

// extracts declares them. What runs is made for each expression that is written out, see expressions.
func extracts() []cel.EnvOption {
	args := []*cel.Type{cel.StringType, cel.StringType}
	none := cel.BinaryBinding(func(ref.Val, ref.Val) ref.Val {
		return types.NewErrFromString("a regular expression must be written out")
	})
	charged := func(id string) cost.OverloadModel {
		search := cost.Mul( // as the library charges for matches
			cost.Scale(cost.Sum(cost.Length(cost.Arg(0)), cost.Const(1)), cost.StringTraversalCostFactor),
			cost.Scale(cost.Sum(cost.Length(cost.Arg(1)), cost.Const(1)), cost.RegexStringLengthCostFactor))
		return cost.Overload(id, cost.EvalCost(cost.Sum(cost.Const(1), search, cost.StringScan(cost.Arg(0)))))
	}
	return []cel.EnvOption{
		cel.Function(extract, cel.Overload(extractID, args, cel.OptionalType(cel.StringType), none)),
		cel.Function(extractAll, cel.Overload(extractAllID, args, cel.ListType(cel.StringType), none)),
		cel.CostModel(charged(extractID), charged(extractAllID)),
	}
}

// expressions compiles regular expressions once, and bounds what they are tried on.
func expressions() []*interpreter.RegexOptimization {
	var all []*interpreter.RegexOptimization
	add := func(function, id string, apply func(*regexp.Regexp, string) ref.Val) {
		all = append(all, &interpreter.RegexOptimization{Function: function, OverloadID: id, RegexIndex: 1, Factory: compiled(apply)})
	}
	for _, id := range []string{overloads.Matches, overloads.MatchesString} {
		add(overloads.Matches, id, func(e *regexp.Regexp, text string) ref.Val { return types.Bool(e.MatchString(text)) })
	}
	add(extract, extractID, extractFirst)
	add(extractAll, extractAllID, extractEach)
	return all
}

func compiled(apply func(e *regexp.Regexp, text string) ref.Val) func(interpreter.InterpretableCall, string) (interpreter.InterpretableCall, error) {
	return func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		expression, err := regexp.Compile(pattern)
		if err != nil {
			return nil, err
		}
		return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			text, ok := args[0].(types.String)
			switch {
			case !ok:
				return types.MaybeNoSuchOverloadErr(args[0])
			case len(text) > MaxMatchBytes:
				return errLarge()
			}
			return apply(expression, string(text))
		}), nil
	}
}

// extractFirst is the first match. A group without text is none.
func extractFirst(e *regexp.Regexp, text string) ref.Val {
	at := e.FindStringSubmatchIndex(text)
	if at == nil {
		return types.OptionalNone
	}
	found, ok := matched(e, text, at)
	if !ok {
		return types.OptionalNone
	}
	return types.OptionalOf(types.String(found))
}

// extractEach is a list of all matches, in their order. A group without text is left out.
func extractEach(e *regexp.Regexp, text string) ref.Val {
	all := []ref.Val{}
	for _, at := range e.FindAllStringSubmatchIndex(text, -1) {
		if found, ok := matched(e, text, at); ok {
			all = append(all, types.String(found))
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// matched is the text of a match or, if there is one, of its group.
func matched(e *regexp.Regexp, text string, at []int) (string, bool) {
	if e.NumSubexp() == 0 {
		return text[at[0]:at[1]], true
	}
	if at[2] == at[3] { // also -1
		return "", false
	}
	return text[at[2]:at[3]], true
}

// wrongExtract says why a regular expression cannot be used so; "": it can.
func wrongExtract(pattern string) (reason, hint string) {
	e, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		return "no regular expression: " + err.Error(), ""
	case e.NumSubexp() > 1:
		return "a regular expression here has one group at most", "write (?:...) for the others"
	default:
		return "", ""
	}
}
