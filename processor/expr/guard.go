package expr

import (
	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// The library charges for a call after it has made it. What one call may take is bounded here, before it is made: with that,
// an expression that goes through no list takes at most so much per node.

var errTooLarge = types.NewErrFromString("value too large").(*types.Err)

// errLarge is a new error each time: evaluation writes into it.
func errLarge() ref.Val { return types.WrapErr(errTooLarge.Unwrap()) }

// guards look at the arguments of calls, by function. nil: go on.
func guards() map[string]func(args []ref.Val) ref.Val {
	return map[string]func([]ref.Val) ref.Val{
		operators.Add: func(args []ref.Val) ref.Val { return bound(textSize(args[0]) + textSize(args[1])) },
		operators.In: func(args []ref.Val) ref.Val {
			if weigh(args[0], MaxCompared) == MaxCompared { // a scalar is compared with no more than the list has
				return nil
			}
			return boundCompared(args[1])
		},
		"replace": boundReplace,
		"join":    boundJoin,
		"format":  boundFormat,
		// Nothing to look at, but it returns an error that all evaluations share.
		overloads.TypeConvertTimestamp: func([]ref.Val) ref.Val { return nil },
	}
}

// fresh makes an error of one that all evaluations share, so that this one can say where it arose.
func fresh(v ref.Val) ref.Val {
	if e, ok := v.(*types.Err); ok && e.NodeID() == noNode {
		return types.WrapErr(e.Unwrap())
	}
	return v
}

// guarded returns the implementations that take the place of the library's.
func guarded(env *cel.Env) ([]*functions.Overload, error) {
	all := searches()
	for name, check := range guards() {
		bindings, err := env.Functions()[name].Bindings()
		if err != nil {
			return nil, err
		}
		for _, b := range bindings {
			all = append(all, guardedBy(b, check))
		}
	}
	return all, nil
}

func guardedBy(o *functions.Overload, check func([]ref.Val) ref.Val) *functions.Overload {
	g := *o
	if o.Binary != nil {
		g.Binary = func(a, b ref.Val) ref.Val {
			args := [2]ref.Val{a, b}
			if err := check(args[:]); err != nil {
				return err
			}
			return o.Binary(a, b)
		}
	}
	if o.Unary != nil {
		g.Unary = func(a ref.Val) ref.Val {
			args := [1]ref.Val{a}
			if err := check(args[:]); err != nil {
				return err
			}
			return fresh(o.Unary(a))
		}
	}
	if o.Function != nil {
		g.Function = func(args ...ref.Val) ref.Val {
			if len(args) > 0 {
				if err := check(args); err != nil {
					return err
				}
			}
			return o.Function(args...)
		}
	}
	return &g
}
