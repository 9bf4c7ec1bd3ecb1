package layered

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Load takes the rows of a copy into a task, straight into its engines. Until Finish the task is Restoring and neither
// readable nor writable, and a copy that was begun and not finished is an empty one at the next opening: the record of its
// moves has no changelog position, which is what a copy without data has. Writer only.
type Load struct {
	task  *Task
	cp    store.Checkpoint // that it will have
	times []moment         // of the task's stores, by number
	parts []*part          // by index in the header

	writes [][]engine.Write // not yet moved, by the number of the engine
	block  []byte           // their keys and values
	size   int64            // what they cost

	last        store.CopyPlace
	rows, bytes int64
	ended       bool
}

// Accepts says why a copy is of no use to the task, as Load does, and touches nothing. Writer only.
func (t *Task) Accepts(h store.CopyHeader) error {
	l := &Load{task: t, cp: h.Checkpoint.Clone()}
	return l.accept(h)
}

// Load begins to fill the task with a copy of another instance's; what is there goes. asked is when the request for it was
// sent, by this instance's clock. *store.CopyRefusedError when the copy is of no use to the task, which stays as it is then; any
// other error is one of Wipe.
func (t *Task) Load(ctx context.Context, h store.CopyHeader, asked time.Time) (*Load, error) {
	if t.current.Load() == nil {
		return nil, store.ErrClosed
	}
	l := &Load{task: t, cp: h.Checkpoint.Clone()}
	if err := l.accept(h); err != nil {
		return nil, err
	}
	if l.cp.WallTime = 0; h.Age >= 0 {
		l.cp.WallTime = max(0, asked.Add(-h.Age).UnixMilli())
	}
	if err := t.wipe(ctx, l); err != nil {
		return nil, err
	}
	l.writes = make([][]engine.Write, len(t.engines))
	return l, nil
}

// Place is that of the last row that was taken: a stream that broke goes on behind it, on the same snapshot.
func (l *Load) Place() store.CopyPlace { return l.last.Clone() }

// Loaded is how much was taken: rows, and bytes of keys and values.
func (l *Load) Loaded() (rows, bytes int64) { return l.rows, l.bytes }

// Add takes rows, in the order of the copy; their slices are the caller's. A row that cannot be one of the copy is a
// *store.CopyBrokenError. After any error the load is over and the task wiped; when the wipe failed too, which the error
// says, the task is unfinished until Abandon or Wipe succeeds.
func (l *Load) Add(ctx context.Context, rows []store.CopyRow) error {
	if err := l.alive(); err != nil {
		return err
	}
	for _, r := range rows {
		if err := l.take(r); err != nil {
			return l.fail(ctx, err)
		}
		if l.size >= l.task.stores.loadBytes {
			if err := l.moveSome(ctx); err != nil {
				return l.fail(ctx, err)
			}
		}
	}
	return nil
}

// Finish makes what is left durable together with the checkpoint of the copy, and publishes it. After an error the task is
// as after one of Add.
func (l *Load) Finish(ctx context.Context) error {
	if err := l.alive(); err != nil {
		return err
	}
	if err := l.moveLast(ctx); err != nil {
		return l.fail(ctx, err)
	}
	l.ended = true
	return nil
}

// Abandon wipes the task unless the load was finished, or its failure has done so.
func (l *Load) Abandon(ctx context.Context) error {
	if l.task.loading != l || l.task.current.Load() == nil {
		return nil
	}
	return l.task.Wipe(ctx)
}

// accept looks whether the copy is one of this task and its rows are laid out as here.
func (l *Load) accept(h store.CopyHeader) error {
	t := l.task
	switch {
	case h.Format != store.CopyFormat:
		return l.refuse("", "its rows have format %d, this program reads %d", h.Format, store.CopyFormat)
	case h.Task != t.id:
		return l.refuse("", "it is one of task %s", h.Task)
	case h.Checkpoint.Restoring:
		return l.refuse("", "it is no whole state")
	case h.Checkpoint.Sequence < 0:
		return l.refuse("", "it is of commit %d", h.Checkpoint.Sequence)
	case len(h.Stores) > math.MaxUint16:
		return l.refuse("", "it has %d stores", len(h.Stores))
	}
	missing := make(map[store.Name]bool)
	l.times = make([]moment, len(t.parts))
	for _, p := range t.parts {
		missing[p.spec.Name] = !p.spec.NoChangelog
		l.times[p.number].time = noTime
	}
	for _, cs := range h.Stores {
		if !missing[cs.Name] {
			return l.refuse(cs.Name, "this task has no logged store of that name, or it comes twice")
		}
		missing[cs.Name] = false
		if err := l.acceptStore(cs, h.Checkpoint); err != nil {
			return err
		}
	}
	for name, gone := range missing {
		if gone {
			return l.refuse(name, "it is not in the copy")
		}
	}
	if len(l.parts) == 0 {
		return l.refuse("", "no store of the task has a changelog")
	}
	l.keepKnown()
	return nil
}

