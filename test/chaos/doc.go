// Package chaos runs a fleet of real processes on a real Kafka, each behind a link of its own, and makes faults under a
// schedule that a seed fixes: kills of one, two or all, stops, pauses past the session, links that are silent, deaf, mute
// or refuse, lost and restored disks, kills and pauses of the broker. It checks every answer that clients saw, the
// changelogs, and the state that is left. It is the lane `make chaos`; its test needs the build tag chaos.
//
// What it holds against the system (invariants of exactly_once_v2), for a count by the record's key, and for a sum and a
// count that go through a repartition topic:
//
//   - a number never exceeds that of the records sent for its row when the answer arrived: nothing counts twice;
//   - the owner at a later epoch knows all that was answered before;
//   - an answer, whoever gives it, holds all that anybody had seen by the moment it was asked for less its age, and the
//     age is within the bound of the request;
//   - in a changelog, as committed readers read it, every record of a row is higher than the one before;
//   - when it is calm again, every row is exactly what the acknowledged records make it, at every instance.
package chaos
