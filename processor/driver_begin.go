package processor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store/layered"
)

// makeTopics plans the topology over the topics there are, and makes the internal ones.
func (d *Driver) makeTopics() error {
	counts := make(map[string]int32)
	for _, topic := range slices.Concat(d.built.SourceTopics(), d.built.GlobalTopics(), d.built.SinkTopics()) {
		counts[topic] = d.topics.Partitions(topic)
	}
	plan, err := d.built.Plan(counts)
	if err != nil {
		return err
	}
	for _, internal := range slices.Concat(plan.Repartitions, plan.Changelogs) {
		if err := d.topics.Make(internal.Topic, internal.Partitions); err != nil {
			return err
		}
		counts[internal.Topic] = internal.Partitions
	}
	for _, internal := range plan.Changelogs {
		d.topics.Choose(internal.Topic)
	}
	chosen := d.built.chosenPartitions(counts)
	for topic := range chosen {
		d.topics.Choose(topic)
	}
	d.plan = plan
	handlers := handlers{
		deserialization: d.cfg.DeserializationHandler, processing: d.cfg.ProcessingHandler, deadLetterTopic: d.cfg.DeadLetterTopic,
	}
	d.out = newOutput(d.topics, d.cfg.Guarantee == ExactlyOnce, chosen)
	d.env = taskEnv{
		application: d.cfg.ApplicationID, now: d.Now, out: d.out, maxRecord: int64(KafkaConfig{}.WithDefaults().MaxRecordBytes) - recordOverhead,
		limitedBy: "Kafka.MaxRecordBytes", directory: d.directory(chosen), maxIdle: d.cfg.MaxTaskIdle, ctx: d.ctx, onDrop: d.drop, onError: handlers.judge,
	}
	return nil
}

// directory knows every topic: one that nobody has used yet is made.
func (d *Driver) directory(chosen map[string]int32) *directory {
	keyed, all := d.built.keyed(d.cfg.DeadLetterTopic), d.built.chooses()
	own := make(map[string]bool)
	for _, internal := range slices.Concat(d.plan.Repartitions, d.plan.Changelogs) {
		own[internal.Topic] = true
	}
	return &directory{
		now: d.Now, known: make(map[string]sinkTopic), internal: func(topic string) bool { return own[topic] },
		manual: func(topic string) bool {
			if _, ok := chosen[topic]; ok {
				return true
			}
			if !all || keyed[topic] {
				return false
			}
			d.topics.Choose(topic)
			return true
		},
		describe: func(_ context.Context, topic string) (topics.Info, error) {
			return topics.Info{Partitions: d.topics.Partitions(topic)}, nil
		},
	}
}

// begin opens the stores, restores what the topics say, and starts the tasks.
func (d *Driver) begin() (err error) {
	d.stores, err = layered.Open(d.ctx, layered.Config{InMemory: true, Logger: d.cfg.Logger})
	if err != nil {
		return err
	}
	d.env.cache = d.stores.NewRecordCache(max(0, d.cfg.CacheMaxBytes))
	if err := d.beginGlobals(); err != nil {
		return err
	}
	for i := range d.plan.Tasks {
		if err := d.beginTask(&d.plan.Tasks[i]); err != nil {
			return err
		}
	}
	return nil
}

// end closes everything, at the last commit.
func (d *Driver) end() error {
	d.topics.Abort()
	d.out.reset()
	d.dirtySince = time.Time{}
	var errs []error
	for _, t := range d.tasks {
		errs = append(errs, t.close())
		if t.state != nil {
			errs = append(errs, t.state.Close(d.ctx))
		}
	}
	for _, g := range d.globals {
		errs = append(errs, g.close(d.ctx))
	}
	d.tasks, d.globals = nil, nil
	if d.stores != nil {
		errs = append(errs, d.stores.Close())
	}
	d.stores = nil
	return errors.Join(errs...)
}

func (d *Driver) drop(t *task, reason string, to destination) {
	d.dropped = append(d.dropped, DroppedInfo{Task: t.id, Record: t.current, Reason: reason, DeadLettered: to == toDeadLetters})
	d.cfg.Logger.Warn("record dropped", "reason", reason, "to", string(to), "task", t.id, "topic", t.current.Topic,
		"partition", t.current.Partition, "offset", t.current.Offset)
}

// all are the tasks.
func (d *Driver) all(yield func(*task) bool) {
	for _, t := range d.tasks {
		if !yield(t) {
			return
		}
	}
}
