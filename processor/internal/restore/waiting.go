package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/statemesh/statemesh/store"
)

// followed is one store of a standby. It belongs to the goroutine of Restorer.Standby.
type followed struct {
	name store.Name
	log  Changelog
	s    *stream
	// begin and end of the log at the start. Of a source topic: the end of what was processed.
	begin, end store.Offset
	cuts       cuts
	// next is the place up to which the log is applied; exact: it is an exact cut.
	next  store.Offset
	exact bool
	// waiting are the pieces that were read and are not applied, in their order.
	waiting []piece
	// data is the place behind the last record that is applied.
	data store.Offset
	// seen is a time up to which everything that had been written is applied, read one up to which it was read when the last
	// answer came.
	seen, read time.Time
}

// piece is a part of a log that was read.
type piece struct {
	chunk chunk
	end   cutPoint // whether it is a cut or not
	seen  time.Time
	// whole is the last cut in it, exact the last exact one.
	whole, exact cutPoint
	// held is what it takes of the budget for itself; 0 while it is part of the event that brought it.
	held int64
}

// take looks at an event, applies what may be applied, and keeps the rest.
func (s *Standby) take(ctx context.Context, e event) error {
	defer s.r.applied(e)
	f := s.byLog[e.s]
	if e.err != nil {
		return s.refused(f, e.err)
	}
	whole, exact, hole, err := f.cuts.scan(&e)
	if err != nil {
		return &CorruptLogError{Topic: f.log.Topic, Partition: store.Partition(e.s.partition), Offset: f.cuts.next, Reason: err.Error()}
	}
	if e.since.After(f.read) {
		f.read = e.since
	}
	// The clock may have been set back, and the monotonic one stands still while the machine sleeps: the longer time counts.
	if age := max(time.Since(f.read), time.Since(f.read.Round(0))); hole && f.log.Retention > 0 && age > f.log.Retention {
		return &rebuildError{reason: fmt.Sprintf("changelog %s-%d: cleaned behind offset %d, read up to there %s ago, deletions are kept for %s",
			f.log.Topic, e.s.partition, e.chunk.from, age.Round(time.Second), f.log.Retention)}
	}
	p := piece{
		chunk: e.chunk, seen: e.seen, whole: whole, exact: exact,
		end: cutPoint{at: len(e.chunk.raw), next: e.next, epoch: f.cuts.epoch, data: f.cuts.data},
	}
	p.chunk.hidden, p.chunk.aborted = abortedBy(p.chunk.aborted), nil
	f.waiting = append(f.waiting, p)
	if err := s.advance(ctx, f); err != nil {
		return err
	}
	if !s.keep(f) && !s.catching {
		s.log.InfoContext(ctx, "standby holds more than may wait to become exact, applying it", "topic", f.log.Topic, "bytes", s.held())
		s.catchUp()
		for _, f := range s.logs {
			if err := s.advance(ctx, f); err != nil {
				return err
			}
		}
	}
	if !s.keep(f) { // nothing but a transaction that is too large
		f.exact = false
		if err := s.apply(ctx, f, len(f.waiting), nil); err != nil {
			return err
		}
	}
	if f.cuts.wondering() {
		s.r.tell(f.s)
	}
	s.commit(ctx)
	return nil
}

// refused makes of what a stream has ended with what the standby ends with, or is rebuilt for.
func (s *Standby) refused(f *followed, err error) error {
	if _, ok := errors.AsType[*divergedError](err); ok || errors.Is(err, errOutOfRange) {
		return &rebuildError{reason: fmt.Sprintf("changelog %s-%d at offset %d: %v", f.log.Topic, f.s.partition, f.cuts.next, err)}
	}
	return err
}

