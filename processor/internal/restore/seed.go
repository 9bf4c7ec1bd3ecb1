package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Seed may bring a task forward by other means than its changelogs: by a copy that somebody else has. It is asked once per
// restore, or per beginning of a standby, by the writer of the task, after what is to be read is known and before it is read.
// tried says that the task may not be what it was: it is judged again, and read on from where it is then. A Seed that could not
// do it leaves a copy that can be read on from, be it an empty one. An error ends the restore.
type Seed func(ctx context.Context, need Need) (tried bool, err error)

// Need is what there is to read.
type Need struct {
	// Offsets of all changelogs of the task together.
	Offsets int64
	// Fits asks the brokers whether a state of another copy is a past of the changelogs: of the same topics, not of what was
	// truncated since, not before what was deleted. age is how old the state is by now. left is how many offsets there are to be
	// read behind it. A state that is none is [*store.CopyRefusedError], and so is one that would put a store back which is exact here.
	Fits func(ctx context.Context, cp store.Checkpoint, age time.Duration) (left int64, err error)
	// Dropping must be called right before the local copy is dropped for another one. It returns what Offsets is without one.
	Dropping func() int64
}

// errSeeded asks for another attempt: the copy is another one.
var errSeeded = errors.New("restore: the local copy was seeded")

// seed asks for a copy from elsewhere.
func (j *job) seed(ctx context.Context, dropping func()) (tried bool, err error) {
	if j.req.Seed == nil || j.seeded {
		return false, nil
	}
	var need Need
	for _, s := range j.stores {
		need.Offsets += int64(max(s.end-s.from, 0))
	}
	if need.Offsets == 0 {
		return false, nil
	}
	j.seeded = true
	need.Fits, need.Dropping = j.fits, func() (all int64) {
		dropping()
		j.dropping()
		for _, s := range j.stores {
			s.chain = false // there is nothing left that could be put back
			all += int64(max(s.end-s.facts.begin, 0))
		}
		return all
	}
	return j.req.Seed(ctx, need)
}

// fits is Need.Fits. The ends are asked for anew: the copy may be further than they were.
func (j *job) fits(ctx context.Context, cp store.Checkpoint, age time.Duration) (left int64, err error) {
	facts, err := j.r.facts(ctx, j.req.Changelogs, j.partition())
	if err != nil {
		return 0, err
	}
	refuse := func(s *restored, reason string) error {
		return &store.CopyRefusedError{Task: j.req.Task.ID(), Store: s.name, Reason: reason}
	}
	for _, s := range j.stores {
		probe := restored{name: s.name, log: s.log, facts: facts[s.log.Topic]}
		pos, ok := cp.Changelogs[s.name]
		switch {
		case !ok:
			return 0, refuse(s, "it has no changelog position")
		case s.chain && pos.Next < s.from:
			return 0, refuse(s, fmt.Sprintf("it is at offset %d, the local copy at %d", pos.Next, s.from))
		}
		v, err := j.judgeAt(ctx, &probe, cp, age)
		switch {
		case err != nil:
			return 0, err
		case v.action != done && v.action != resume:
			return 0, refuse(s, v.reason)
		}
		left += int64(probe.facts.end - v.from)
	}
	return left, nil
}
