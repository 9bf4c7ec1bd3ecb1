package processor

import (
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
)

// ObservedTime is the stream time of an operator: the greatest time of what came to it, while [Context.CurrentStreamTime] is that of all
// records of the task (upstream's observedStreamTime of a processor, which begins anew at each start). It is part of the task's commits,
// in the metadata of its offsets: it survives restarts and moves, goes back with a rollback, and is never ahead of the offsets. It
// belongs to the task's stream thread.
type ObservedTime struct {
	id string
	// now runs ahead of the last commit.
	now, committed int64
}

// Unobserved is an ObservedTime before the first record.
const Unobserved = commitmeta.Unobserved

// Now is the time in Unix milliseconds, Unobserved before the first record.
func (o *ObservedTime) Now() int64 { return o.now }

// Observe takes in the time of a record and returns the time.
func (o *ObservedTime) Observe(timestamp int64) int64 {
	o.now = max(o.now, timestamp)
	return o.now
}

// ObservedTime returns the time of this name in this task. Nodes that ask for one name share it. The name should be that of a store that
// the time belongs with: it stays what it is as long as the store does. A name that the last commit did not have begins without a time;
// if that commit has no times at all, being that of a version without them, with the task's stream time.
func (c *Context) ObservedTime(name string) (*ObservedTime, error) {
	o, err := c.task.observed.of(name)
	if err != nil {
		return nil, fmt.Errorf("processor %s: %w", c.node.def.name, err)
	}
	return o, nil
}

// observedTimes are those of a task.
type observedTimes struct {
	all []*ObservedTime
	// restored are those of the commit that the task began with, by id; nil: it has none, and otherwise is the time of each.
	restored  map[string]int64
	otherwise int64
}

// begin takes over what a commit has.
func (o *observedTimes) begin(times map[string]int64, streamTime int64) {
	o.restored, o.otherwise = times, Unobserved
	if times == nil && streamTime >= 0 {
		o.otherwise = streamTime
	}
}

func (o *observedTimes) of(name string) (*ObservedTime, error) {
	id := commitmeta.TimeID(name)
	if i := slices.IndexFunc(o.all, func(t *ObservedTime) bool { return t.id == id }); i >= 0 {
		return o.all[i], nil
	}
	if len(o.all) == commitmeta.MaxTimes {
		return nil, fmt.Errorf("time %q: a task has at most %d times of operators; split the sub-topology with a repartition", name, commitmeta.MaxTimes)
	}
	at, ok := o.restored[id]
	if !ok {
		at = o.otherwise
	}
	t := &ObservedTime{id: id, now: at, committed: at}
	o.all = append(o.all, t)
	return t, nil
}

// encode is what a commit says of them.
func (o *observedTimes) encode(streamTime int64) string {
	times := make([]commitmeta.Time, len(o.all))
	for i, t := range o.all {
		times[i] = commitmeta.Time{ID: t.id, At: t.now}
	}
	return commitmeta.EncodeTimes(streamTime, times)
}

func (o *observedTimes) becomeCommitted() {
	for _, t := range o.all {
		t.committed = t.now
	}
}

func (o *observedTimes) rollback() {
	for _, t := range o.all {
		t.now = t.committed
	}
}
