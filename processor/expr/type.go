package expr

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/statemesh/statemesh/serde"
)

// Type is the type of a column, or of what an expression returns.
type Type uint8

// The types. Any is only wanted, of a column whose type is the expression's own.
const (
	String Type = iota + 1
	Int
	Double
	Bool
	Bytes
	Timestamp
	Duration
	JSON
	Any
)

// typeNames are those of configuration files, in the order of the constants.
var typeNames = []string{"string", "int", "double", "bool", "bytes", "timestamp", "duration", "json", "any"}

// String is the word of configuration files.
func (t Type) String() string {
	if t < String || t > Any {
		return "unknown"
	}
	return typeNames[t-1]
}

// TypeNames lists the types a column may have.
func TypeNames() []string { return slices.Clone(typeNames[:JSON]) }

// ParseType reads the type of a column.
func ParseType(name string) (Type, error) {
	i := slices.Index(typeNames[:JSON], name)
	if i < 0 {
		return 0, fmt.Errorf("%q is no type; want one of %s", name, strings.Join(typeNames[:JSON], ", "))
	}
	return Type(i + 1), nil
}

// cel is the type that the checker knows.
func (t Type) cel() *cel.Type {
	switch t {
	case String:
		return cel.StringType
	case Int:
		return cel.IntType
	case Double:
		return cel.DoubleType
	case Bool:
		return cel.BoolType
	case Bytes:
		return cel.BytesType
	case Timestamp:
		return cel.TimestampType
	case Duration:
		return cel.DurationType
	default:
		return cel.DynType
	}
}

// nullable is the type that the checker knows of what may be null. JSON takes null as it is.
func (t Type) nullable() *cel.Type {
	if t == JSON {
		return t.cel()
	}
	return cel.NullableType(t.cel())
}

// typeOf is the type that an expression returns; ok is false for those that nothing here can hold.
func typeOf(t *cel.Type) (typ Type, nullable, ok bool) {
	nullable = t.IsAssignableType(cel.NullType)
	switch t.Kind() {
	case types.StringKind:
		return String, nullable, true
	case types.IntKind:
		return Int, nullable, true
	case types.DoubleKind:
		return Double, nullable, true
	case types.BoolKind:
		return Bool, nullable, true
	case types.BytesKind:
		return Bytes, nullable, true
	case types.TimestampKind:
		return Timestamp, nullable, true
	case types.DurationKind:
		return Duration, nullable, true
	case types.DynKind, types.ListKind, types.MapKind:
		return JSON, true, true
	default:
		return 0, false, false
	}
}

// nameOf names any type of the checker in the words of this package.
func nameOf(t *cel.Type) string {
	if typ, nullable, ok := typeOf(t); ok && typ != JSON {
		if nullable {
			return typ.String() + " or null"
		}
		return typ.String()
	}
	return plainTypes(cel.FormatCELType(t))
}

// FormatType is the type of the values that a serde format holds: what an expression must return that is written with it, and
// what a key is that was. Formats of a schema registry have none.
func FormatType(format string) (Type, bool) {
	switch format {
	case "", serde.FormatBytes:
		return Bytes, true
	case serde.FormatString, serde.FormatUUID:
		return String, true
	case serde.FormatBool:
		return Bool, true
	case serde.FormatInt16, serde.FormatInt32, serde.FormatInt64, serde.FormatOrderedInt32, serde.FormatOrderedInt64:
		return Int, true
	case serde.FormatFloat, serde.FormatDouble, serde.FormatOrderedDouble:
		return Double, true
	case serde.FormatTime:
		return Timestamp, true
	case serde.FormatJSON:
		return JSON, true
	default:
		return 0, false
	}
}
