package processor

import (
	"errors"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// replay makes a store of the records of its source topic, beside or instead of a stream thread: with a processor of its
// own, which writes to the store as the one in the topology does, and whose forwards go nowhere. It belongs to one
// goroutine, the writer of the state.
type replay struct {
	t      *task // nothing but what the processor sees through its context
	source *node
	writer *nodeRun
	topic  string
	// times are the greatest timestamps by partition, for the extractor.
	times map[store.Partition]int64
	// skip decides about a record that the processor refuses: nil means go on with the next.
	skip func(t *task, err error) error
}

// newReplay makes and initialises the processor of a store that is fed from a topic.
func newReplay(id store.TaskID, bs *builtStore, env *taskEnv, state *layered.Task, skip func(*task, error) error) (*replay, error) {
	t := newTask(id, bs.sub, env, nil)
	t.state = state
	def := &bs.sub.nodes[bs.writer]
	p := &replay{
		t: t, topic: bs.source, source: &bs.sub.nodes[def.parents[0]], times: make(map[store.Partition]int64), skip: skip,
	}
	if err := p.unhear(state, bs); err != nil {
		return nil, err
	}
	p.writer = &nodeRun{def: def, task: t, proc: def.supplier(), mute: true}
	p.writer.ctx = Context{node: p.writer, task: t}
	t.nodes = []*nodeRun{p.writer}
	if err := initGraph(t.nodes); err != nil {
		return nil, t.fail(errors.Join(err, closeGraph(t.nodes)))
	}
	return p, nil
}

// unhear takes away the listener that a processor of a former stay has left.
func (p *replay) unhear(state *layered.Task, bs *builtStore) error {
	if bs.spec.Kind == store.KindVersioned {
		return nil // it has none
	}
	return state.OnFlush(bs.spec.Name, nil)
}

// apply processes records of one partition in their order.
func (p *replay) apply(records []restore.Record) error {
	for i := range records {
		if err := p.one(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) one(r *restore.Record) (err error) {
	t := p.t
	t.current = RecordMetadata{Topic: p.topic, Partition: int32(r.Partition), Offset: int64(r.Offset)}
	t.hasCurrent = true
	defer func() { t.hasCurrent = false }()
	defer t.guard(&err) // before the record is forgotten
	t.record = Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
	if len(r.Headers) > 0 {
		t.headers = t.headers[:0]
		for _, h := range r.Headers {
			t.headers = append(t.headers, Header{Key: h.Key, Value: h.Value})
		}
		t.record.Headers = t.headers
	}
	latest, ok := p.times[r.Partition]
	if !ok {
		latest = -1
	}
	ts, err := p.source.source.Timestamp(&t.record, t.current, latest)
	switch {
	case err != nil:
		return p.skip(t, &nodeError{node: p.source.name, err: asDeserialization(err)})
	case ts < 0:
		t.dropped("negative timestamp", toNowhere)
		return nil
	}
	t.record.Timestamp = ts
	p.times[r.Partition] = max(latest, ts)
	t.streamTime = max(t.streamTime, ts)
	if err := p.writer.process(&t.record); err != nil {
		return p.skip(t, err)
	}
	return nil
}

func (p *replay) close() error {
	if err := closeGraph(p.t.nodes); err != nil {
		return p.t.fail(err)
	}
	return nil
}
