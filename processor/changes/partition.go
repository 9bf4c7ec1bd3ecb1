package changes

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor"
)

// recordCost is what a record that waits takes beside its bytes.
const recordCost = 176

// partition is one partition that the group gave to us. Its goroutine applies what the loop puts into its queue.
type partition struct {
	r      *reader
	id     int32
	cancel context.CancelCauseFunc
	wake   chan struct{}
	done   chan struct{} // closed when its goroutine has ended

	// Guarded by r.mu.

	queue []*kgo.Record // control records as well: their offsets count
	bytes int64
	since time.Time // when the first of the queue may have come
	// target is where the loop shall move the fetching to; nil: nowhere. reading: it did, and what comes is from there on.
	target  *kgo.EpochOffset
	reading bool
	paused  bool
	// again: the log is not what it was taken for.
	again bool
	// end is where what was committed at endAt ended; endAt is zero when nobody has asked. stable is the latest word about the end.
	end, stable int64
	endAt       time.Time

	// Of its goroutine.

	from    int64 // where the handler stands
	read    int64 // what lies before was read, or is not in the log
	epoch   int32
	toldEnd time.Time // the endAt that the handler knows of
	records []Record
}

// run begins the partition, and again each time that it must be. It returns with an error, if only that of ctx.
func (p *partition) run(ctx context.Context) error {
	for {
		log, err := p.r.describe(ctx, p.id)
		if err != nil {
			return err
		}
		pos, err := p.r.handler.Begin(ctx, log)
		if err != nil {
			return err
		}
		if err := p.within(ctx, pos, log); err != nil {
			return err
		}
		p.from, p.read, p.epoch = pos.Next, max(pos.Next, log.Start), pos.Epoch
		if err := p.move(ctx); err != nil {
			return err
		}
		if err := p.apply(ctx); err != nil {
			return err
		}
	}
}

// within sees to it that the log has what the handler has read of it. Somebody else may have moved the offset since the log was described: only
// an end that was asked for after the offset proves anything.
func (p *partition) within(ctx context.Context, pos Position, log Log) error {
	if pos.Next <= log.End {
		return nil
	}
	log, err := p.r.describe(ctx, p.id)
	if err == nil && pos.Next > log.End {
		err = &CutError{Topic: log.Topic, Partition: log.Partition, Read: pos.Next, Valid: log.End}
	}
	return err
}

// move has the loop fetch from where the partition stands, and waits until it does.
func (p *partition) move(ctx context.Context) error {
	epoch := p.epoch
	if p.read != p.from {
		epoch = -1 // it is of a record before
	}
	p.r.mu.Lock()
	p.forget()
	p.reading, p.again = false, false
	p.target = &kgo.EpochOffset{Epoch: epoch, Offset: p.read}
	p.r.wakeLoop()
	p.r.mu.Unlock()
	for {
		p.r.mu.Lock()
		reading := p.reading
		p.r.mu.Unlock()
		if reading {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.wake:
		}
	}
}

// becomeReading takes note of the loop having moved the fetching. r.mu is held.
func (p *partition) becomeReading() {
	p.target, p.reading, p.paused = nil, true, false
	signal(p.wake)
}

// apply hands over batch after batch until the partition must be begun again.
func (p *partition) apply(ctx context.Context) error {
	for {
		recs, again, err := p.next(ctx)
		if err != nil || again {
			return err
		}
		b := p.batch(recs)
		next, err := p.r.handler.Apply(ctx, b)
		clear(p.records)
		p.release(recs)
		switch {
		case err != nil:
			return err
		case next != b.Next:
			return nil
		}
		p.from = next
		if b.Caught {
			p.toldEnd = b.CaughtUp
		}
		p.r.mu.Lock()
		lag := max(p.end, p.stable) - next
		p.r.mu.Unlock()
		p.r.handler.Lag(p.id, max(lag, 0))
	}
}

