// Package layered keeps the state of an instance's tasks in three layers, newest first:
//
//	overlay   what the running Kafka transaction has written; seen by the task's own processors only
//	recent    commits that Kafka has acknowledged, in memory, immutable
//	engine    commits moved to an engine (Badger on disk, an ordered map in memory)
//
// The changelog is the write-ahead log, so the engine may lag behind: a crash replays the changelog from the engine's
// own record. [Stores] is owned by the instance and outlives any thread; a [Task] is the state of one task on this
// instance. The writer methods of a Task belong to one goroutine at a time; [Task.Snapshot] may be called by anyone.
//
// In place of a changelog a copy may be filled with the rows of another instance's: [Snapshot.Copy] reads them there,
// [Task.Load] takes them here. What was not loaded to its end is nothing.
package layered
