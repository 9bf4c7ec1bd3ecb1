package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/processor/internal/topics"
)

// TopicExtractor chooses the topic of a record that a dynamic sink writes (upstream's TopicNameExtractor). m is zero for what a punctuation
// or a flush listener forwards. It must not keep the record, and all tasks share it: it must be safe for concurrent use.
type TopicExtractor func(r *Record, m RecordMetadata) (topic string)

// AddDynamicSink adds a node that writes each record of its parents to the topic that extract names; nil: the parents name it, by
// [Context.ForwardToTopic]. The topics must exist when records for them are processed, else it is a [*SinkTopicError] of the record, about
// which the handler of processing errors decides. What is known of a topic is asked again after a minute.
func (t *Topology) AddDynamicSink(name string, opts SinkOptions, extract TopicExtractor, parents ...string) *Topology {
	t.add(&nodeDef{
		name: name, kind: nodeSink, dynamic: true, extract: extract, partitioner: opts.Partitioner,
		parents: t.parents("sink", name, parents),
	})
	return t
}

// ForwardToTopic hands a record to a child that is a dynamic sink, for this topic: its own choice is not asked. An unknown child is an error,
// and one of another kind.
func (c *Context) ForwardToTopic(sink, topic string, r Record) error {
	for _, n := range c.node.children {
		if n.def.name != sink {
			continue
		}
		if !n.def.dynamic {
			return fmt.Errorf("processor %s: child %q is no dynamic sink", c.node.def.name, sink)
		}
		return n.wrap(n.write(topic, &r))
	}
	if c.node.mute {
		return nil
	}
	return fmt.Errorf("processor %s: no child is called %q", c.node.def.name, sink)
}

// SinkTopicError reports a record for a topic that cannot be written.
type SinkTopicError struct {
	Topic  string
	Reason string
}

func (e *SinkTopicError) Error() string { return fmt.Sprintf("sink topic %s: %s", e.Topic, e.Reason) }

// sink hands a record to the producer.
func (n *nodeRun) sink(r *Record) error {
	if !n.def.dynamic {
		return n.send(n.def.topics[0], r, n.task.env.out.partitions[n.def.topics[0]])
	}
	if n.def.extract == nil {
		return errors.New("no topic was named for the record: see Context.ForwardToTopic")
	}
	return n.write(n.def.extract(r, n.task.inHand()), r)
}

// write hands a record of a dynamic sink to the producer.
func (n *nodeRun) write(topic string, r *Record) error {
	if reason := badTopic(topic); reason != "" {
		return &SinkTopicError{Topic: topic, Reason: reason}
	}
	known, err := n.task.env.directory.find(n.task.env.ctx, topic)
	if err != nil {
		return err
	}
	return n.send(topic, r, known.chosen)
}

// send hands a record to the producer. partitions are those of a topic whose records name their partition, else 0.
func (n *nodeRun) send(topic string, r *Record, partitions int32) error {
	if err := n.task.env.admit(topic, r); err != nil {
		return err
	}
	n.task.produced++
	return n.task.env.out.sink(n.def, topic, r, partitions)
}

// inHand is where the record in hand came from, zero when there is none.
func (t *task) inHand() RecordMetadata {
	if !t.hasCurrent {
		return RecordMetadata{}
	}
	return t.current
}

// directory knows the topics of dynamic sinks, as far as records were for them. Safe for concurrent use.
type directory struct {
	describe func(ctx context.Context, topic string) (topics.Info, error)
	now      func() time.Time
	// manual reports whether the records of a topic name their partition; internal, whether it is one of the application's own.
	manual, internal func(topic string) bool
	// batch is the size of the largest batch that is produced, in bytes.
	batch int64

	mu    sync.Mutex
	known map[string]sinkTopic
}

// sinkTopic is what is known of a topic that a dynamic sink writes, or why it cannot.
type sinkTopic struct {
	chosen int32 // its partitions where records name theirs, else 0
	until  time.Time
	err    error
}

