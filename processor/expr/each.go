package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"
)

// Limits of [Each.Do].
const (
	// MaxItems of a list.
	MaxItems = 100_000
	// MaxEachCost is the number of steps that all expressions may take for one record together, over all items.
	MaxEachCost = 10 * MaxCost
)

// Each is an expression that returns a list, and a column that is one item of it after the other. It never changes and is safe for concurrent
// use; rows are not.
type Each struct {
	*Program

	item Column
}

// CompileEach is [Compile] for a list whose items become a column of this name. A name that cannot be one is a [*SchemaError].
//
// What JSON holds may be a list, too: that is seen when it is evaluated.
func CompileEach(src Source, s *Schema, name string) (*Each, error) {
	e := &Each{item: Column{Name: name}}
	list := func(c *compiler, out *cel.Type) Type {
		e.item.Type, e.item.Optional = c.items(out)
		return JSON
	}
	if _, err := compile(src, s, list); err != nil { // without the item, which it must not use
		return nil, err
	}
	with, err := s.with(e.item)
	if err != nil {
		return nil, err
	}
	e.Program, err = compile(src, with, list)
	return e, err
}

// Schema is the one that the list was compiled against, with the item as its last column. Rows, and what is evaluated for each item, are of
// this one.
func (e *Each) Schema() *Schema { return e.schema }

// Item is the column. Its type is that of the list's items, [JSON] where that is known at run time only.
func (e *Each) Item() Column { return e.item }

// Do calls do for each item of the list, with the item in the row. null has none. An error is that of do, or an [*EvalError]: of what is no
// list, or longer than [MaxItems]. Programs of [Each.Schema] end with one, too, when there were more than [MaxEachCost] steps.
func (e *Each) Do(r *Row, do func() error) error {
	v, err := e.eval(r)
	if err != nil || v == types.NullValue {
		return err
	}
	list, ok := v.(traits.Lister)
	if !ok {
		return e.evalError(ReasonType)
	}
	if n, ok := list.Size().(types.Int); !ok || n > MaxItems {
		return e.TooLarge()
	}
	for it := list.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		if !e.item.Type.holds(item) {
			return e.evalError(ReasonType)
		}
		r.values[e.schema.item] = item
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// TooLarge is the error of a record of whose items too much is made. It is an [*EvalError].
func (e *Each) TooLarge() error { return e.evalError(ReasonLarge) }

// items is the type of a list's items, and whether they may be null.
func (c *compiler) items(out *cel.Type) (typ Type, nullable bool) {
	switch out.Kind() {
	case types.DynKind:
		return JSON, true
	case types.ListKind:
		item := out.Parameters()[0]
		if typ, nullable, ok := typeOf(item); ok {
			return typ, nullable
		}
		c.bad(c.startOffset(), &Error{
			Reason: fmt.Sprintf("the items of the list are %s, which no column can hold", nameOf(item)), Found: nameOf(out), Want: "list",
		})
	default:
		e := &Error{Reason: fmt.Sprintf("the expression is %s, want a list", nameOf(out)), Found: nameOf(out), Want: "list"}
		switch out.Kind() {
		case types.StringKind:
			e.Hint = `write split(","), or regex.extractAll(..., "\\S+") for its words`
		case types.MapKind:
			e.Hint = "write map(k, k) for its keys"
		default: // nothing makes a list of it
		}
		c.bad(c.startOffset(), e)
	}
	return 0, false
}

// with is the schema and one more column, which is in no record.
func (s *Schema) with(item Column) (*Schema, error) {
	reason := nameReason(item.Name)
	switch {
	case strings.Contains(item.Name, "."):
		reason = fmt.Sprintf("%q: the name of an item has no dot", item.Name)
	case reason == "" && slices.ContainsFunc(s.vars, func(v variable) bool { return v.name == item.Name || strings.HasPrefix(v.name, item.Name+".") }):
		reason = fmt.Sprintf("%q is the name of something else already", item.Name)
	}
	if reason != "" {
		return nil, &SchemaError{Path: "item", Reason: reason}
	}
	out := &Schema{layout: s.layout, header: s.header, key: s.key, keys: s.keys, item: len(s.layout.Columns)}
	out.layout.Columns, out.fields = append(slices.Clone(s.layout.Columns), item), append(slices.Clone(s.fields), "")
	out.declare()
	env, err := out.newEnv()
	if err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	out.env = env
	return out, nil
}
