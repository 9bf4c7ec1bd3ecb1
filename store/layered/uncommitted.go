package layered

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
)

// running is what makes a view one of the overlay: it shows what no commit has made yet, and may never make.
type running struct {
	task     store.TaskID
	position store.Position
	// cut is set before a rollback takes anything away, so a read that finds it unset afterwards has seen a whole state.
	cut atomic.Bool
}

const (
	// showFor is how long the writer goes on showing its overlay at the end of each batch since it heard of a reader. Showing
	// costs each key one more version per batch, so it ends when nobody looks. The writer looks at the clock, once a batch, for
	// that is a fifth of what a read costs.
	showFor = 2 * time.Second
	// showWait is how long a reader who finds that nothing was shown lately waits for the end of the batch in hand.
	showWait = 250 * time.Millisecond
)

// Show lets readers at READ_UNCOMMITTED see the overlay as it is, if any asked lately. position says how far the inputs
// are processed. The writer calls it at the end of each batch. Writer only.
func (t *Task) Show(position func() store.Position) {
	if !t.touched {
		return // what is shown, or committed, is all there is
	}
	switch {
	case t.asked.Load():
		t.asked.Store(false) // who asks from now on is heard at the end of the next batch
		t.showUntil = time.Now().Add(showFor)
	case t.showUntil.IsZero():
	case time.Now().After(t.showUntil):
		t.showUntil = time.Time{}
	}
	if t.showUntil.IsZero() {
		if t.fresh.Load() {
			t.fresh.Store(false)
		}
		return
	}
	t.ShowNow(position)
}

// ShowNow is Show whether anybody asked or not: before a wait that is long for a reader, such as that of a commit.
func (t *Task) ShowNow(position func() store.Position) {
	if !t.touched || !t.inCommit {
		return
	}
	t.touched = false
	t.pub.Lock()
	defer t.pub.Unlock()
	v := t.successor()
	v.tick = t.marks.current
	t.marks.current++ // so that a later write makes a version of its own
	v.running = &running{task: t.id, position: position()}
	for i, p := range t.parts {
		sv := &v.stores[i]
		sv.layers = slices.Clone(sv.layers)
		sv.layers[0].count = int(p.active.count.Load())
		sv.now = p.now
		v.stores[i].now = p.now
	}
	v.retain()
	v.users.Store(1)
	t.views = append(t.views, v)
	t.show(v)
	t.prune()
}

// show makes v what readers at READ_UNCOMMITTED see, nil for the last commit. The caller holds pub, and prunes.
func (t *Task) show(v *view) {
	if old := t.shown.Swap(v); old != nil {
		old.drop()
	}
	t.fresh.Store(true)
	if t.showing != nil {
		close(t.showing)
		t.showing = nil
	}
}

// cutShown ends the reads of what a rollback is about to take away. The caller holds pub.
func (t *Task) cutShown() {
	for _, v := range t.views {
		if v.running != nil && v.tick > t.marks.published {
			v.running.cut.Store(true)
		}
	}
}

// SnapshotUncommitted pins what the writer had done at the end of its last batch, committed or not; wake, if not nil,
// makes a writer that rests call Show. It must be closed. Reads of it end with *store.NotReadyError when the writer rolls
// back what it shows. It is itself not ready when nobody read like this lately and the batch in hand takes long.
// Otherwise the errors are those of Snapshot.
func (t *Task) SnapshotUncommitted(ctx context.Context, wake func()) (*Snapshot, error) {
	if !t.asked.Load() { // a line that readers share is not written by each
		t.asked.Store(true)
	}
	if !t.fresh.Load() {
		if err := t.awaitShow(ctx, wake); err != nil {
			return nil, err
		}
	}
	return t.snapshot(t.newest())
}

// awaitShow waits for the end of the batch in hand.
func (t *Task) awaitShow(ctx context.Context, wake func()) error {
	t.pub.Lock()
	if t.showing == nil {
		t.showing = make(chan struct{})
	}
	shown := t.showing
	t.pub.Unlock()
	if t.fresh.Load() {
		return nil // meanwhile
	}
	if wake != nil {
		wake()
	}
	timer := time.NewTimer(showWait)
	defer timer.Stop()
	select {
	case <-shown:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return &store.NotReadyError{Partition: t.id.Partition, Reason: "a batch of records is being processed", RetryAfter: showWait}
	}
}

// newest pins what is shown or committed, whichever is newer; nil after the task was closed.
func (t *Task) newest() *view {
	for {
		shown, v := t.shown.Load(), t.current.Load() // in this order: a commit is published before what was shown goes
		if v == nil {
			return nil
		}
		if shown != nil && shown.tick > v.tick {
			v = shown
		}
		if v.pin() {
			return v
		}
	}
}

// Uncommitted returns the processed position when the snapshot shows more than a commit.
func (s *Snapshot) Uncommitted() (store.Position, bool) {
	if s.view.running == nil {
		return nil, false
	}
	return s.view.running.position, true
}

// intact refuses what was read of a state that a rollback took away. Asked after a read.
func (v *view) intact(name store.Name) error {
	if r := v.running; r != nil && r.cut.Load() {
		return &store.NotReadyError{Store: name, Partition: r.task.Partition, Reason: "what was read was rolled back", RetryAfter: 10 * time.Millisecond}
	}
	return nil
}
