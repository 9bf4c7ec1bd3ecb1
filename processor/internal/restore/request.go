package restore

import (
	"time"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// Request describes one restore.
type Request struct {
	// Task to restore. The caller of Restore is its writer until Restore returns.
	Task Task
	// Inputs of the task: all partitions whose offsets it commits.
	Inputs []store.TopicPartition
	// Changelogs of the logged stores. Stores without a changelog are left out: they start empty.
	Changelogs map[store.Name]Changelog
	// Fence holds the transactional ids of owners that vanished.
	Fence []string
	// Seed may bring the copy forward by other means before the changelogs are read; nil: nobody does.
	Seed Seed
	// Dropping is told right before the local copy is dropped, for an empty one or for another one: what was known of it is not true of
	// what comes. It must not block. nil: nobody.
	Dropping func()
	// Progress is called from Restore's goroutine: once at the start, then every Config.ProgressInterval, and once at the
	// end. It must not block. nil: no reports.
	Progress func(Progress)
}

// Changelog names the log of one store.
type Changelog struct {
	Topic string
	// ID of the topic as topics.Ensure returned it; all zero when the brokers have none.
	ID [16]byte
	// Retention is the topic's delete.retention.ms. A copy that is older, and behind, is rebuilt: it may hold keys whose
	// deletion the log no longer shows. 0: unknown, not checked.
	Retention time.Duration
	// Replay is set when the log is a source topic, an input of the task: it takes the records instead of Task.Restore, and
	// makes of them in the store what processing did. The bound is the input's committed offset then, and not the end of the
	// log: what lies beyond has still to be processed.
	Replay func([]Record) error
}

// Result says where the task stands: what it is restored to, and where its inputs go on.
type Result struct {
	// Inputs holds the committed offset of each input, as the group has it.
	Inputs map[store.TopicPartition]Committed
	// Sequence of the task's last commit: the highest over its inputs. The next commit has the one after.
	Sequence store.Sequence
	// StreamTime at that commit, Unix milliseconds; -1 when none is known.
	StreamTime int64
	// Observed are the times of the task's operators at that commit, by id; nil when it has none. See commitmeta.
	Observed map[string]int64
	// Position of the inputs that the state reflects.
	Position store.Position
	// Exact holds, per store that was restored from a source topic, the offset that processing must reach before the store
	// is a state that ever was: the topic may be compacted, and a value from before the committed offset be gone because
	// there is a newer one behind it. Stores that are one already are left out. While it is not empty, the copy is marked as
	// restoring.
	Exact map[store.Name]store.Offset
	// Rebuilt says why the local copy was dropped; empty when it was not.
	Rebuilt string
	// Records that were read from the changelogs.
	Records int64
}

// Committed is an offset as the group has it.
type Committed struct {
	// Next is the next offset to process. Meaningless unless Exists.
	Next   store.Offset
	Exists bool
	// Meta of the commit that wrote it; the zero sequence when the metadata is not ours.
	Meta commitmeta.Meta
}

// Phase of a restore.
type Phase uint8

// The phases: one Started, any number of Restoring, one Ended.
const (
	Started Phase = iota
	Restoring
	Ended
)

// Progress of one restore. The numbers count changelog offsets over all stores of the task; a compacted log has fewer
// records than offsets.
type Progress struct {
	Task  store.TaskID
	Phase Phase
	// Done of Total.
	Done, Total int64
	// Left estimates the time to go by the rate so far; 0 when unknown or nothing is left.
	Left time.Duration
	// Took since the start.
	Took   time.Duration
	Stores []StoreProgress
	// Err is set with Ended when the restore did not finish: it failed or was interrupted.
	Err error
}

// StoreProgress is the part of one store.
type StoreProgress struct {
	Store     store.Name
	Topic     string
	Partition store.Partition
	// From is where reading began, Next the next offset to read, End the bound. Invariant: From <= Next.
	From, Next, End store.Offset
}
