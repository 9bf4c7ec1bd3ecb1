package expr

import (
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/router"
)

// extras declares what CEL and its extensions for strings and mathematics lack. Names and meanings are in
// docs/expressions.md.
func extras() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Function(present, cel.Overload("present_dyn", []*cel.Type{cel.DynType}, cel.BoolType,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.Bool(v != types.NullValue) }))),
		cel.Function("coalesce", coalesceOverloads()...),
		cel.Function("joinKey", joinKeyOverloads()...),
		cel.Function("murmur2",
			cel.Overload("murmur2_string", []*cel.Type{cel.StringType}, cel.IntType, cel.UnaryBinding(func(v ref.Val) ref.Val {
				return murmur2([]byte(v.(types.String)))
			})),
			cel.Overload("murmur2_bytes", []*cel.Type{cel.BytesType}, cel.IntType, cel.UnaryBinding(func(v ref.Val) ref.Val {
				return murmur2(v.(types.Bytes))
			}))),
		cel.CostModel(scans()...),
		cel.Function("date", cel.Overload("date_timestamp", []*cel.Type{cel.TimestampType}, cel.StringType,
			cel.UnaryBinding(onTime(func(t time.Time) ref.Val { return types.String(t.Format(time.DateOnly)) })))),
		cel.Function("millis", cel.Overload("millis_timestamp", []*cel.Type{cel.TimestampType}, cel.IntType,
			cel.UnaryBinding(onTime(func(t time.Time) ref.Val { return types.Int(t.UnixMilli()) })))),
		cel.Function("fromMillis", cel.Overload("from_millis_int", []*cel.Type{cel.IntType}, cel.TimestampType,
			cel.UnaryBinding(fromMillis))),
		cel.Function("truncate", cel.MemberOverload(overloadTruncate, []*cel.Type{cel.TimestampType, cel.StringType}, cel.TimestampType,
			cel.BinaryBinding(onTimeAndText(truncate)))),
		cel.Function("format", cel.MemberOverload(overloadFormat, []*cel.Type{cel.TimestampType, cel.StringType}, cel.StringType,
			cel.BinaryBinding(onTimeAndText(formatTime)))),
	}
}

// scans charges what goes through a text and would count as one step: functions of ours, and those that the library takes for
// cheap.
func scans() []cost.OverloadModel {
	var models []cost.OverloadModel
	for _, id := range []string{
		"murmur2_string", "murmur2_bytes", overloads.SizeString, overloads.StringToInt, overloads.StringToUint, overloads.StringToDouble,
		overloads.StringToTimestamp, overloads.StringToDuration, overloads.InMap,
	} {
		models = append(models, cost.Overload(id, cost.EvalCost(cost.Sum(cost.Const(1), cost.StringScan(cost.Arg(0))))))
	}
	models = append(models, cost.MemberOverload(overloads.SizeStringInst, cost.EvalCost(cost.Sum(cost.Const(1), cost.StringScan(cost.Target())))))
	for n := 2; n <= maxCoalesce; n++ {
		parts := []cost.QuantityExpr{cost.Const(1)}
		for i := range n {
			parts = append(parts, cost.StringScan(cost.Arg(i)))
		}
		models = append(models, cost.Overload(joinKeyID(n), cost.EvalCost(cost.Sum(parts...))))
	}
	return models
}

// formatCost charges for what a format is given and what becomes of it; the library charges for the format.
func formatCost(args []ref.Val, result ref.Val) *uint64 {
	size := textSize(result)
	for _, arg := range args {
		size += textSize(arg)
		if list, ok := arg.(traits.Lister); ok {
			for it := list.Iterator(); it.HasNext() == types.True; {
				size += 1 + textSize(it.Next())
			}
		}
	}
	steps := uint64(1 + size/10)
	return &steps
}

func joinKeyID(n int) string { return "joinKey" + strings.Repeat("_string", n) }

const (
	overloadTruncate = "timestamp_truncate_string"
	overloadFormat   = "timestamp_format_string"
)

// maxCoalesce is how many values coalesce takes, and parts joinKey.
const maxCoalesce = 5

