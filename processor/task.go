package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// taskEnv is what the tasks of one thread share.
type taskEnv struct {
	application string
	registerer  prometheus.Registerer
	now         func() time.Time
	out         *output
	// directory knows the topics of dynamic sinks.
	directory *directory
	// maxRecord is the largest record, key and value, that every changelog takes, in bytes; limitedBy names the setting.
	maxRecord int64
	limitedBy string
	maxIdle   time.Duration
	// globals may be read by every processor; ctx is what their reads have.
	globals map[store.Name]*globalStore
	ctx     context.Context //nolint:containedctx // a processor's reads have none of their own
	// onDrop is told of each record that is not processed.
	onDrop func(t *task, reason string, to destination)
	// onError decides about a record whose processing failed: nil means go on with the next.
	onError func(t *task, r *kgo.Record, err error) error
	// cache is the record cache of the thread.
	cache *layered.RecordCache
}

// task is one partition of a sub-topology, run by one stream thread: records in, changes and records out. It knows
// nothing of groups and transactions.
type task struct {
	id    store.TaskID
	sub   *subtopology
	env   *taskEnv
	state *layered.Task
	nodes []*nodeRun
	// inputs by topic.
	inputs []*input
	// logs are the changelog partitions of the logged stores.
	logs   map[store.Name]*changelog
	stores map[store.Name]store.KeyValue
	// custom has what stores of one's own were opened as, by their declarations; as old as the processors.
	custom map[any]any

	schedules schedule
	flushing  flushing

	// sequence and committedTime are those of the last commit; streamTime runs ahead of it.
	sequence                  store.Sequence
	streamTime, committedTime int64
	position                  store.Position // as of the last commit
	// observed are the times of operators.
	observed observedTimes

	current    RecordMetadata
	hasCurrent bool
	// raw is the record in hand as it was fetched, nil where there is none.
	raw     *kgo.Record
	record  Record
	headers []Header

	commitRequested bool
	// produced counts records handed to the producer since the last commit, other than changes of the state.
	produced int
	// processed counts records since the last commit.
	processed int
	// stopAt is a record that must not be processed: the task failed at it.
	stopAt *RecordMetadata
	// idleSince is when the task began to wait for an empty input; zero: it does not.
	idleSince time.Time
}

// changelog is one changelog partition of a task.
type changelog struct {
	topic string
	pos   store.LogPosition
	// source is the input that takes the place of a changelog: nothing is produced, and the position is the input's. nil
	// for a changelog of its own.
	source *input
	// exact is the offset that source must reach before the store is a state that ever was; 0: it is one. See
	// restore.Result.
	exact store.Offset
	// acked is the highest offset the broker acknowledged of the commit on its way, -1 for none.
	acked store.Offset
	// promise belongs to the producer by; another one gets another promise.
	promise func(*kgo.Record, error)
	by      *output
}

func newTask(id store.TaskID, sub *subtopology, env *taskEnv, inputs []store.TopicPartition) *task {
	t := &task{
		id: id, sub: sub, env: env, streamTime: -1, committedTime: -1, schedules: newSchedule(), observed: observedTimes{otherwise: Unobserved},
		logs: make(map[store.Name]*changelog), stores: make(map[store.Name]store.KeyValue), position: store.Position{},
	}
	for _, tp := range inputs {
		t.inputs = append(t.inputs, newInput(tp))
	}
	return t
}

// begin starts a restored task: state is at the last commit, start holds where each input goes on.
func (t *task) begin(state *layered.Task, res restore.Result, start map[store.TopicPartition]store.Offset) error {
	t.state = state
	state.UseCache(t.env.cache)
	t.sequence, t.streamTime, t.committedTime = res.Sequence, res.StreamTime, res.StreamTime
	t.observed.begin(res.Observed, res.StreamTime)
	t.position = res.Position.Clone()
	cp := state.Checkpoint()
	for _, s := range t.sub.stores {
		log := &changelog{topic: s.changelog, pos: cp.Changelogs[s.spec.Name], acked: -1}
		if s.source != "" {
			log.topic, log.source, log.exact = s.source, t.inputOf(s.source), res.Exact[s.spec.Name]
		}
		if s.changelog != "" || log.source != nil {
			t.logs[s.spec.Name] = log
		}
	}
	for _, in := range t.inputs {
		next, ok := start[in.tp]
		if !ok {
			return fmt.Errorf("task %s: no start offset for %s", t.id, in.tp)
		}
		in.next, in.committed = next, next
	}
	return t.initialize()
}

// inputOf is the task's partition of a topic; nil when the topic has fewer.
func (t *task) inputOf(topic string) *input {
	for _, in := range t.inputs {
		if in.tp.Topic == topic {
			return in
		}
	}
	return nil
}

// inexact reports whether a store that was restored from a source topic is not yet a state that ever was.
func (t *task) inexact() bool {
	for _, log := range t.logs {
		if log.exact > 0 {
			return true
		}
	}
	return false
}

