package processor

import (
	"context"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// Read pins one partition of a store for a read, as Runtime.Read does: at its last commit, or at ReadUncommitted as it is now. The reading
// must be closed.
func (d *Driver) Read(name store.Name, p store.Partition, isolation store.Isolation) (store.Reading, error) {
	info, err := d.Store(name)
	if err != nil {
		return nil, err
	}
	if d.stores == nil {
		return nil, store.ErrClosed
	}
	for _, g := range d.globals {
		if g.bs.spec.Name != name {
			continue
		}
		snap, err := g.task.Snapshot()
		if err != nil {
			return nil, err
		}
		return &globalReading{reading: reading{name: name, snap: snap, since: d.now, now: d.Now}, topic: g.bs.source}, nil
	}
	t := d.taskOf(store.TaskID{Subtopology: info.Subtopology, Partition: p})
	if t == nil {
		return nil, &store.InvalidRequestError{Field: "partition", Reason: fmt.Sprintf("%d: store %s has %d", p, name, info.Partitions)}
	}
	snap, err := d.snapshot(t, isolation)
	if err != nil {
		return nil, err
	}
	return &reading{name: name, partition: p, snap: snap, since: d.now, now: d.Now, role: store.RoleActive}, nil
}

func (d *Driver) snapshot(t *task, isolation store.Isolation) (*layered.Snapshot, error) {
	if isolation == store.ReadUncommitted {
		return t.state.SnapshotUncommitted(d.ctx, nil)
	}
	return t.state.Snapshot()
}

// drivenGlobal is a global store in a driver: what runs records through its processor and publishes it is the instance's own.
type drivenGlobal struct {
	*globalStore

	task   *layered.Task
	replay *replay
	// next offsets, by partition.
	next []int64
}

// beginGlobals opens every global store and gives it what its topic holds.
func (d *Driver) beginGlobals() error {
	d.env.globals = make(map[store.Name]*globalStore)
	for _, sub := range d.built.subs {
		if !sub.global {
			continue
		}
		bs := sub.stores[0]
		g := &drivenGlobal{
			globalStore: &globalStore{
				bs: bs, id: store.TaskID{Subtopology: sub.id}, now: d.Now,
				handlers: handlers{deserialization: d.cfg.DeserializationHandler, processing: d.cfg.ProcessingHandler},
				cp:       store.Checkpoint{StreamTime: -1, Inputs: make(map[store.TopicPartition]store.Offset)},
			},
			next: make([]int64, d.topics.Partitions(bs.source)),
		}
		state, err := d.stores.OpenTask(d.ctx, g.id, d.built.StoreSpecs(sub.id))
		if err != nil {
			return err
		}
		g.task = state
		d.globals = append(d.globals, g)
		env := &taskEnv{application: d.cfg.ApplicationID, now: d.Now, onDrop: d.drop}
		if g.replay, err = newReplay(g.id, bs, env, state, g.judge); err != nil {
			return err
		}
		d.env.globals[bs.spec.Name] = g.globalStore
		for p := range g.next {
			g.advance(store.Partition(p), store.LogPosition{})
		}
		g.publish(state)
	}
	return d.followGlobals()
}

// followGlobals gives global stores what has come into their topics.
func (d *Driver) followGlobals() error {
	for _, g := range d.globals {
		for p := range g.next {
			records := d.records(g.bs.source, int32(p), g.next[p])
			if len(records) == 0 {
				continue
			}
			if err := g.replay.apply(records); err != nil {
				g.task.Rollback()
				return err
			}
			g.next[p] += int64(len(records))
			g.advance(store.Partition(p), store.LogPosition{Next: store.Offset(g.next[p])})
			g.cp.StreamTime = max(g.cp.StreamTime, g.replay.t.streamTime)
			g.publish(g.task)
		}
	}
	return nil
}

func (g *drivenGlobal) close(ctx context.Context) error {
	g.show(nil)
	var err error
	if g.replay != nil {
		err = g.replay.close()
	}
	return errors.Join(err, g.task.Close(ctx))
}
