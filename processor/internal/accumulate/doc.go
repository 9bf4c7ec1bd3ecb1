// Package accumulate has the aggregate functions of declared topologies: what they keep, how records are added and, where that is
// possible, taken out again, how sessions merge, and how the state is written. It knows nothing of streams, stores and expressions:
// values come as Go values (int64, float64, string, bool, []byte, time.Time, time.Duration, json.RawMessage; nil is null).
//
// A [Plan] is a list of functions, made once; it never changes and is safe for concurrent use. A [State] belongs to one goroutine.
// What a plan writes is the same bytes for the same records in the same order, on every machine: changelogs are compared and replayed.
package accumulate
