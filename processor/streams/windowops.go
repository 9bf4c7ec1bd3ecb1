package streams

import (
	"iter"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Why records are dropped.
const (
	dropLate       = "late"
	dropPartlyLate = "late for some of its windows"
)

// tally is what became of a record in its windows.
type tally struct{ kept, closed int }

// report counts a record that is not in all of its windows, once.
func (t tally) report(ctx *processor.Context) {
	switch {
	case t.closed == 0:
	case t.kept == 0:
		ctx.Drop(dropLate)
	default:
		ctx.Drop(dropPartlyLate)
	}
}

// gridAggregation is that of tumbling, hopping and unlimited windows (upstream's KStreamWindowAggregate).
func gridAggregation[K, V, A any](k *keptWindows[K, A], open openWindows[K, A], f folds[K, V, A]) operator[Record[K, V], Change[serde.Windowed[K], A]] {
	return func(sc *scope[Change[serde.Windowed[K], A]]) (func(*Record[K, V]) error, error) {
		w, err := open(sc)
		if err != nil {
			return nil, err
		}
		several := k.kind.grid != nil && k.kind.grid.Advance < k.kind.grid.Size
		return (&gridTask[K, V, A]{w: w, add: f.add, several: several}).take, nil
	}
}

// gridTask aggregates in one task.
type gridTask[K, V, A any] struct {
	w   *windowKeeper[K, A]
	add func(a A, ok bool, r *Record[K, V]) (A, bool)
	// several: a record may be in more than one window.
	several bool
	out     Change[serde.Windowed[K], A]
}

func (g *gridTask[K, V, A]) take(r *Record[K, V]) error {
	ctx, kind := g.w.sc.Context, &g.w.kept.kind
	kb, err := admitted(ctx, r, &g.w.keys)
	if kb == nil || err != nil {
		return err
	}
	now, err := g.w.begin(r.Timestamp, r.Headers)
	if err != nil {
		return err
	}
	var t tally
	for start := range kind.starts(r.Timestamp) {
		end := kind.end(start)
		if kind.closes(end) <= now {
			t.closed++
			continue
		}
		t.kept++
		if err = g.into(r, kb, start, end); err != nil {
			break
		}
	}
	if g.several {
		err = g.w.settle(kb, err)
	}
	if err == nil {
		t.report(ctx)
	}
	return err
}

// into adds a record to one of its windows.
func (g *gridTask[K, V, A]) into(r *Record[K, V], kb []byte, start, end int64) error {
	old, row, err := g.w.kept.find(g.w.rows, kb, start, end)
	if err != nil {
		return err
	}
	ok := row.Data != nil
	next, keep := g.add(old, ok, r)
	g.out = Change[serde.Windowed[K], A]{
		Key: serde.Windowed[K]{Key: r.Key, Start: start, End: end}, New: next, NoNew: !keep, Old: old, NoOld: !ok,
		Timestamp: r.Timestamp, Headers: r.Headers,
	}
	if ok {
		g.out.Timestamp = max(row.Timestamp, r.Timestamp)
	}
	if g.several {
		return g.w.change(kb, &g.out, row)
	}
	return g.w.put(kb, &g.out)
}

// first and last windows that a record of time t is in, by their start.
func (k windowKind) first(t int64) (first, last int64) {
	if k.grid == nil {
		return k.unlimited.Start, min(k.unlimited.Start, t)
	}
	return k.grid.First(t), t
}

// starts are those of the windows that a record of time t is in.
func (k windowKind) starts(t int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		step := windows.Forever.Milliseconds()
		if k.grid != nil {
			step = k.grid.Advance.Milliseconds()
		}
		start, last := k.first(t)
		for start <= last && yield(start) && last-start >= step { // the next one may begin beyond the end of time
			start += step
		}
	}
}

// slidingAggregation is that of sliding windows (upstream's KStreamSlidingWindowAggregate). The timestamp of a window's value is the greatest
// of its records: what is kept is planned by it.
func slidingAggregation[K, V, A any](k *keptWindows[K, A], open openWindows[K, A], f folds[K, V, A]) operator[Record[K, V], Change[serde.Windowed[K], A]] {
	return func(sc *scope[Change[serde.Windowed[K], A]]) (func(*Record[K, V]) error, error) {
		w, err := open(sc)
		if err != nil {
			return nil, err
		}
		return (&slidingTask[K, V, A]{windows: *k.kind.sliding, w: w, add: f.add}).take, nil
	}
}

// slidingTask aggregates in one task.
type slidingTask[K, V, A any] struct {
	windows windows.Sliding
	w       *windowKeeper[K, A]
	add     func(a A, ok bool, r *Record[K, V]) (A, bool)
	near    nearby
	steps   []windows.Step
	out     Change[serde.Windowed[K], A]
}

func (s *slidingTask[K, V, A]) take(r *Record[K, V]) error {
	ctx := s.w.sc.Context
	kb, err := admitted(ctx, r, &s.w.keys)
	if kb == nil || err != nil {
		return err
	}
	now, err := s.w.begin(r.Timestamp, r.Headers)
	if err != nil {
		return err
	}
	if s.windows.Late(r.Timestamp, now) {
		ctx.Drop(dropLate)
		return nil
	}
	if err := s.near.load(s.w.rows.window, s.windows, kb, r.Timestamp); err != nil {
		return err
	}
	late := true
	s.steps = s.windows.AppendPlan(s.steps[:0], s.near.kept, r.Timestamp, now)
	for _, step := range s.steps {
		late = late && !step.Counts
		if err = s.change(r, kb, step); err != nil {
			break
		}
	}
	if err := s.w.settle(kb, err); err != nil {
		return err
	}
	if late {
		ctx.Drop(dropLate)
	}
	return nil
}

// change writes one of the windows that a record changes.
func (s *slidingTask[K, V, A]) change(r *Record[K, V], kb []byte, step windows.Step) (err error) {
	k, c := s.w.kept, &s.out
	*c = Change[serde.Windowed[K], A]{
		Key: serde.Windowed[K]{Key: r.Key, Start: step.Start, End: k.kind.end(step.Start)}, NoOld: true, Timestamp: step.Latest, Headers: r.Headers,
	}
	var before store.Value
	base := step.Base != windows.None
	if base {
		if c.New, err = k.values.Decode(s.near.values[step.Base]); err != nil {
			return err
		}
		if s.near.kept[step.Base].Start == step.Start { // it was this window's; else it was another's
			if c.Old, err = k.values.Decode(s.near.values[step.Base]); err != nil {
				return err
			}
			c.NoOld = false
			before = store.Value{Data: s.near.values[step.Base], Timestamp: s.near.kept[step.Base].Latest}
		}
	}
	if step.Counts {
		var keep bool
		c.New, keep = s.add(c.New, base, r)
		c.NoNew = !keep
	}
	return s.w.change(kb, c, before)
}

// nearby is the kept windows that a record has to do with.
type nearby struct {
	kept   []windows.Kept
	values [][]byte
}

func (n *nearby) load(rows store.Window, w windows.Sliding, key []byte, t int64) error {
	n.kept, n.values = n.kept[:0], n.values[:0]
	from, to := w.Near(t)
	it, err := rows.Scan(store.WindowScan{Key: key, From: from, To: to})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		n.kept = append(n.kept, windows.Kept{Start: e.Start, Latest: e.Timestamp})
		n.values = append(n.values, e.Data)
	}
	return it.Err()
}