// toExact says how far stores that were restored from source topics are on the way to a state that ever was, in offsets.
func (t *task) toExact() (done, total int64) {
	for _, log := range t.logs {
		if log.exact > 0 {
			done += int64(log.pos.Next)
			total += int64(log.exact)
		}
	}
	return done, total
}

// initialize makes new processors. They see the state as it is now.
func (t *task) initialize() (err error) {
	defer t.guard(&err)
	t.schedules = newSchedule()
	if err := t.prepareFlush(); err != nil {
		return t.fail(err)
	}
	clear(t.custom)
	t.nodes = buildGraph(t, t.sub)
	for _, in := range t.inputs {
		for i := range t.sub.sources {
			if s := &t.sub.sources[i]; s.topic == in.tp.Topic {
				in.source = t.nodes[s.node]
			}
		}
	}
	if err := initGraph(t.nodes); err != nil {
		return t.fail(err)
	}
	return nil
}

// rollback returns to the last commit: state, inputs, times. The processors are new ones, since they may have kept
// something of what never happened. The caller makes the client fetch again from the inputs' next offsets.
func (t *task) rollback() error {
	err := closeGraph(t.nodes)
	t.state.Rollback()
	t.streamTime = t.committedTime
	t.observed.rollback()
	t.produced, t.processed, t.commitRequested, t.hasCurrent, t.idleSince = 0, 0, false, false, time.Time{}
	for _, in := range t.inputs {
		in.rewind()
	}
	for _, log := range t.logs {
		log.acked = -1
	}
	if err != nil {
		return t.fail(err)
	}
	return t.initialize()
}

// close ends the processors; the state stays with the instance, at its last commit.
func (t *task) close() error {
	err := closeGraph(t.nodes)
	if t.state != nil {
		t.state.Rollback()
		t.state.UseCache(nil)
		err = errors.Join(err, t.prepareFlush())
	}
	if err != nil {
		return t.fail(err)
	}
	return nil
}

// uncommitted reports whether a commit would change anything.
func (t *task) uncommitted() bool {
	if t.state == nil {
		return false
	}
	for _, in := range t.inputs {
		if in.moved() {
			return true
		}
	}
	return t.produced > 0 || t.state.Dirty()
}

// waiting reports whether fetched records wait.
func (t *task) waiting() bool {
	for _, in := range t.inputs {
		if in.waiting() > 0 {
			return true
		}
	}
	return false
}