// advance applies what lies before the last cut that counts: an exact one, or any while the copy catches up.
func (s *Standby) advance(ctx context.Context, f *followed) error {
	for i, p := range slices.Backward(f.waiting) {
		cut := p.exact
		if s.catching {
			cut = p.whole
		}
		if !cut.exists() {
			continue
		}
		f.exact = p.exact.exists() && p.exact.next == cut.next
		return s.apply(ctx, f, i, &cut)
	}
	return nil
}

// apply hands the first n pieces to the task, and of the one behind them what lies before a cut, if there is one.
func (s *Standby) apply(ctx context.Context, f *followed, n int, cut *cutPoint) error {
	for ; n > 0; n-- {
		p := &f.waiting[0]
		if err := s.decode(ctx, f, p.chunk); err != nil {
			return err
		}
		s.position(f, p.end)
		if p.seen.After(f.seen) {
			f.seen = p.seen
		}
		s.release(p)
		*p = piece{}
		f.waiting = f.waiting[1:]
	}
	if cut == nil {
		return nil
	}
	p := &f.waiting[0]
	if cut.at == len(p.chunk.raw) && cut.next == p.end.next {
		return s.apply(ctx, f, 1, nil)
	}
	front := p.chunk
	front.raw = front.raw[:cut.at]
	if err := s.decode(ctx, f, front); err != nil {
		return err
	}
	s.position(f, *cut)
	p.chunk.raw, p.chunk.from = p.chunk.raw[cut.at:], cut.next
	p.end.at -= cut.at
	p.exact.at = -1 // the last exact cut of a piece is never before the one that is applied
	if p.whole.at -= cut.at; p.whole.next == cut.next {
		p.whole.at = -1
	}
	return nil
}

// decode hands a chunk to the task.
func (s *Standby) decode(ctx context.Context, f *followed, c chunk) error {
	if len(c.raw) == 0 {
		return nil
	}
	var d *decoder
	select {
	case d = <-s.r.decoders:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var n counts
	var err error
	partition := s.req.Task.ID().Partition
	if f.log.Replay != nil {
		n, err = d.decodeRecords(c, partition, f.log.Replay)
	} else {
		n, err = d.decode(c, func(changes []store.Change) error { return s.req.Task.Restore(f.name, changes) })
	}
	s.r.decoders <- d
	s.r.standbys.read(n, int64(len(c.raw)))
	if n.skipped > 0 {
		s.log.WarnContext(ctx, "changelog records without a key skipped", "store", string(f.name), "records", n.skipped)
	}
	if err != nil {
		s.spoiled = true
		return fmt.Errorf("changelog %s-%d from offset %d: %w", f.log.Topic, partition, c.from, err)
	}
	return nil
}

func (s *Standby) position(f *followed, to cutPoint) {
	s.applied = true
	f.next, f.data = to.next, to.data
	pos := s.cp.Changelogs[f.name]
	pos.Next, pos.LeaderEpoch = to.next, to.epoch
	s.cp.Changelogs[f.name] = pos
}

// held is what waits, over all stores.
func (s *Standby) held() (bytes int64) {
	for _, f := range s.logs {
		for i := range f.waiting {
			bytes += int64(len(f.waiting[i].chunk.raw))
		}
	}
	return bytes
}

// keep makes what waits its own, out of the answer that brought it, and reports whether there is room for it.
func (s *Standby) keep(f *followed) bool {
	if len(f.waiting) == 0 {
		return true
	}
	if s.held() > s.pending {
		return false
	}
	p := &f.waiting[len(f.waiting)-1]
	if p.held > 0 {
		return true
	}
	bytes := int64(len(p.chunk.raw))
	if !s.r.standbys.reserve(bytes, s.r.cfg.BufferBytes/4) {
		return false
	}
	s.r.budget.charge(bytes)
	p.chunk.raw, p.held = slices.Clone(p.chunk.raw), bytes
	return true
}

// release gives back what a piece has held.
func (s *Standby) release(p *piece) {
	s.r.standbys.unreserve(p.held)
	s.r.budget.release(p.held)
	p.held = 0
}
