// Package restore brings the stores of a task to what its changelogs say was committed.
//
// A restore has a fixed order, and any other loses what a dying owner commits in between:
//
//  1. fence: InitProducerId on each transactional id of an owner that vanished, until it succeeds
//  2. the group's committed offsets of all inputs of the task, stable ones only
//  3. the bound: the high watermark of each changelog (ListOffsets READ_UNCOMMITTED)
//  4. read READ_COMMITTED until the position has reached the bound
//
// Under at_least_once there is nothing to fence; the rest is the same.
//
// A [Restorer] is owned by the instance. [Restorer.Run] fetches; [Restorer.Restore] is called for one task by the
// goroutine that owns the task as its writer, and blocks. Any number of restores run side by side: their partitions
// share one fetch request per broker and one byte budget.
//
// An interrupted restore loses nothing: what it has applied is in the task, marked as restoring, and the next one goes
// on from there. A copy that answers goes on to while what is read fits into one commit.
//
// [Restorer.Standby] follows the changelogs of a task without an end, by the same fetches. What it publishes are whole commits of
// each store, and only states that were: see [Standby]. [Rounds] prove how old such a copy is, without any other machine's clock.
package restore
