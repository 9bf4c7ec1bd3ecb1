package views

import (
	"errors"
	"math"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/store"
)

// newWindowKeeper makes the processor that fills the store of a view with windows.
func newWindowKeeper(v View) processor.Processor {
	base := windowKeeper{name: store.Name(v.Name), update: newUpdate(v)}
	switch w := v.Window.windowing(); {
	case w.session != nil:
		return &sessionKeeper{windowKeeper: base, merge: newMerge(v.Type), session: *w.session}
	case w.sliding != nil:
		return &slidingKeeper{windowKeeper: base, sliding: *w.sliding}
	default:
		return &gridKeeper{windowKeeper: base, grid: *w.time}
	}
}

// windowKeeper is what the keepers of windows share.
type windowKeeper struct {
	name   store.Name
	update update
	ctx    scope
}

// Close implements processor.Processor.
func (k *windowKeeper) Close() error { return nil }

// streamTime is that of the task, which the record in hand has moved already (upstream keeps one per processor, and loses
// it at a restart).
func (k *windowKeeper) streamTime(r *processor.Record) int64 {
	return max(k.ctx.CurrentStreamTime(), r.Timestamp)
}

// tally is what became of a record in its windows.
type tally struct {
	kept, closed int
	refused      string // why a window could not take it
}

// report counts a record that is not in all of its windows, once.
func (k *windowKeeper) report(t tally) {
	switch {
	case t.refused != "":
		k.ctx.Drop(t.refused)
	case t.kept == 0:
		k.ctx.Drop(dropLate)
	case t.closed > 0:
		k.ctx.Drop(dropPartlyLate)
	}
}

// apply is update, with the reason for a record that must not change the window.
func (k *windowKeeper) apply(old store.Value, r *processor.Record) (next []byte, refused string, err error) {
	next, err = k.update(old, r)
	if drop, ok := errors.AsType[*dropError](err); ok {
		return nil, drop.reason, nil
	}
	return next, "", err
}

// gridKeeper keeps tumbling and hopping windows (upstream's KStreamWindowAggregate).
type gridKeeper struct {
	windowKeeper

	grid  windows.Time
	store store.Window
}

// Init implements processor.Processor.
func (k *gridKeeper) Init(ctx *processor.Context) error { return k.init(ctx) }

// Process implements processor.Processor.
func (k *gridKeeper) Process(r *processor.Record) error {
	if !admits(k.ctx, r) {
		return nil
	}
	var t tally
	now := k.streamTime(r)
	for start := range k.grid.Starts(r.Timestamp) {
		if k.grid.Closed(start, now) {
			t.closed++
			continue
		}
		old, err := k.store.Fetch(r.Key, start)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		next, refused, err := k.apply(old, r)
		if err != nil {
			return err
		}
		if refused != "" {
			t.refused = refused
			continue
		}
		if err := k.store.Put(r.Key, start, store.Value{Data: next, Timestamp: later(old, r)}); err != nil {
			return err
		}
		t.kept++
	}
	k.report(t)
	return nil
}

func (k *gridKeeper) init(ctx scope) (err error) {
	k.ctx = ctx
	k.store, err = ctx.WindowStore(k.name)
	return err
}

// later is the greatest time of the records of a window and one more.
func later(old store.Value, r *processor.Record) int64 {
	if old.Data == nil {
		return r.Timestamp
	}
	return max(old.Timestamp, r.Timestamp)
}

// slidingKeeper keeps sliding windows (upstream's KStreamSlidingWindowAggregate). The timestamp of a window's value is the
// greatest of its records: what is kept is planned by it.
type slidingKeeper struct {
	windowKeeper

	sliding windows.Sliding
	store   store.Window

	kept   []windows.Kept
	values []store.Value
}

// Init implements processor.Processor.
func (k *slidingKeeper) Init(ctx *processor.Context) error { return k.init(ctx) }

