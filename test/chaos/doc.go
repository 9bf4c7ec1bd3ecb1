// Package chaos runs a fleet of real processes on a real Kafka, kills, pauses and restarts them and the broker under a
// schedule that a seed fixes, and checks every answer that clients saw and the state that is left. It is the lane
// `make chaos`; its test needs the build tag chaos.
//
// What it holds against the system (invariants of exactly_once_v2):
//
//   - a count never exceeds the records sent for its key when the answer arrived: nothing counts twice;
//   - a key that was seen is never absent again, and a count that the owner at a later epoch gives is no smaller;
//   - an answer states an age within the bound of the request;
//   - when it is calm again, every key's count is exactly the number of acknowledged records, at every instance.
package chaos
