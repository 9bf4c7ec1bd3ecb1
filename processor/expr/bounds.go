package expr

import (
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

func bound(size int) ref.Val {
	if size > MaxValueBytes {
		return errLarge()
	}
	return nil
}

// textSize is the size of text or bytes, 0 of everything else.
func textSize(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	default:
		return 0
	}
}

func boundReplace(args []ref.Val) ref.Val {
	var text [3]string
	for i := range min(len(args), 3) {
		s, ok := args[i].(types.String)
		if !ok {
			return nil // the call refuses it
		}
		text[i] = string(s)
	}
	return bound(len(text[0]) + strings.Count(text[0], text[1])*max(len(text[2])-len(text[1]), 0))
}

func boundJoin(args []ref.Val) ref.Val {
	list, ok := args[0].(traits.Lister)
	if !ok {
		return nil
	}
	between := 0
	if len(args) > 1 {
		between = textSize(args[1])
	}
	size := 0
	for it := list.Iterator(); it.HasNext() == types.True; {
		if size += textSize(it.Next()) + between; size > MaxValueBytes {
			return errLarge()
		}
	}
	return nil
}

// boundFormat looks at what a format is given. Lists and maps have no bound that could be told without writing them, and are
// refused.
func boundFormat(args []ref.Val) ref.Val {
	if len(args) < 2 {
		return nil
	}
	list, ok := args[1].(traits.Lister)
	if !ok {
		return nil
	}
	const longest = 512 // of what is no text: a number with its precision
	size := textSize(args[0])
	for it := list.Iterator(); it.HasNext() == types.True; {
		v := it.Next()
		switch v.(type) {
		case traits.Lister, traits.Mapper:
			return types.NewErrFromString("a list or map is no argument of a format")
		}
		if size += 8*textSize(v) + longest; size > 8*MaxValueBytes { // bytes may be written as bits
			return errLarge()
		}
	}
	return nil
}

// boundComparisons puts a bound before comparisons of lists and maps. A list may stand in another any number of times without
// being longer: what is a few names in the expression, or a long list in the record, is any number of items to compare.
func boundComparisons(deep map[int64]bool) interpreter.InterpretableDecoratorV2 {
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || !deep[call.ID()] {
			return i, nil
		}
		switch call.Function() {
		case operators.Equals:
			return interpreter.NewCall(call.ID(), operators.Equals, overloads.Equals, call.Args(), equal), nil
		case operators.NotEquals:
			return interpreter.NewCall(call.ID(), operators.NotEquals, overloads.NotEquals, call.Args(), func(args ...ref.Val) ref.Val {
				if out, ok := equal(args...).(types.Bool); ok {
					return !out
				}
				return errLarge()
			}), nil
		default:
			return i, nil
		}
	}
}

// equal compares two values, if the smaller one is within the bound.
func equal(args ...ref.Val) ref.Val {
	if weigh(args[0], MaxCompared) < 0 && weigh(args[1], MaxCompared) < 0 {
		return errLarge()
	}
	return types.Equal(args[0], args[1])
}

func boundCompared(v ref.Val) ref.Val {
	if weigh(v, MaxCompared) < 0 {
		return errLarge()
	}
	return nil
}

// weigh returns what is left of a budget when every part of a list or map has been looked at; negative when it is not enough. A
// scalar costs nothing.
func weigh(v ref.Val, budget int) int {
	switch v := v.(type) {
	case *types.Optional:
		if v.HasValue() {
			return weigh(v.GetValue(), budget-1)
		}
		return budget
	case traits.Mapper:
		for it := v.Iterator(); budget >= 0 && it.HasNext() == types.True; {
			key := it.Next()
			budget = weigh(v.Get(key), budget-1-textSize(key)/16-textSize(v.Get(key))/16)
		}
		return budget
	case traits.Lister:
		for it := v.Iterator(); budget >= 0 && it.HasNext() == types.True; {
			item := it.Next()
			budget = weigh(item, budget-1-textSize(item)/16)
		}
		return budget
	default:
		return budget
	}
}