// Process implements processor.Processor.
func (k *slidingKeeper) Process(r *processor.Record) error {
	if !admits(k.ctx, r) {
		return nil
	}
	var t tally
	now := k.streamTime(r)
	if k.sliding.Late(r.Timestamp, now) {
		k.report(t)
		return nil
	}
	if err := k.load(r); err != nil {
		return err
	}
	for _, step := range k.sliding.Plan(k.kept, r.Timestamp, now) {
		var old store.Value
		if step.Base != windows.None {
			old = k.values[step.Base]
		}
		next := old.Data
		if step.Counts {
			var refused string
			var err error
			if next, refused, err = k.apply(old, r); err != nil {
				return err
			}
			if refused != "" {
				t.refused = refused
				continue
			}
			t.kept++
		}
		if err := k.store.Put(r.Key, step.Start, store.Value{Data: next, Timestamp: step.Latest}); err != nil {
			return err
		}
	}
	k.report(t)
	return nil
}

// load reads the windows that the record has to do with.
func (k *slidingKeeper) load(r *processor.Record) error {
	k.kept, k.values = k.kept[:0], k.values[:0]
	from, to := k.sliding.Near(r.Timestamp)
	it, err := k.store.Scan(store.WindowScan{Key: r.Key, From: from, To: to})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		k.kept = append(k.kept, windows.Kept{Start: e.Start, Latest: e.Timestamp})
		k.values = append(k.values, e.Value)
	}
	return it.Err()
}

func (k *slidingKeeper) init(ctx scope) (err error) {
	k.ctx = ctx
	k.store, err = ctx.WindowStore(k.name)
	return err
}

// sessionKeeper keeps sessions (upstream's KStreamSessionWindowAggregate).
type sessionKeeper struct {
	windowKeeper

	merge   merge
	session windows.Session
	store   store.Session

	joined []windows.Span
	values []store.Value
}

// Init implements processor.Processor.
func (k *sessionKeeper) Init(ctx *processor.Context) error { return k.init(ctx) }

// Process implements processor.Processor.
func (k *sessionKeeper) Process(r *processor.Record) error {
	if !admits(k.ctx, r) {
		return nil
	}
	if err := k.load(r); err != nil {
		return err
	}
	whole := k.session.Merge(r.Timestamp, k.joined)
	if k.session.Closed(whole, k.streamTime(r)) {
		k.report(tally{})
		return nil
	}
	var sum store.Value
	for i, v := range k.values {
		if i == 0 {
			sum = v
			continue
		}
		data, err := k.merge(sum.Data, v.Data)
		if drop, ok := errors.AsType[*dropError](err); ok {
			k.ctx.Drop(drop.reason)
			return nil
		}
		if err != nil {
			return err
		}
		sum = store.Value{Data: data, Timestamp: max(sum.Timestamp, v.Timestamp)}
	}
	next, refused, err := k.apply(sum, r)
	if err != nil {
		return err
	}
	if refused != "" {
		k.ctx.Drop(refused)
		return nil
	}
	for _, s := range k.joined {
		if s != whole {
			if err := k.store.Remove(r.Key, s.Start, s.End); err != nil {
				return err
			}
		}
	}
	return k.store.Put(r.Key, whole.Start, whole.End, store.Value{Data: next, Timestamp: whole.End})
}

// load reads the sessions that the record joins, the latest first. Sessions of a key are more than a gap apart: once one has
// begun when the record came, those before it ended too early. Where records come in order that is the first one, and what former
// records have left behind (a session moves with each of them) is not looked at.
func (k *sessionKeeper) load(r *processor.Record) error {
	k.joined, k.values = k.joined[:0], k.values[:0]
	earliestEnd, latestStart := k.session.Near(r.Timestamp)
	it, err := k.store.Scan(store.SessionScan{
		Key: r.Key, EarliestEnd: earliestEnd, LatestEnd: math.MaxInt64, LatestStart: latestStart, Reverse: true,
	})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		k.joined = append(k.joined, windows.Span{Start: e.Start, End: e.End})
		k.values = append(k.values, e.Value)
		if e.Start <= r.Timestamp {
			return nil
		}
	}
	return it.Err()
}

func (k *sessionKeeper) init(ctx scope) (err error) {
	k.ctx = ctx
	k.store, err = ctx.SessionStore(k.name)
	return err
}
