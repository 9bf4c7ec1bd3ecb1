package processor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// beginTask opens and restores a task, and starts it.
func (d *Driver) beginTask(plan *TaskPlan) error {
	sub := d.built.subs[plan.ID.Subtopology]
	t := newTask(plan.ID, sub, &d.env, plan.Inputs)
	state, err := d.stores.OpenTask(d.ctx, plan.ID, d.built.StoreSpecs(sub.id))
	if err != nil {
		return err
	}
	t.state = state
	d.tasks = append(d.tasks, t)
	res, start, err := d.restore(t)
	if err != nil {
		return fmt.Errorf("restore task %s: %w", t.id, err)
	}
	return t.begin(state, res, start)
}

// restore makes the state of a task from its changelogs, and of source topics from what was processed of them.
func (d *Driver) restore(t *task) (res restore.Result, start map[store.TopicPartition]store.Offset, err error) {
	res = restore.Result{StreamTime: -1, Position: store.Position{}}
	start = make(map[store.TopicPartition]store.Offset)
	cp := store.Checkpoint{
		StreamTime: -1, Changelogs: make(map[store.Name]store.LogPosition), Inputs: make(map[store.TopicPartition]store.Offset),
	}
	for _, in := range t.inputs {
		c, ok := d.group[in.tp]
		start[in.tp] = c.next
		if !ok {
			continue
		}
		cp.Inputs[in.tp] = c.next
		if c.next > 0 {
			res.Position.Set(in.tp.Topic, in.tp.Partition, c.next-1)
		}
		if c.meta.Sequence > res.Sequence {
			res.Sequence, res.Observed = c.meta.Sequence, c.meta.Times()
		}
		res.StreamTime = max(res.StreamTime, c.meta.StreamTime)
	}
	for _, s := range t.sub.stores {
		next, err := d.restoreStore(t, s, start)
		if err != nil {
			return res, nil, err
		}
		if next >= 0 {
			cp.Changelogs[s.spec.Name] = store.LogPosition{Next: next}
		}
	}
	cp.Sequence, cp.StreamTime, cp.Position, cp.WallTime = res.Sequence, res.StreamTime, res.Position.Clone(), d.now.UnixMilli()
	t.state.Commit(cp)
	return res, start, nil
}

// restoreStore returns the offset that the store is restored to, -1 for one that begins empty.
func (d *Driver) restoreStore(t *task, s *builtStore, start map[store.TopicPartition]store.Offset) (store.Offset, error) {
	partition := int32(t.id.Partition)
	switch {
	case s.changelog != "":
		var changes []store.Change
		for _, r := range d.topics.Read(s.changelog, partition, 0) {
			changes = append(changes, store.Change{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()})
		}
		return store.Offset(len(changes)), t.state.Restore(s.spec.Name, changes)
	case s.source != "":
		until, ok := start[store.TopicPartition{Topic: s.source, Partition: t.id.Partition}]
		if !ok {
			return -1, nil // the topic has fewer partitions than the task's number
		}
		env := &taskEnv{application: d.cfg.ApplicationID, now: d.Now, onDrop: func(*task, string, destination) {}}
		p, err := newReplay(t.id, s, env, t.state, d.passOver)
		if err != nil {
			return 0, err
		}
		err = p.apply(d.records(s.source, partition, 0)[:until])
		return until, errors.Join(err, p.close())
	default:
		return -1, nil
	}
}

// passOver is Runtime.passOver.
func (d *Driver) passOver(t *task, err error) error {
	if is[*DeserializationError](err) || d.cfg.ProcessingHandler != Fail {
		return nil
	}
	return t.fail(err)
}

// records of a partition from an offset on, as a restore reads them.
func (d *Driver) records(topic string, partition int32, from int64) []restore.Record {
	var records []restore.Record
	for _, r := range d.topics.Read(topic, partition, from) {
		own := restore.Record{
			Partition: store.Partition(partition), Offset: store.Offset(r.Offset), Timestamp: r.Timestamp.UnixMilli(),
			Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value),
		}
		for _, h := range r.Headers {
			own.Headers = append(own.Headers, restore.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
		}
		records = append(records, own)
	}
	return records
}

