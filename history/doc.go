// Package history records what the writers and readers of a mesh saw, and judges it: was anything lost or counted twice,
// did an answer hold less than it claimed, did a session go backwards. It knows no Kafka, no gRPC and no engine; a history
// is a file of JSON lines, and the judgement a function of it.
//
// # Recording
//
// One [Recorder] records one history. Each call notes its begin before the work and its end after it:
//
//	w := rec.Write(history.Write{Topic: "orders", Effects: []history.Effect{{Store: "counts", Key: "a", Add: 1}}})
//	... produce ...
//	w.Acked(partition, offset)
//
//	r := rec.Read(history.Read{Store: "counts", Key: "a", Bound: time.Second})
//	... ask ...
//	r.Answered(history.AnswerOf(facts).With("5"))
//
// What a record does to which rows is its writer's to say: it adds to a counter or sets a register (see [Model]). A judge
// needs every write to the rows that it judges, also those before the first read; rows are never deleted.
//
// # The file
//
// The first line is the header, of version 1; every other line is one [Event]. Times are nanoseconds since the header, by the
// recorder's monotonic clock, in the order of the lines; the header has the wall clock. A recorder may be killed: a last
// line without its end is passed over and counted. Anything else that is not understood is an error, for a judgement of half
// of a history would be none. Fields that are added later are ignored by older readers; a new kind of event raises the version.
//
// # Judging
//
// [Check] takes events one at a time, in memory that depends on the number of rows and not on the length of the history (but
// for registers: some 50 bytes per write). DESIGN.md has each [Rule] with the reason why it never raises a false alarm, and
// what it cannot see.
package history
