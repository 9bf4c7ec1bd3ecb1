package layered

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store/engine"
)

// Run moves recent commits to the engines until ctx ends, and once more before it returns; beside that it gives back the
// space of what was dropped, has expired or was deleted. While nothing is committed it sleeps. A move that fails is logged
// and tried again; the changelog has what it would have made durable.
func (s *Stores) Run(ctx context.Context) error {
	lasting := context.WithoutCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.keepUp(ctx) })
	wg.Go(func() { s.watchReads(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.move(lasting, s.dirty())
		case <-s.wakeup:
		case <-timer.C:
		}
		due, wait := s.due(time.Now())
		if err := s.move(ctx, due); err != nil && ctx.Err() == nil {
			s.cfg.Logger.ErrorContext(ctx, "move to the engine", "error", err)
		}
		ring(s.moved) // what has moved may have made room
		if wait > 0 {
			timer.Reset(wait)
		}
	}
}

// due returns the tasks to move now, and how long until the next is due, 0 when none waits. When one is due, those that
// have waited half as long go with it: they share the cost of being made durable.
func (s *Stores) due(now time.Time) (due []*Task, wait time.Duration) {
	type waiting struct {
		task *Task
		age  time.Duration
	}
	var all []waiting
	late, pressed := false, s.recent.pressed()
	for _, t := range s.dirty() {
		t.pub.Lock()
		age := now.Sub(t.dirtySince)
		if t.urgent || pressed && t.counted >= s.recent.share() {
			age = s.cfg.MoveInterval
		}
		if left := t.retryAt.Sub(now); left > 0 {
			age = s.cfg.MoveInterval - left
		}
		t.pub.Unlock()
		late = late || age >= s.cfg.MoveInterval
		all = append(all, waiting{t, age})
	}
	for _, w := range all {
		switch left := s.cfg.MoveInterval - w.age; {
		case left <= 0, late && w.age >= s.cfg.MoveInterval/2:
			due = append(due, w.task)
		case wait == 0 || left < wait:
			wait = left
		}
	}
	return due, wait
}

// dirty lists the open tasks that have something to move.
func (s *Stores) dirty() []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Task
	for _, t := range s.tasks {
		t.pub.Lock()
		if !t.dirtySince.IsZero() {
			out = append(out, t)
		}
		t.pub.Unlock()
	}
	slices.SortFunc(out, func(a, b *Task) int { return a.id.Compare(b.id) })
	return out
}

// transfer is the move of one task.
type transfer struct {
	task  *Task
	view  *view
	since time.Time // when the view was pinned
	bytes int64
}

// move moves what is recent of the tasks to their engines: all tasks of an engine in one move of that engine. A task
// whose move fails stays as it is.
func (s *Stores) move(ctx context.Context, tasks []*Task) error {
	var transfers []*transfer
	defer func() {
		for _, tr := range transfers {
			tr.view.unpin()
			s.endMove(tr.task)
		}
	}()
	for _, t := range tasks { // in the order of their ids, so that two movers cannot wait for each other
		if err := t.moving.take(ctx); err != nil {
			return err
		}
		v := t.pinned()
		if v == nil || v.tick <= t.moved || t.Unfinished() {
			if v != nil {
				v.unpin()
			}
			s.endMove(t)
			continue
		}
		transfers = append(transfers, &transfer{task: t, view: v, since: time.Now()})
	}
	failed := make(map[*Task]error)
	for _, e := range s.engines() {
		moves, who, err := collect(e, transfers)
		if err == nil && len(moves) > 0 {
			start := time.Now()
			err = e.Move(ctx, moves...)
			s.metrics.moved(err, bytesOf(who), time.Since(start))
		}
		if err != nil {
			for _, tr := range who {
				failed[tr.task] = err
			}
		}
	}
	var errs []error
	for _, tr := range transfers {
		err := failed[tr.task]
		for i := range tr.view.stores {
			if sv := &tr.view.stores[i]; err == nil {
				err = tr.task.expire(sv.placed, sv.now)
			}
		}
		if err == nil {
			err = tr.task.land(tr)
		}
		if err != nil {
			tr.task.postpone(s.cfg.MoveInterval)
			errs = append(errs, fmt.Errorf("task %s: move: %w", tr.task.id, err))
		}
	}
	return errors.Join(errs...)
}

// collect describes the moves of one engine.
func collect(e engine.Engine, transfers []*transfer) (moves []engine.Move, who []*transfer, err error) {
	for _, tr := range transfers {
		for i, use := range tr.task.engines {
			if use.Engine != e {
				continue
			}
			who = append(who, tr)
			record, rerr := encodeRecord(tr.view.cp, tr.stores(i))
			if rerr != nil {
				return nil, who, rerr
			}
			moves = append(moves, engine.Move{Space: use.space, Writes: tr.writes(i), Record: record})
		}
	}
	return moves, who, nil
}