// process handles up to limit records, the one with the smallest timestamp first. It returns how many it took.
func (t *task) process(limit int) (n int, err error) {
	defer t.guard(&err)
	for n < limit && !t.commitRequested {
		in, err := t.choose()
		if err != nil {
			return n, err
		}
		if in == nil {
			break
		}
		if err := t.processOne(in); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// choose returns the input whose first record is the oldest, nil when there is none or the task waits for an input.
func (t *task) choose() (*input, error) {
	var best *input
	empty := false
	for _, in := range t.inputs {
		ready, err := t.prepare(in)
		if err != nil {
			return nil, err
		}
		if !ready {
			empty = true
		} else if best == nil || in.headTime < best.headTime {
			best = in
		}
	}
	if best == nil || !empty {
		t.idleSince = time.Time{}
		return best, nil
	}
	if t.idles() {
		return nil, nil
	}
	return best, nil
}

// idles reports whether the task waits for inputs that are empty.
func (t *task) idles() bool {
	limit := t.idleLimit()
	if limit == 0 {
		t.idleSince = time.Time{}
		return false
	}
	now := t.env.now()
	if t.idleSince.IsZero() {
		t.idleSince = now
	}
	if now.Sub(t.idleSince) < limit {
		return true
	}
	for _, in := range t.inputs {
		if in.behind() {
			in.miss()
		}
	}
	return false
}

// fetchPatience is how long a task waits for records that a broker is known to have. They come with one of the next fetches; if they do not,
// there are none, or their broker is away, and the others should not wait for it longer.
const fetchPatience = 5 * time.Second

// idleLimit is how long the task waits for inputs that are empty: for what the brokers are known to have at least, as upstream (KIP-695).
func (t *task) idleLimit() time.Duration {
	if t.env.maxIdle < 0 {
		return 0
	}
	for _, in := range t.inputs {
		if in.behind() {
			return max(fetchPatience, t.env.maxIdle)
		}
	}
	return t.env.maxIdle
}

// prepare makes sure that the head of an input is a record with a time; it takes off what is none.
func (t *task) prepare(in *input) (bool, error) {
	if in.headReady {
		return true, nil
	}
	for in.waiting() > 0 {
		r := in.peek()
		if r.Attrs.IsControl() {
			in.advance() // the end of a transaction: an offset, but no record
			continue
		}
		t.load(r)
		if t.stopAt != nil && t.current == *t.stopAt {
			return false, errStopHere
		}
		ts, err := in.time(&t.record, t.current)
		if err != nil {
			t.hasCurrent = true
			err = t.env.onError(t, r, &nodeError{node: in.source.def.name, err: asDeserialization(err)})
			t.hasCurrent = false
			if err != nil {
				return false, err
			}
			in.advance()
			continue
		}
		if ts < 0 {
			t.hasCurrent = true
			t.dropped("negative timestamp", toNowhere)
			t.hasCurrent = false
			in.advance()
			continue
		}
		in.headTime, in.headReady = ts, true
		return true, nil
	}
	return false, nil
}

// load puts a fetched record in hand. Its slices are the client's, and stay as they are until the input advances.
func (t *task) load(r *kgo.Record) {
	t.record = Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp.UnixMilli()}
	if len(r.Headers) > 0 {
		t.headers = t.headers[:0]
		for _, h := range r.Headers {
			t.headers = append(t.headers, Header{Key: h.Key, Value: h.Value})
		}
		t.record.Headers = t.headers
	}
	t.current = RecordMetadata{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
}

func (t *task) processOne(in *input) error {
	r := in.peek()
	t.load(r)
	if t.stopAt != nil && t.current == *t.stopAt {
		return errStopHere
	}
	t.record.Timestamp = in.headTime
	in.partitionTime = max(in.partitionTime, in.headTime)
	t.streamTime = max(t.streamTime, in.headTime)
	t.hasCurrent, t.raw = true, r
	err := in.source.process(&t.record)
	t.hasCurrent, t.raw = false, nil
	if err != nil {
		return err
	}
	in.advance()
	t.processed++
	if t.schedules.nextStream <= t.streamTime {
		if err := t.schedules.fire(StreamTime, t.streamTime); err != nil {
			return t.fail(err)
		}
	}
	return nil
}

// punctuate fires what is due by the wall clock.
func (t *task) punctuate(nowMilli int64) (err error) {
	defer t.guard(&err)
	if t.schedules.nextWall > nowMilli {
		return nil
	}
	if err := t.schedules.fire(WallClockTime, nowMilli); err != nil {
		return t.fail(err)
	}
	return nil
}

// checkpoint describes the state as the commit on its way will leave it.
func (t *task) checkpoint() store.Checkpoint {
	cp := store.Checkpoint{
		Sequence: t.sequence + 1, StreamTime: t.streamTime, Position: t.processedPosition(),
		Inputs: make(map[store.TopicPartition]store.Offset, len(t.inputs)),
	}
	if len(t.logs) > 0 {
		cp.Changelogs = make(map[store.Name]store.LogPosition, len(t.logs))
	}
	for name, log := range t.logs {
		pos := log.pos
		if log.source != nil {
			pos.Next, pos.LeaderEpoch = log.source.next, max(pos.LeaderEpoch, log.source.leaderEpoch)
			cp.Restoring = cp.Restoring || pos.Next < log.exact
		} else if log.acked >= pos.Next {
			pos.Next = log.acked + 1
			// Beside an epoch that had ended before, the offset would look like one that was cut off since.
			pos.LeaderEpoch = max(pos.LeaderEpoch, t.env.out.leaderEpoch(log.topic, t.id.Partition))
		}
		cp.Changelogs[name] = pos
	}
	for _, in := range t.inputs {
		cp.Inputs[in.tp] = in.next
	}
	return cp
}

// becomeCommitted publishes cp: Kafka has committed it.
func (t *task) becomeCommitted(cp store.Checkpoint) {
	for name, log := range t.logs {
		log.pos, log.acked = cp.Changelogs[name], -1
		if log.pos.Next >= log.exact {
			log.exact = 0
		}
	}
	t.sequence, t.committedTime, t.position = cp.Sequence, cp.StreamTime, cp.Position
	t.observed.becomeCommitted()
	t.produced, t.processed, t.commitRequested = 0, 0, false
	for _, in := range t.inputs {
		in.becomeCommitted()
	}
	t.state.Commit(cp)
}

// keyValue returns the writer's handle of a store, limited to what its changelog takes.
func (t *task) keyValue(name store.Name) (store.KeyValue, error) {
	if kv, ok := t.stores[name]; ok {
		return kv, nil
	}
	kv, err := t.state.KeyValue(name)
	if err != nil {
		return nil, err
	}
	if log := t.logs[name]; log != nil && log.source == nil {
		kv = &limitedKeyValue{KeyValue: kv, limited: t.limit(name)}
	}
	t.stores[name] = kv
	return kv, nil
}

func (t *task) dropped(reason string, to destination) { t.env.onDrop(t, reason, to) }

// fail names the task and, when there is one, the record in hand.
func (t *task) fail(err error) error {
	e := &TaskError{Task: t.id, Err: err}
	if t.hasCurrent {
		m := t.current
		e.Record = &m
	}
	return e
}
