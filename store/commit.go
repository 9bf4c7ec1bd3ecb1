package store

import "maps"

// LogPosition says how far a state has followed one partition of its changelog.
type LogPosition struct {
	// TopicID tells a recreated topic from the one that was read; all zero when the broker has none.
	TopicID [16]byte
	// LeaderEpoch is that of the last batch read, -1 when unknown.
	LeaderEpoch int32
	// Next is the next offset to read.
	Next Offset
}

// Checkpoint is what moves together with a task's data: it says exactly which commit the data is.
type Checkpoint struct {
	// Sequence of the last commit contained.
	Sequence Sequence
	// Changelogs holds the position of each logged store. Invariant: never ahead of the data.
	Changelogs map[Name]LogPosition
	// Inputs holds, per input partition of the task, the next offset to process, as committed to the group.
	Inputs map[TopicPartition]Offset
	// Position is the highest input offset behind the commit (for queries): of a record that was applied, or of what was
	// skipped for good, as a record that could not be read or the end of a transaction.
	Position Position
	// StreamTime is the greatest record timestamp seen, in Unix milliseconds; -1 when none was.
	StreamTime int64
	// StoreTimes holds, per window, session or versioned store, its own stream time: the greatest window start, session end
	// or timestamp that was put into it. A store that has seen nothing is absent. The state keeps it, not its caller.
	StoreTimes map[Name]int64
	// WallTime is this machine's clock when the commit was acknowledged, Unix milliseconds; 0 when unknown. A restore
	// compares it with the changelog's delete.retention.ms: an older copy may hold keys whose deletion the log no longer
	// shows. Nothing else depends on it.
	WallTime int64
	// Restoring marks a copy that has not yet reached its restore bound: it must not be read.
	Restoring bool
}

// Clone returns a deep copy.
func (c Checkpoint) Clone() Checkpoint {
	c.Changelogs = maps.Clone(c.Changelogs)
	c.Inputs = maps.Clone(c.Inputs)
	c.Position = c.Position.Clone()
	c.StoreTimes = maps.Clone(c.StoreTimes)
	return c
}

// Change is one change of one key, as it goes to the changelog and comes back from it.
type Change struct {
	Key []byte
	// Value without the stored timestamp; nil deletes.
	Value []byte
	// Timestamp in Unix milliseconds: that of the changelog record and, in a timestamped store, of the value.
	Timestamp int64
}