// acceptStore looks whether a store of the copy is as it is here, and whether the checkpoint says what there must be of it.
func (l *Load) acceptStore(cs store.CopyStore, cp store.Checkpoint) error {
	p := l.task.byName[cs.Name]
	if why := cs.Differs(store.CopyStoreOf(p.spec)); why != "" {
		return l.refuse(cs.Name, "%s", why)
	}
	if pos, ok := cp.Changelogs[cs.Name]; !ok || pos.Next < 0 {
		return l.refuse(cs.Name, "it has no changelog position")
	}
	at, ok := cp.StoreTimes[cs.Name]
	if ok && (p.segments == nil || at < 0) || cs.Last < 0 {
		return l.refuse(cs.Name, "it has time %d and number %d", at, cs.Last)
	}
	if ok {
		l.times[p.number].time = at
	}
	l.times[p.number].seq = cs.Last
	l.parts = append(l.parts, p)
	return nil
}

func (l *Load) refuse(name store.Name, reason string, args ...any) error {
	return &store.CopyRefusedError{Task: l.task.id, Store: name, Reason: fmt.Sprintf(reason, args...)}
}

// keepKnown leaves in the checkpoint what is said of the stores in the copy.
func (l *Load) keepKnown() {
	logs := make(map[store.Name]store.LogPosition, len(l.parts))
	for _, p := range l.parts {
		logs[p.spec.Name] = l.cp.Changelogs[p.spec.Name]
	}
	l.cp.Changelogs, l.cp.StoreTimes = logs, nil // the times are in the moments
}

// alive says why the load is over.
func (l *Load) alive() error {
	if l.ended || l.task.loading != l || l.task.current.Load() == nil {
		return store.ErrClosed
	}
	return nil
}

// fail ends the load and wipes the task: nothing of half a copy stays.
func (l *Load) fail(ctx context.Context, err error) error {
	l.ended, l.writes, l.block = true, nil, nil
	if !errors.Is(err, store.ErrCopyBroken) { // which names the task
		err = fmt.Errorf("task %s: load: %w", l.task.id, err)
	}
	return errors.Join(err, l.task.Wipe(ctx))
}

// take checks a row and keeps it for the next move.
func (l *Load) take(r store.CopyRow) error {
	const cost = 64 // of a row beside its bytes
	broken := func(name store.Name, reason string) error {
		return &store.CopyBrokenError{Task: l.task.id, Store: name, Row: l.rows + 1, Reason: reason}
	}
	if int(r.Store) >= len(l.parts) {
		return broken("", fmt.Sprintf("store %d of %d", r.Store, len(l.parts)))
	}
	p := l.parts[r.Store]
	if l.last.Compare(r.Place()) >= 0 {
		return broken(p.spec.Name, "it is not behind the one before it")
	}
	if err := p.checkCopied(r, l.times[p.number].time); err != nil {
		return broken(p.spec.Name, strings.TrimSuffix(err.Error(), ": "+store.ErrCorrupt.Error())) // nothing local is
	}
	l.last = store.CopyPlace{Store: r.Store, Segment: r.Segment, Key: append(l.last.Key[:0], r.Key...)}
	size := len(r.Key) + len(r.Value)
	l.rows, l.bytes, l.size = l.rows+1, l.bytes+int64(size), l.size+int64(size)+cost
	if cap(l.block)-len(l.block) < size {
		l.block = make([]byte, 0, max(int(l.task.stores.loadBytes), size)) // the rows before keep theirs
	}
	n := len(l.block)
	l.block = append(append(l.block, r.Key...), r.Value...)
	key := l.block[n : n+len(r.Key) : n+len(r.Key)]
	l.writes[p.engine] = append(l.writes[p.engine], engine.Write{
		Store: p.id, Segment: engine.Segment(r.Segment), Key: key, Value: l.block[n+len(r.Key):],
	})
	return nil
}