// stores are those of one engine of the task, in the order of their ids.
func (tr *transfer) stores(number int) []storeView {
	stores := slices.DeleteFunc(slices.Clone(tr.view.stores), func(sv storeView) bool { return sv.engine != number })
	slices.SortFunc(stores, func(a, b storeView) int { return int(a.id) - int(b.id) })
	return stores
}

// writes yields what one engine of the task does not have yet, in the order of the engine's keys.
func (tr *transfer) writes(number int) iter.Seq[engine.Write] {
	return func(yield func(engine.Write) bool) {
		buf := make([]byte, 0, 128) // not nil: an empty value is a value
		for _, sv := range tr.stores(number) {
			for r := range tr.rows(sv) {
				w := engine.Write{Store: sv.id, Segment: r.segment, Key: r.key}
				if r.ver.live {
					buf = appendStored(buf[:0], sv.spec.Kind, r.ver.data, r.ver.timestamp)
					w.Value = buf
				}
				tr.bytes += int64(len(w.Key) + len(w.Value))
				if !yield(w) {
					return
				}
			}
		}
	}
}

// rows yields the rows of a store that its engine does not have yet, by segment and key, without those that are dead.
func (tr *transfer) rows(sv storeView) iter.Seq[row] {
	inOrder := func(yield func(row) bool) {
		m := newMerge(sv.spec.Kind, rowScan{}, tr.view.tick)
		for _, l := range sv.layers {
			m.add(l.table, l.count)
		}
		for r, ok := m.next(); ok; r, ok = m.next() {
			if r.ver.tick > tr.task.moved && !yield(r) {
				return
			}
			m.pass(r)
		}
	}
	if sv.segments == nil {
		return inOrder
	}
	return func(yield func(row) bool) {
		floor := sv.segments.floor(sv.now.time)
		bySegment := make(map[engine.Segment][]row)
		for r := range inOrder {
			if r.segment == 0 || r.segment >= floor {
				bySegment[r.segment] = append(bySegment[r.segment], r)
			}
		}
		for _, segment := range slices.Sorted(maps.Keys(bySegment)) {
			for _, r := range bySegment[segment] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// land publishes that the engines have the transfer's commit: the tables it has emptied go.
func (t *Task) land(tr *transfer) error {
	bases, err := t.newBases()
	if err != nil {
		return err
	}
	t.moved = tr.view.tick
	// A writer in the middle of its commit needs its table; it gets a new one when this one is full.
	idle := t.turn.TryLock()
	if idle {
		defer t.turn.Unlock()
	}
	t.pub.Lock()
	defer t.pub.Unlock()
	now := t.current.Load()
	if now == nil { // closed meanwhile
		release(bases)
		return nil
	}
	v := t.successor()
	v.bases = bases
	all := now.tick == t.moved
	for i, p := range t.parts {
		sv := &v.stores[i]
		sv.layers = slices.DeleteFunc(slices.Clone(sv.layers), func(l layer) bool { return l.last > 0 && l.last <= t.moved })
		if idle && all && p.active.count.Load() > 0 {
			p.active = p.newTable()
			sv.layers[0] = layer{table: p.active}
		}
	}
	v.retain()
	t.publish(v)
	t.urgent, t.retryAt = false, time.Time{}
	t.dirtySince = time.Time{}
	if !all {
		t.dirtySince = tr.since
	}
	return nil
}

// expire tells the engine of a store which of its segments are dead at a time that is durable. With moving, and before
// the snapshots are taken that will read the store from then on: those that were taken before keep the segments.
func (t *Task) expire(p *placed, now moment) error {
	if p.segments == nil || now.time == noTime {
		return nil
	}
	floor := p.segments.floor(now.time)
	if floor <= p.expired {
		return nil
	}
	use := t.engines[p.engine]
	if err := use.Expire(use.space, p.id, floor); err != nil {
		return p.wrap(err)
	}
	p.expired = floor
	t.stores.wake()
	return nil
}

// postpone puts off the next try.
func (t *Task) postpone(d time.Duration) {
	t.pub.Lock()
	defer t.pub.Unlock()
	t.retryAt = time.Now().Add(d)
}

func bytesOf(transfers []*transfer) int64 {
	var n int64
	for _, tr := range transfers {
		n += tr.bytes
		tr.bytes = 0
	}
	return n
}

// turn is a right that one holds at a time and that others can give up waiting for.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { <-t }
