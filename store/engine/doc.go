// Package engine is the contract between the layers of a task's state and what keeps its lowest layer: ordered bytes by
// key space, snapshots, and moves that are applied whole or not at all.
//
// A key space is one copy of one task; its id is durable before its first use and is never used again. Inside it every
// store has an id of its own, given out the same way. The full key of a value is
//
//	key space, store, segment, key
//
// A segment groups what expires together; a key-value store has only segment 0.
//
// One move of an engine follows another. What a move carries beside its writes, the record, belongs to the caller; the
// engine keeps it so that it never speaks of data that is not there.
package engine
