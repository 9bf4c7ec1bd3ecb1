package restore

import (
	"fmt"
	"time"

	"github.com/statemesh/statemesh/store"
)

// action is what to do with one store of a task.
type action uint8

const (
	// done: the copy has everything up to the bound.
	done action = iota
	// resume: read from the verdict's offset to the bound.
	resume
	// rebuild: drop the local copy, then read the log from its start. Loses nothing: the log is the truth.
	rebuild
	// refuse: what the broker says contradicts itself.
	refuse
)

func (a action) String() string {
	return [...]string{"done", "resume", "rebuild", "refuse"}[a]
}

// evidence is all that a verdict depends on.
type evidence struct {
	// logged is false for a store without a changelog.
	logged bool
	// begin is the log start offset, end the bound: the high watermark.
	begin, end store.Offset
	// topic is the id of the topic there is, all zero when unknown.
	topic [16]byte
	// leaderEpoch of the partition now; -1 when unknown.
	leaderEpoch int32
	// have is the local copy's position; nil when it has none.
	have *store.LogPosition
	// epochEnd is where the log of have.LeaderEpoch ends at the leader; -1 when it was not asked or is unknown.
	epochEnd store.Offset
	// age of the local copy; 0 when unknown. retention is the topic's delete.retention.ms; 0 when unknown.
	age, retention time.Duration
}

// verdict is what follows. from is where to read on (resume, rebuild) or where the copy stands (done).
type verdict struct {
	action action
	from   store.Offset
	reason string
}

// judge decides about one store. It reads nothing but its argument (CR-11).
//
// A local copy is good for the offsets below its position only if they are still the log's own past: same topic, not
// truncated below it, and no gap between its position and the log's start in which a deletion may have been lost.
func judge(e evidence) verdict {
	switch {
	case !e.logged:
		return verdict{action: done}
	case e.begin < 0 || e.end < e.begin:
		return verdict{action: refuse, reason: fmt.Sprintf("start offset %d, end offset %d", e.begin, e.end)}
	case e.have == nil:
		return readFrom(e.begin, e.end)
	}
	if reason := spoiled(e); reason != "" {
		return verdict{action: rebuild, from: e.begin, reason: reason}
	}
	return readFrom(e.have.Next, e.end)
}

func readFrom(next, end store.Offset) verdict {
	if next == end {
		return verdict{action: done, from: next}
	}
	return verdict{action: resume, from: next}
}

// spoiled says why the local copy is no past state of this log, or is "".
func spoiled(e evidence) string {
	h := e.have
	switch {
	case h.Next < 0:
		return fmt.Sprintf("local position %d is no offset", h.Next)
	case known(h.TopicID) && known(e.topic) && h.TopicID != e.topic:
		return fmt.Sprintf("topic recreated: id %x, local copy of %x", e.topic, h.TopicID)
	case h.LeaderEpoch >= 0 && e.leaderEpoch >= 0 && h.LeaderEpoch > e.leaderEpoch:
		return fmt.Sprintf("leader epoch %d, local copy read under %d", e.leaderEpoch, h.LeaderEpoch)
	case h.Next > e.end:
		return fmt.Sprintf("log ends at %d, local copy at %d", e.end, h.Next)
	case e.epochEnd >= 0 && h.Next > e.epochEnd:
		return fmt.Sprintf("log truncated: leader epoch %d ended at %d, local copy at %d", h.LeaderEpoch, e.epochEnd, h.Next)
	case h.Next < e.begin:
		return fmt.Sprintf("log starts at %d, local copy at %d", e.begin, h.Next)
	case h.Next < e.end && e.retention > 0 && e.age > e.retention:
		return fmt.Sprintf("local copy is %s old, deletions are kept for %s", e.age.Round(time.Second), e.retention)
	default:
		return ""
	}
}

func known(id [16]byte) bool { return id != [16]byte{} }