// next waits for the records of a batch, or for a reason to hand over an empty one.
func (p *partition) next(ctx context.Context) (recs []*kgo.Record, again bool, err error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		p.r.mu.Lock()
		n, full := p.fits()
		linger := p.r.cfg.Linger - time.Since(p.since)
		switch {
		case n > 0 && (full || linger <= 0):
			recs = p.pop(n)
			p.r.mu.Unlock()
			return recs, false, nil
		case n == 0 && p.again:
			p.r.mu.Unlock()
			return nil, true, nil
		case n == 0 && p.endAt.After(p.toldEnd) && p.read >= p.end:
			p.r.mu.Unlock()
			return nil, false, nil
		}
		p.r.mu.Unlock()
		if n > 0 {
			timer.Reset(linger)
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// release lets go of records that were applied, or will not be.
func (p *partition) release(recs []*kgo.Record) {
	var size int64
	for _, rec := range recs {
		size += sizeOf(rec)
		rec.Recycle()
	}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.shrink(size)
}

// batch makes a batch of records, which may be none.
func (p *partition) batch(recs []*kgo.Record) Batch {
	p.records = p.records[:0]
	for _, rec := range recs {
		p.read, p.epoch = max(p.read, rec.Offset+1), rec.LeaderEpoch
		if rec.Attrs.IsControl() || rec.Offset < p.from {
			continue
		}
		p.records = append(p.records, Record{
			Record: processor.Record{Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp.UnixMilli()}, Offset: rec.Offset,
		})
	}
	b := Batch{Partition: p.id, From: p.from, Next: p.read, Epoch: p.epoch, Records: p.records}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if !p.endAt.IsZero() && p.read >= p.end {
		b.Caught, b.CaughtUp = true, p.endAt
	}
	return b
}

// The following are called with r.mu held.

func (p *partition) push(rec *kgo.Record) {
	if len(p.queue) == 0 {
		p.since = time.Now()
	}
	p.queue = append(p.queue, rec)
	size := sizeOf(rec)
	p.bytes += size
	p.r.queued += size
}

// fits counts the records of the next batch; full: more would not be taken.
func (p *partition) fits() (n int, full bool) {
	var size int64
	for n < len(p.queue) {
		if n == p.r.cfg.BatchRecords {
			return n, true
		}
		if size += sizeOf(p.queue[n]); size > p.r.cfg.BatchBytes && n > 0 {
			return n, true
		}
		n++
	}
	return n, n >= p.r.cfg.BatchRecords || size >= p.r.cfg.BatchBytes
}

// pop takes records out of the queue, and lets the fetching of the partition go on when there is room. They count until release.
func (p *partition) pop(n int) []*kgo.Record {
	recs := append([]*kgo.Record(nil), p.queue[:n]...)
	rest := copy(p.queue, p.queue[n:])
	clear(p.queue[rest:])
	p.queue = p.queue[:rest]
	for _, rec := range recs {
		p.bytes -= sizeOf(rec)
	}
	if p.paused && !p.crowded() {
		p.paused = false
		p.r.client.ResumeFetchPartitions(map[string][]int32{p.r.cfg.Topic: {p.id}})
	}
	return recs
}

// forget empties the queue.
func (p *partition) forget() {
	for _, rec := range p.queue {
		rec.Recycle()
	}
	clear(p.queue)
	p.queue = p.queue[:0]
	p.shrink(p.bytes)
	p.bytes = 0
}

// shrink gives bytes of all partitions back.
func (p *partition) shrink(size int64) {
	full := p.r.full()
	p.r.queued -= size
	if full && !p.r.full() {
		signal(p.r.room)
	}
}

// crowded reports whether two batches wait.
func (p *partition) crowded() bool {
	return len(p.queue) >= 2*p.r.cfg.BatchRecords || p.bytes >= 2*p.r.cfg.BatchBytes
}

// beginAgain has the partition begun anew once what waits is applied.
func (p *partition) beginAgain() {
	p.again = true
	signal(p.wake)
}

// noteEnd takes note of where the log ended at a time.
func (p *partition) noteEnd(end int64, at time.Time) {
	p.end, p.endAt = end, at
	p.stable = max(p.stable, end)
	signal(p.wake)
}

func sizeOf(rec *kgo.Record) int64 { return int64(len(rec.Key)+len(rec.Value)) + recordCost }
