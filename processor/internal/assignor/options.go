package assignor

import "github.com/statemesh/statemesh/store"

// Options of a placement. The zero value places actives alone, wherever the balance wants them.
type Options struct {
	// Standbys is how many processes besides the active's are to follow each stateful task (upstream's
	// num.standby.replicas).
	Standbys int
	// Ends is how far each stateful task's changelogs go: the sum of their last stable offsets, to compare with
	// [Held.Offset]. Not nil, it makes the placement aware of lags: a task moves only where its state has caught up. Of a task
	// without an entry nothing is known: it counts as caught up only with its owner. Nil: state attracts, and that is all.
	Ends map[store.TaskID]int64
	// AcceptableLag is how many offsets a copy may be behind to count as caught up, over all changelogs of its task
	// (acceptable.recovery.lag, KIP-441). Less than 0 counts as 0.
	AcceptableLag int64
	// MaxWarmups bounds the warm-ups of the whole fleet at any time (max.warmup.replicas); less than 1 counts as 1.
	MaxWarmups int
	// RackAwareTags are the keys of [Member.Tags] in which the copies of a task should differ, most important first
	// (rack.aware.assignment.tags, KIP-708). Empty: they should differ in [Member.Rack].
	RackAwareTags []string
}

// DefaultAcceptableLag and DefaultMaxWarmups are upstream's.
const (
	DefaultAcceptableLag = int64(10_000)
	DefaultMaxWarmups    = 2
)