// coalesceOverloads take two to five values of one type, of which each may be null, and return the first that is not.
func coalesceOverloads() []cel.FunctionOpt {
	first := func(args ...ref.Val) ref.Val {
		for _, v := range args {
			if v != types.NullValue {
				return v
			}
		}
		return types.NullValue
	}
	var all []cel.FunctionOpt
	for _, t := range []Type{String, Int, Double, Bool, Bytes, Timestamp, Duration} {
		for n := 2; n <= maxCoalesce; n++ {
			args := make([]*cel.Type, n)
			for i := range args {
				args[i] = t.nullable()
			}
			id := "coalesce_" + t.String() + strings.Repeat("_", n-1)
			if n == 2 {
				all = append(all, cel.Overload(id, args, t.cel(), cel.BinaryBinding(func(a, b ref.Val) ref.Val { return first(a, b) })))
			} else {
				all = append(all, cel.Overload(id, args, t.cel(), cel.FunctionBinding(first)))
			}
		}
	}
	return all
}

// joinKeyOverloads make the key of several values, as views do.
func joinKeyOverloads() []cel.FunctionOpt {
	join := func(args ...ref.Val) ref.Val {
		size := len(args)
		for _, v := range args {
			size += len(v.(types.String))
		}
		if size > MaxValueBytes {
			return errLarge()
		}
		b := make([]byte, 0, size)
		for i, v := range args {
			if i > 0 {
				b = append(b, '/')
			}
			b = decode.AppendKeyPart(b, v.(types.String))
		}
		return types.String(b)
	}
	var all []cel.FunctionOpt
	for n := 2; n <= maxCoalesce; n++ {
		args := make([]*cel.Type, n)
		for i := range args {
			args[i] = cel.StringType
		}
		id := joinKeyID(n)
		if n == 2 {
			all = append(all, cel.Overload(id, args, cel.StringType, cel.BinaryBinding(func(a, b ref.Val) ref.Val { return join(a, b) })))
		} else {
			all = append(all, cel.Overload(id, args, cel.StringType, cel.FunctionBinding(join)))
		}
	}
	return all
}

// murmur2 is the number of which Kafka's partitioner takes the remainder.
func murmur2(b []byte) ref.Val { return types.Int(router.Murmur2(b) & 0x7fffffff) }

func onTime(fn func(time.Time) ref.Val) func(ref.Val) ref.Val {
	return func(v ref.Val) ref.Val { return fn(v.(types.Timestamp).Time.UTC()) }
}

func onTimeAndText(fn func(time.Time, string) (ref.Val, bool)) func(ref.Val, ref.Val) ref.Val {
	return func(v, text ref.Val) ref.Val {
		out, ok := fn(v.(types.Timestamp).Time.UTC(), string(text.(types.String)))
		if !ok {
			return types.NewErrFromString("not a unit or format")
		}
		return out
	}
}

// The instants that CEL has: the years 1 to 9999.
var (
	minMillis = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	maxMillis = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() - 1
)

func fromMillis(v ref.Val) ref.Val {
	ms := int64(v.(types.Int))
	if ms < minMillis || ms > maxMillis {
		return types.NewErrFromString("beyond the range of instants")
	}
	return types.Timestamp{Time: time.UnixMilli(ms).UTC()}
}

// units that an instant can be cut to.
var units = []string{"millisecond", "second", "minute", "hour", "day", "week", "month", "year"}

// truncate cuts an instant to a unit, in UTC. Weeks begin on Monday.
func truncate(t time.Time, unit string) (ref.Val, bool) {
	y, m, d := t.Date()
	switch unit {
	case "millisecond":
		t = t.Truncate(time.Millisecond)
	case "second":
		t = t.Truncate(time.Second)
	case "minute":
		t = t.Truncate(time.Minute)
	case "hour":
		t = t.Truncate(time.Hour)
	case "day":
		t = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	case "week":
		// 0001-01-01, the first instant that there is, is a Monday.
		t = time.Date(y, m, d-(int(t.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	case "month":
		t = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case "year":
		t = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
	default:
		return nil, false
	}
	return types.Timestamp{Time: t}, true
}

// directives of formatTime, as strftime has them, and the layouts that write them.
var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'j': "002", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'L': "000",
}

// maxTimeFormat is the longest format of an instant: one may come out of a record.
const maxTimeFormat = 1024

// formatTime writes an instant, in UTC, as strftime does.
func formatTime(t time.Time, format string) (ref.Val, bool) {
	if len(format) > maxTimeFormat {
		return nil, false
	}
	b := make([]byte, 0, 64)
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b = append(b, format[i])
			continue
		}
		if i++; i == len(format) {
			return nil, false
		}
		switch c := format[i]; c {
		case '%':
			b = append(b, '%')
		case 'L': // milliseconds
			ms := t.Nanosecond() / int(time.Millisecond)
			b = append(b, byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
		default:
			layout, ok := directives[c]
			if !ok {
				return nil, false
			}
			b = t.AppendFormat(b, layout)
		}
	}
	return types.String(b), true
}
