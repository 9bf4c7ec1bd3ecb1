package processor

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/processor/internal/drive"
	"github.com/statemesh/statemesh/store"
)

// run does a step. A failure ends the application as it ends a stream thread: what the commit in hand has done is undone, then what
// comes before the record that failed is processed and committed once more.
func (d *Driver) run(step func() error) error {
	if d.ended != nil {
		return fmt.Errorf("the application has ended: %w", d.ended)
	}
	err := step()
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*TaskError](err)
	if !ok {
		return err
	}
	d.ended = e
	d.cfg.Logger.Error("task failed", "task", e.Task, "error", e)
	if again := d.replay(e); again != nil {
		d.ended = errors.Join(e, again)
	}
	return d.ended
}

// replay goes back to the last commit and comes to the record that failed once more.
func (d *Driver) replay(e *TaskError) error {
	const attempts = 3 // a failure that moves
	stop := e
	for range attempts {
		if err := d.rewind(); err != nil {
			return err
		}
		t := d.taskOf(stop.Task)
		if t == nil || stop.Record == nil { // a global store, or no record is to blame
			return nil
		}
		t.stopAt = stop.Record
		err := d.settle()
		if err == nil || errors.Is(err, errStopHere) {
			return d.commit()
		}
		failed, ok := errors.AsType[*TaskError](err)
		if !ok {
			return err
		}
		stop = failed
	}
	return d.rewind()
}

// rewind drops what is uncommitted.
func (d *Driver) rewind() error {
	d.topics.Abort()
	d.out.reset()
	d.dirtySince = time.Time{}
	var errs []error
	for _, t := range d.tasks {
		if t.uncommitted() {
			errs = append(errs, t.rollback())
		}
	}
	return errors.Join(errs...)
}

func (d *Driver) taskOf(id store.TaskID) *task {
	for _, t := range d.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

// restless is how many records may follow from one step, beside restlessEach for every record that came from outside: a commit may let
// go of what all of them have set going.
const restless, restlessEach = 200_000, 100

// settle works until nothing moves.
func (d *Driver) settle() error {
	for sum := 0; ; {
		if err := d.followGlobals(); err != nil {
			return err
		}
		n, err := d.turn()
		if err != nil || n == 0 {
			return err
		}
		if sum += n; sum > restless+restlessEach*d.piped {
			return fmt.Errorf("no rest after %d records: the topology feeds itself without an end", sum)
		}
	}
}

// turn lets the first task that can process do so, and says how many records it took.
func (d *Driver) turn() (int, error) {
	limit := 64 // a slice of a stream thread's turn
	if d.cfg.CommitInterval == 0 {
		limit = 1
	}
	for _, t := range d.tasks {
		d.fetch(t)
		n, err := t.process(limit)
		if err != nil {
			return 0, err
		}
		if err := d.progress(t); err != nil {
			return 0, err
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, nil
}

// fetch gives a task what has come into its inputs. Each record is a copy: a processor may write to what it has in hand.
func (d *Driver) fetch(t *task) {
	for _, in := range t.inputs {
		from := int64(in.next) + int64(in.waiting()) // there are no gaps
		var records []*kgo.Record
		for _, r := range d.topics.Read(in.tp.Topic, int32(in.tp.Partition), from) {
			records = append(records, drive.Clone(r))
		}
		in.push(records)
	}
}

// progress shows what a task has done to those who read uncommitted, and commits when that is due.
func (d *Driver) progress(t *task) error {
	t.state.ShowNow(t.processedPosition)
	if d.dirtySince.IsZero() && t.uncommitted() {
		d.dirtySince = d.now
	}
	if d.dirtySince.IsZero() || !t.commitRequested && d.now.Sub(d.dirtySince) < d.cfg.CommitInterval {
		return nil
	}
	return d.commit()
}

// commit is that of a stream thread, without brokers that could fail: see thread.commit.
func (d *Driver) commit() error {
	for _, t := range d.tasks {
		if err := t.flush(); err != nil {
			return err
		}
	}
	d.dirtySince = time.Time{}
	for _, t := range d.tasks {
		t.state.ShowNow(t.processedPosition)
	}
	if err := produceChanges(d.out, d.all); err != nil {
		return err
	}
	if d.out.produced > 0 {
		if err := d.out.flush(d.ctx); err != nil {
			return err
		}
	}
	parts, offsets, _ := collect(d.all, driverThread)
	if len(parts) == 0 {
		return nil
	}
	for _, o := range offsets {
		meta, _ := commitmeta.Decode(o.meta)
		d.group[o.tp] = committedOffset{next: o.next, meta: meta}
	}
	d.topics.EndTransaction()
	for _, p := range parts {
		p.cp.WallTime = d.now.UnixMilli()
		p.task.becomeCommitted(p.cp)
	}
	d.out.reset()
	d.commits++
	return nil
}
