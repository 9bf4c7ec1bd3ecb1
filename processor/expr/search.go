package expr

import (
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/functions"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// searches are indexOf and lastIndexOf in time linear in the text; the library's take the product of both lengths.
func searches() []*functions.Overload {
	var all []*functions.Overload
	add := func(name, id string, search func(args []ref.Val) ref.Val) {
		binary := func(a, b ref.Val) ref.Val { args := [2]ref.Val{a, b}; return search(args[:]) }
		variadic := func(args ...ref.Val) ref.Val { return search(args) }
		all = append(
			all,
			&functions.Overload{Operator: id, Binary: binary, Function: variadic},
			&functions.Overload{Operator: id + "_int", Function: variadic},
			&functions.Overload{Operator: name, Binary: binary, Function: variadic},
		)
	}
	add("indexOf", "string_index_of_string", indexOf)
	add("lastIndexOf", "string_last_index_of_string", lastIndexOf)
	return all
}

// searched takes the arguments of a search apart. from is -1 without an offset.
func searched(args []ref.Val) (text, sub string, from int64, problem ref.Val) {
	s, ok1 := args[0].(types.String)
	p, ok2 := args[1].(types.String)
	from = -1
	if len(args) > 2 {
		n, ok := args[2].(types.Int)
		if !ok {
			return "", "", 0, types.MaybeNoSuchOverloadErr(args[2])
		}
		if n < 0 {
			return "", "", 0, types.NewErrFromString("index out of range")
		}
		from = int64(n)
	}
	if !ok1 || !ok2 {
		return "", "", 0, types.NewErrFromString("no such overload")
	}
	return string(s), string(p), from, nil
}

// indexOf is the number of characters before the first match at or behind an offset, -1 without one. An empty text matches at
// the offset.
func indexOf(args []ref.Val) ref.Val {
	text, sub, from, problem := searched(args)
	if problem != nil {
		return problem
	}
	start, skipped := runeOffset(text, max(from, 0))
	if sub == "" {
		return types.Int(skipped)
	}
	i := strings.Index(text[start:], sub)
	if i < 0 {
		return types.Int(-1)
	}
	return types.Int(skipped + int64(utf8.RuneCountInString(text[start:start+i])))
}

// lastIndexOf is the number of characters before the last match that begins at or before an offset, -1 without one. An empty text
// matches at the offset. An offset behind the text finds nothing, as in the library.
func lastIndexOf(args []ref.Val) ref.Val {
	text, sub, from, problem := searched(args)
	if problem != nil {
		return problem
	}
	within := text
	if from >= 0 {
		start, skipped := runeOffset(text, from)
		if sub == "" {
			return types.Int(skipped)
		}
		if start == len(text) {
			return types.Int(-1)
		}
		within = text[:min(start+len(sub), len(text))]
	} else if sub == "" {
		return types.Int(utf8.RuneCountInString(text))
	}
	i := strings.LastIndex(within, sub)
	if i < 0 {
		return types.Int(-1)
	}
	return types.Int(utf8.RuneCountInString(text[:i]))
}

// runeOffset is where the n-th character begins, and how many there are before it: n, or all of them.
func runeOffset(s string, n int64) (at int, skipped int64) {
	for at < len(s) && skipped < n {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
		skipped++
	}
	return at, skipped
}