// Restart ends the application without a last commit, as a kill does, and begins it anew with empty stores: state comes from the
// changelogs, records go on at the committed offsets, the wall clock goes on. It also begins an application that a failure has ended.
//
// What has a changelog must be what it was before; a [*RestoreError] says where it is not.
func (d *Driver) Restart() error {
	if errors.Is(d.ended, store.ErrClosed) {
		return d.ended
	}
	if d.stores != nil { // else the last restart failed, and what was before that one counts
		var err error
		if d.before, err = d.rows(); err != nil {
			return err
		}
	}
	err := d.end()
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		d.ended = errors.Join(err, d.end())
		return d.ended
	}
	d.ended = nil
	after, err := d.rows()
	if err != nil {
		return err
	}
	if err := d.before.compare(after); err != nil {
		return err
	}
	return d.run(d.settle)
}

// RestoreError says that a store that was restored is not what it was.
type RestoreError struct {
	Task  store.TaskID
	Store store.Name
	// Key of the first row that differs, as the store keeps it.
	Key []byte
	// Before and After are its bytes, nil where there is no such row.
	Before, After []byte
}

func (e *RestoreError) Error() string {
	return fmt.Sprintf("task %s: store %s is not what it was before the restart: key %q: %q before, %q restored", e.Task, e.Store, e.Key, e.Before, e.After)
}

// stateRows are the rows of all stores with a changelog, in their order.
type stateRows []stateRow

type stateRow struct {
	task store.TaskID
	name store.Name
	store.CopyRow
}

// rows are those of the last commit.
func (d *Driver) rows() (rows stateRows, err error) {
	for _, t := range d.tasks {
		if t.sub.logged() {
			if rows, err = rows.add(d.ctx, t.id, t.state, d.now); err != nil {
				return nil, err
			}
		}
	}
	for _, g := range d.globals {
		if rows, err = rows.add(d.ctx, g.id, g.task, d.now); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

func (s stateRows) add(ctx context.Context, id store.TaskID, state *layered.Task, now time.Time) (stateRows, error) {
	snap, err := state.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Close()
	c, err := snap.Copy()
	if err != nil {
		return nil, err
	}
	header := c.Header(now)
	const limit = 1 << 20
	for after := (store.CopyPlace{}); ; {
		rows, done, err := c.Read(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			s = append(s, stateRow{task: id, name: header.Stores[r.Store].Name, CopyRow: r})
		}
		if done || len(rows) == 0 {
			return s, nil
		}
		after = rows[len(rows)-1].Place().Clone()
	}
}

// compare returns the first difference.
func (s stateRows) compare(after stateRows) error {
	for i := range max(len(s), len(after)) {
		switch {
		case i >= len(after):
			return s[i].lost()
		case i >= len(s):
			return after[i].new()
		}
		a, b := &s[i], &after[i]
		if a.task != b.task || a.Store != b.Store || a.Segment != b.Segment || !bytes.Equal(a.Key, b.Key) {
			if a.before(b) {
				return a.lost()
			}
			return b.new()
		}
		if !bytes.Equal(a.Value, b.Value) {
			return &RestoreError{Task: a.task, Store: a.name, Key: a.Key, Before: a.Value, After: b.Value}
		}
	}
	return nil
}

func (r *stateRow) before(o *stateRow) bool {
	if c := r.task.Compare(o.task); c != 0 {
		return c < 0
	}
	return r.Place().Compare(o.Place()) < 0
}

func (r *stateRow) lost() error {
	return &RestoreError{Task: r.task, Store: r.name, Key: r.Key, Before: r.Value}
}

func (r *stateRow) new() error {
	return &RestoreError{Task: r.task, Store: r.name, Key: r.Key, After: r.Value}
}
