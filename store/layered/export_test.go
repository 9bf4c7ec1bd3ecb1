package layered

import (
	"context"
	"maps"
	"slices"
	"testing"
	"unsafe"
	"weak"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// SnapshotBytes is the size of one.
const SnapshotBytes = unsafe.Sizeof(Snapshot{})

// MoveNow moves what is recent of one task.
func MoveNow(s *Stores, t *Task) error { return s.moveNow(t) }

// OpenTasks lists the tasks that are open.
func OpenTasks(s *Stores) []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.tasks))
}

// Leaks counts what the collector found open.
func Leaks(s *Stores) int64 { return s.metrics.leaks.Load() }

// StallMoves makes the task look as if a move of it were running, until EndStall.
func StallMoves(t *Task) *Task {
	t.moving <- struct{}{}
	return t
}

// EndStall ends what StallMoves began.
func EndStall(s *Stores, t *Task) { s.endMove(t) }

// RecentTable watches the table that takes a store's writes: the function reports whether anything keeps it in memory.
func RecentTable(tb testing.TB, t *Task, name store.Name) (kept func() bool) {
	tb.Helper()
	p, err := t.part(name)
	if err != nil {
		tb.Fatal(err)
	}
	w := weak.Make(p.active)
	return func() bool { return w.Value() != nil }
}

// ReclaimNow gives back what was dropped.
func ReclaimNow(tb testing.TB, s *Stores) {
	tb.Helper()
	for _, e := range s.engines() {
		if _, err := e.Reclaim(tb.Context()); err != nil {
			tb.Fatal(err)
		}
	}
}

// Evictions counts the entries that made room for others.
func Evictions(r *RecordCache) int64 { return r.stats.evictions + r.report.evictions.Load() }

// EngineSegments lists which of the first segments of a store its engine has rows in.
func EngineSegments(tb testing.TB, t *Task, name store.Name, first uint64) []uint64 {
	tb.Helper()
	p, err := t.part(name)
	if err != nil {
		tb.Fatal(err)
	}
	use := t.engines[p.engine]
	snap, err := use.Snapshot(use.space)
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Release()
	out := []uint64{}
	for segment := range first {
		it, err := snap.Iterate(engine.Range{Store: p.id, Segment: engine.Segment(segment)})
		if err != nil {
			tb.Fatal(err)
		}
		if it.Next() {
			out = append(out, segment)
		}
		it.Close()
	}
	return out
}

// FormatVersion is the present format.
const FormatVersion = formatVersion

// Upgrade locks a directory, brings it to the present format by steps, and lets it go.
func Upgrade(ctx context.Context, dir string, steps map[int]func(string) error) error {
	own := make(map[int]upgrade)
	for v, step := range steps {
		own[v] = step
	}
	d, err := lockDirectoryWith(ctx, dir, own)
	if err != nil {
		return err
	}
	return d.release()
}

// LoadBytes sets how much of a copy is collected for one move.
func LoadBytes(s *Stores, n int64) { s.loadBytes = n }

// Dir is the state directory.
func Dir(s *Stores) string { return s.cfg.Dir }

// EngineRows counts the rows that an engine holds of a store, in any segment.
func EngineRows(tb testing.TB, t *Task, name store.Name) (n int) {
	tb.Helper()
	p, err := t.part(name)
	if err != nil {
		tb.Fatal(err)
	}
	use := t.engines[p.engine]
	snap, err := use.Snapshot(use.space)
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Release()
	for segment := range engine.Segment(1 << 13) {
		it, err := snap.Iterate(engine.Range{Store: p.id, Segment: segment})
		if err != nil {
			tb.Fatal(err)
		}
		for it.Next() {
			n++
		}
		it.Close()
		if p.segments == nil {
			break
		}
	}
	return n
}
