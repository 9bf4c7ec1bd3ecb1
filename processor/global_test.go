package processor

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// TestGlobalCopyOfAPartIsNoYounger: what is committed of a catch-up keeps the age of the last whole copy, which decides whether
// deletions may have been missed.
func TestGlobalCopyOfAPartIsNoYounger(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, nil, nil, "x")
	now := func() time.Time { return b.now }
	g := &globalStore{rt: &Runtime{now: now}, now: now, bs: &builtStore{spec: store.Spec{Name: "s"}}}
	defer g.show(nil)
	g.publish(b.task.state)
	whole := b.now.UnixMilli()
	b.now = b.now.Add(time.Hour)
	g.keep(b.task.state)
	if cp := b.task.state.Checkpoint(); !cp.Restoring || cp.WallTime != whole {
		t.Errorf("kept: restoring %t, wall time %d, want %d", cp.Restoring, cp.WallTime, whole)
	}
	g.publish(b.task.state)
	if cp := b.task.state.Checkpoint(); cp.Restoring || cp.WallTime != b.now.UnixMilli() {
		t.Errorf("published: %+v", cp)
	}
}