// How long the directory believes what it was told. A topic that is missing is asked for again soon, though not for each record of many.
const (
	topicKnownFor   = time.Minute
	topicMissingFor = time.Second
)

func newDirectory(r *Runtime, adm *kadm.Client) *directory {
	return &directory{
		now: r.now, manual: r.manualPartition, batch: int64(r.cfg.Kafka.MaxRecordBytes), known: make(map[string]sinkTopic),
		internal: func(topic string) bool { _, ok := r.internal[topic]; return ok },
		describe: func(ctx context.Context, topic string) (topics.Info, error) {
			infos, err := topics.DescribeLimits(ctx, adm, []string{topic})
			return infos[topic], err
		},
	}
}

// find returns what is known of a topic, and asks if nothing is. Its error is that of the record (*SinkTopicError), or of the producer.
// Others who ask wait meanwhile, whatever they ask for: a round trip for a topic, once a minute.
func (d *directory) find(ctx context.Context, topic string) (sinkTopic, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	if k, ok := d.known[topic]; ok && now.Before(k.until) {
		return k, k.err
	}
	k := sinkTopic{until: now.Add(topicKnownFor)}
	if d.internal(topic) {
		return k, &SinkTopicError{Topic: topic, Reason: "is an internal topic of the application"}
	}
	info, err := d.describe(ctx, topic)
	switch {
	case is[*topics.MissingError](err):
		k.err, k.until = &SinkTopicError{Topic: topic, Reason: "does not exist"}, now.Add(topicMissingFor)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		k.err, k.until = &SinkTopicError{Topic: topic, Reason: "kafka refuses DESCRIBE"}, now.Add(topicMissingFor)
	case err != nil:
		return k, &outputError{fmt.Errorf("describe topic %s: %w", topic, err)}
	case info.MaxMessageBytes > 0 && info.MaxMessageBytes < d.batch:
		k.err = &SinkTopicError{Topic: topic, Reason: fmt.Sprintf(
			"its max.message.bytes of %d is below the batches of the producer, %d (Kafka.MaxRecordBytes)", info.MaxMessageBytes, d.batch)}
	case d.manual(topic):
		k.chosen = info.Partitions
	}
	d.known[topic] = k
	return k, k.err
}

// chooses reports whether a dynamic sink chooses partitions too.
func (b *Built) chooses() bool {
	return slices.ContainsFunc(b.subs, func(sub *subtopology) bool {
		return slices.ContainsFunc(sub.nodes, func(n node) bool { return n.dynamic && n.partitioner != nil })
	})
}

// chosenPartitions are the partition counts of the topics whose records name their partition, as far as they are known beforehand: those
// with a sink that chooses, and, where one chooses topics as well, those of all other sinks but repartitions, since any may turn out to be
// its.
func (b *Built) chosenPartitions(counts map[string]int32) map[string]int32 {
	all, chosen := b.chooses(), make(map[string]int32)
	for _, sub := range b.subs {
		for i := range sub.nodes {
			if n := &sub.nodes[i]; n.kind == nodeSink && !n.dynamic && (n.partitioner != nil || all && !n.repartition) {
				chosen[n.topics[0]] = counts[n.topics[0]]
			}
		}
	}
	return chosen
}

// keyed are the topics whose records never name their partition, unless they are chosenPartitions.
func (b *Built) keyed(deadLetterTopic string) map[string]bool {
	keyed := map[string]bool{deadLetterTopic: true}
	for _, topic := range b.RepartitionTopics() {
		keyed[topic] = true
	}
	return keyed
}

func (r *Runtime) manualPartition(topic string) bool {
	return r.manual[topic] || r.allManual && !r.byKey[topic]
}

// writes reports whether the node is a sink of the topic. What a dynamic sink writes is not known beforehand.
func (n *node) writes(topic string) bool {
	return n.kind == nodeSink && slices.Contains(n.topics, topic)
}
