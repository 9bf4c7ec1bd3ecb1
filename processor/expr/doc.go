// Package expr evaluates expressions over records, for topologies that are declared in a file: which records to take, their key
// and value, and computed columns. The language is CEL; docs/expressions.md is its reference. It is the only home of the library.
//
// # Order of use
//
// At load, once:
//
//	schema, err := expr.NewSchema(expr.Layout{Format: expr.CSV, Columns: columns})    // *SchemaError, joined
//	filter, err := expr.Compile(source, schema, expr.Bool)                            // *Error, joined, with its place in the file
//	key, err := expr.CompileOutput(source, schema, "string")
//	object, err := expr.NewObject([]expr.Field{{Name: "hours", Program: hours}})
//
// In each task, which has a [Row] of its own:
//
//	row, err := schema.NewRow(filter, key.Program, hours)
//
// And per record, in one goroutine:
//
//	err := row.Set(record, metadata)        // *processor.DeserializationError
//	ok, err := filter.Bool(row)             // *EvalError
//	k, err := key.Append(k[:0], row)        // nil: null
//	v, err := object.Append(v[:0], row)
//
// Schemas, programs, outputs and objects never change and are safe for concurrent use. A row is not; it points into the record that it
// was given, which must stay as it is until the next one. What is appended or returned is the caller's.
//
// # Errors
//
// All that is wrong with an expression is found at load, as far as types tell: an [*Error] names file, line and column of the culprit, also
// inside of a quoted or folded YAML scalar ([Source]). A record that cannot be read is a *processor.DeserializationError, and one that an
// expression has no result for an [*EvalError]: the handlers of the runtime decide about them. Their reasons are metric labels; none
// of them holds data of the record.
//
// # What an expression may do
//
// It reads the record, and nothing else: no clock, no random numbers, no names of time zones, no state. What it may take is bounded by
// [MaxCost] and the constants beside it: no expression and no record can hold up a task, or take its memory.
package expr