// checkCopied says why a row of a copy cannot be one of this store, whose time in the copy is now.
func (p *part) checkCopied(r store.CopyRow, now int64) error {
	at, err := p.timeOf(r)
	if err != nil {
		return err
	}
	data := r.Value
	if timestamped(p.spec.Kind) {
		data = data[timestampBytes:]
	}
	if err := p.admit(r.Key, data); err != nil {
		return err
	}
	segment := engine.Segment(r.Segment)
	switch {
	case p.segments == nil && segment != 0:
		return fmt.Errorf("segment %d of a store that has none", segment)
	case p.segments == nil:
		return nil
	case at < 0 || at > now:
		return fmt.Errorf("its time is %d, that of the store %d", at, now)
	case p.spec.Kind == store.KindVersioned && segment == 0:
		return nil
	case segment != p.segments.of(at):
		return fmt.Errorf("segment %d of time %d, whose segment is %d", segment, at, p.segments.of(at))
	case at < p.segments.live(now):
		return fmt.Errorf("its time is %d, which has expired at %d", at, now)
	case p.spec.Kind == store.KindVersioned || p.spec.Kind == store.KindSession || p.spec.RetainDuplicates:
		return nil
	}
	if _, seq, err := p.rowTime(r.Key); err != nil || seq != 0 {
		return fmt.Errorf("number %d in a store without duplicates", seq)
	}
	return nil
}

// moveSome moves what was collected, with a record that says nothing of any store.
func (l *Load) moveSome(ctx context.Context) error {
	return l.move(ctx, l.task.rebase, func(number int) ([]byte, error) {
		if len(l.writes[number]) == 0 {
			return nil, nil
		}
		nothing := store.Checkpoint{StreamTime: -1, Restoring: true}
		return encodeRecord(nothing, l.held(number, func(*part) moment { return moment{time: noTime} }))
	})
}

// moveLast moves what is left with the record of the whole copy, and publishes that.
func (l *Load) moveLast(ctx context.Context) error {
	t := l.task
	publish := func() error {
		t.turn.Lock()
		defer t.turn.Unlock()
		if err := t.load(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		t.loading = nil
		t.unfinished.Store(false)
		return nil
	}
	return l.move(ctx, publish, func(number int) ([]byte, error) {
		return encodeRecord(l.cp, l.held(number, func(p *part) moment { return l.times[p.number] }))
	})
}

// move moves what was collected to the engines that record names one for, then calls then.
func (l *Load) move(ctx context.Context, then func() error, record func(number int) ([]byte, error)) error {
	t := l.task
	if err := t.moving.take(ctx); err != nil {
		return err
	}
	defer t.stores.endMove(t)
	if err := l.alive(); err != nil {
		return err
	}
	for i, use := range t.engines {
		rec, err := record(i)
		if err != nil {
			return err
		}
		if rec == nil {
			continue
		}
		bytes := int64(0)
		for _, w := range l.writes[i] {
			bytes += int64(len(w.Key) + len(w.Value))
		}
		start := time.Now()
		err = use.Move(ctx, engine.Move{Space: use.space, Writes: inOrder(l.writes[i]), Record: rec})
		t.stores.metrics.moved(err, bytes, time.Since(start))
		if err != nil {
			return err
		}
		l.writes[i] = l.writes[i][:0]
	}
	l.block, l.size = l.block[:0], 0
	return then()
}

// held lists the stores that lie in one engine, as its record names them; times says how far each one's own time is.
func (l *Load) held(number int, times func(*part) moment) []storeView {
	var out []storeView
	for _, p := range l.task.parts {
		if p.engine == number {
			out = append(out, storeView{placed: p.placed, now: times(p)})
		}
	}
	return out
}

// inOrder yields writes in the order of a move: they come by store as the copy has them, which may not be that of the ids here.
func inOrder(writes []engine.Write) iter.Seq[engine.Write] {
	slices.SortStableFunc(writes, func(a, b engine.Write) int { return cmp.Compare(a.Store, b.Store) })
	return slices.Values(writes)
}
