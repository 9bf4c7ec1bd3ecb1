package processor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Plan is a topology over topics whose partition counts are known. It is immutable.
type Plan struct {
	// Tasks by id (upstream's PartitionGrouper): one per partition of each sub-topology, up to the largest of its
	// source topics.
	Tasks []TaskPlan
	// Repartitions are the internal topics between sub-topologies, by name.
	Repartitions []InternalTopic
	// Changelogs are the internal topics behind stores, by name.
	Changelogs []InternalTopic
	// Stores by name, as callers need to know them.
	Stores []router.StoreInfo
}

// TaskPlan is one task.
type TaskPlan struct {
	ID store.TaskID
	// Inputs by topic. A topic with fewer partitions than the task's number is not among them.
	Inputs []store.TopicPartition
	// Stateful is set when the sub-topology has a store.
	Stateful bool
}

// InternalTopic is a topic that the application owns.
type InternalTopic struct {
	Topic      string
	Partitions int32
	// Store of a changelog; nil for a repartition topic.
	Store *store.Spec
}

// Application is the id that the topology was built for.
func (b *Built) Application() string { return b.application }

// ShapeHash is equal for two topologies whose instances may share the tasks of one group: same sub-topologies, source
// topics, repartition topics and stores. It is stable over processes and versions of the program.
func (b *Built) ShapeHash() uint64 { return b.shape }

// SourceTopics are the topics from outside that the application reads, sorted. They must exist.
func (b *Built) SourceTopics() []string {
	return b.topics(func(sub *subtopology, s sourceTopic) bool { return s.repartition == "" && !sub.global })
}

// GlobalTopics are the topics of global stores, sorted. They must exist.
func (b *Built) GlobalTopics() []string {
	return b.topics(func(sub *subtopology, _ sourceTopic) bool { return sub.global })
}

// FedTopics are the topics that stand in for a changelog, sorted.
func (b *Built) FedTopics() []string {
	var topics []string
	for _, s := range b.stores {
		if s.source != "" {
			topics = append(topics, s.source)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// GlobalTasks are the ids under which the copies of global stores lie in the state directory: that of their sub-topology,
// which has no tasks of its own, and partition 0.
func (b *Built) GlobalTasks() []store.TaskID {
	var ids []store.TaskID
	for _, sub := range b.subs {
		if sub.global {
			ids = append(ids, store.TaskID{Subtopology: sub.id})
		}
	}
	return ids
}

// RepartitionTopics are the internal topics that the application reads and writes, sorted.
func (b *Built) RepartitionTopics() []string {
	return b.topics(func(_ *subtopology, s sourceTopic) bool { return s.repartition != "" })
}

func (b *Built) topics(want func(*subtopology, sourceTopic) bool) []string {
	var topics []string
	for _, sub := range b.subs {
		for _, s := range sub.sources {
			if want(sub, s) {
				topics = append(topics, s.topic)
			}
		}
	}
	slices.Sort(topics)
	return topics
}

// SinkTopics are the topics from outside that the application writes, sorted. They must exist. Those of dynamic sinks are not known.
func (b *Built) SinkTopics() []string {
	var topics []string
	for _, sub := range b.subs {
		for _, n := range sub.nodes {
			if n.kind == nodeSink && !n.repartition {
				topics = append(topics, n.topics...)
			}
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// OffsetReset is where to start in a source topic that has no committed offset.
func (b *Built) OffsetReset(topic string) OffsetReset {
	e, ok := b.bySource[topic]
	if !ok {
		return ResetDefault
	}
	return e.sub.nodes[e.node].source.OffsetReset
}

// StoreSpecs are the stores of a sub-topology by name; nil when there is no such sub-topology.
func (b *Built) StoreSpecs(subtopology int32) []store.Spec {
	if subtopology < 0 || int(subtopology) >= len(b.subs) {
		return nil
	}
	var specs []store.Spec
	for _, s := range b.subs[subtopology].stores {
		specs = append(specs, s.spec)
	}
	return specs
}

// Plan says what the topology is when its source topics have these partition counts, by topic. It is a pure function.
// Its error joins every topic that is missing or has no partitions, and every pair of topics that meet in a store but do
// not agree on the number of partitions.
func (b *Built) Plan(partitions map[string]int32) (*Plan, error) {
	var errs []error
	for _, topic := range append(b.SourceTopics(), b.GlobalTopics()...) {
		if partitions[topic] <= 0 {
			errs = append(errs, &TopologyError{
				Kind:   "topology",
				Reason: fmt.Sprintf("source topic %q: partition count is unknown; does the topic exist?", topic),
			})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	counts, err := b.repartitionCounts(partitions)
	if err != nil {
		return nil, err
	}
	if err := b.checkCopartitioned(counts); err != nil {
		return nil, err
	}
	p := &Plan{}
	for _, sub := range b.subs {
		if sub.global {
			p.Stores = append(p.Stores, sub.stores[0].globalInfo())
			continue
		}
		tasks := sub.tasks(counts)
		p.Tasks = append(p.Tasks, tasks...)
		for _, s := range sub.sources {
			if s.repartition != "" {
				p.Repartitions = append(p.Repartitions, InternalTopic{Topic: s.topic, Partitions: counts[s.topic]})
			}
		}
		for _, s := range sub.stores {
			if s.changelog != "" {
				p.Changelogs = append(p.Changelogs,
					InternalTopic{Topic: s.changelog, Partitions: int32(len(tasks)), Store: &s.spec})
			}
			p.Stores = append(p.Stores, router.StoreInfo{
				Name: s.spec.Name, Kind: s.spec.Kind, Subtopology: sub.id,
				// Keys are hashed by the topics that lead to the store, which may be fewer than the sub-topology's.
				Partitions: counts[s.fedBy[0]], SourceTopic: s.fedBy[0],
				KeyFormat: s.spec.KeyFormat, ValueFormat: s.spec.ValueFormat,
				Retention: s.spec.Retention, WindowSize: s.spec.WindowSize,
			})
		}
	}
	byTopic := func(x, y InternalTopic) int { return cmp.Compare(x.Topic, y.Topic) }
	slices.SortFunc(p.Repartitions, byTopic)
	slices.SortFunc(p.Changelogs, byTopic)
	slices.SortFunc(p.Stores, func(x, y router.StoreInfo) int { return cmp.Compare(x.Name, y.Name) })
	return p, nil
}

// globalInfo is what callers need to know of a global store: it has one partition, which is on every instance.
func (s *builtStore) globalInfo() router.StoreInfo {
	return router.StoreInfo{
		Name: s.spec.Name, Kind: s.spec.Kind, Subtopology: s.sub.id, Partitions: 1, Global: true, SourceTopic: s.source,
		KeyFormat: s.spec.KeyFormat, ValueFormat: s.spec.ValueFormat,
		Retention: s.spec.Retention, WindowSize: s.spec.WindowSize,
	}
}

// tasks makes one task per partition up to the largest source topic.
func (sub *subtopology) tasks(counts map[string]int32) []TaskPlan {
	tasks := make([]TaskPlan, sub.largest(counts))
	for i := range tasks {
		p := store.Partition(i)
		tasks[i] = TaskPlan{ID: store.TaskID{Subtopology: sub.id, Partition: p}, Stateful: sub.logged()}
		for _, s := range sub.sources {
			if int32(p) < counts[s.topic] {
				tasks[i].Inputs = append(tasks[i].Inputs, store.TopicPartition{Topic: s.topic, Partition: p})
			}
		}
	}
	return tasks
}

// largest is the partition count of the largest source topic, 0 while one of them is not known.
func (sub *subtopology) largest(counts map[string]int32) int32 {
	var most int32
	for _, s := range sub.sources {
		n := counts[s.topic]
		if n == 0 {
			return 0
		}
		most = max(most, n)
	}
	return most
}

// repartitionCounts adds the partition counts of the repartition topics to those of the source topics. Topics that meet
// in a store get one count: that of a topic from outside or a stated one if there is any, else the largest of all
// sub-topologies that write them (upstream's CopartitionedTopicsEnforcer). Repartition topics may follow each other, so
// it goes on until nothing changes.
func (b *Built) repartitionCounts(external map[string]int32) (map[string]int32, error) {
	counts := maps.Clone(external)
	var open []string
	for _, sub := range b.subs {
		for _, s := range sub.sources {
			if s.repartition == "" {
				continue
			}
			delete(counts, s.topic) // what the broker has is compared later, it does not decide
			if s.partitions > 0 {
				counts[s.topic] = s.partitions
			} else {
				open = append(open, s.topic)
			}
		}
	}
	slices.Sort(open)
	for len(open) > 0 {
		left := slices.DeleteFunc(slices.Clone(open), func(topic string) bool {
			counts[topic] = b.countFor(topic, counts)
			return counts[topic] > 0
		})
		if len(left) == len(open) {
			return nil, &TopologyError{Kind: "topology", Reason: fmt.Sprintf(
				"repartition topics %s feed each other: state the partitions of one of them", strings.Join(open, ", "))}
		}
		open = left
	}
	return counts, nil
}

// countFor is the partition count for a repartition topic, 0 while it depends on one that is not known.
func (b *Built) countFor(topic string, counts map[string]int32) int32 {
	group := b.meeting(topic)
	for _, t := range group {
		if n := counts[t]; n > 0 {
			return n
		}
	}
	if leaders := slices.DeleteFunc(slices.Clone(group), b.follows); len(leaders) > 0 {
		group = leaders
	}
	var most int32
	for _, t := range group {
		for _, sub := range b.writers(t) {
			n := sub.largest(counts)
			if n == 0 {
				return 0
			}
			most = max(most, n)
		}
	}
	return most
}

// follows reports whether the topic is one that takes the partitions of others.
func (b *Built) follows(topic string) bool {
	return slices.ContainsFunc(b.bySource[topic].sub.sources, func(s sourceTopic) bool { return s.topic == topic && s.follows })
}

// meeting returns the topic and all that meet it in a store, or meet such a one, sorted.
func (b *Built) meeting(topic string) []string {
	group := []string{topic}
	for i := 0; i < len(group); i++ {
		for _, s := range b.bySource[topic].sub.stores {
			if !slices.Contains(s.fedBy, group[i]) {
				continue
			}
			for _, t := range s.fedBy {
				if !slices.Contains(group, t) {
					group = append(group, t)
				}
			}
		}
	}
	slices.Sort(group)
	return group
}

// writers are the sub-topologies with a sink for the topic.
func (b *Built) writers(topic string) []*subtopology {
	var w []*subtopology
	for _, sub := range b.subs {
		if slices.ContainsFunc(sub.nodes, func(n node) bool { return n.writes(topic) }) {
			w = append(w, sub)
		}
	}
	return w
}

// checkCopartitioned reports topics that meet in a store but do not agree on their partitions: a key would be in one
// partition by the first topic and in another one by the second.
func (b *Built) checkCopartitioned(counts map[string]int32) error {
	var errs []error
	for _, sub := range b.subs {
		for _, s := range sub.stores {
			first := s.fedBy[0]
			for _, other := range s.fedBy[1:] {
				if counts[first] != counts[other] {
					errs = append(errs, &TopologyError{Kind: "store", Name: string(s.spec.Name), Reason: fmt.Sprintf(
						"topics %s (%d partitions) and %s (%d partitions) meet in it and must have equally many",
						first, counts[first], other, counts[other])})
				}
			}
		}
	}
	return errors.Join(errs...)
}

// logged reports whether a store of the sub-topology can be made again from a topic: only then is a copy of its tasks worth
// something elsewhere (upstream's TopicsInfo.stateChangelogTopics).
func (sub *subtopology) logged() bool {
	return slices.ContainsFunc(sub.stores, func(s *builtStore) bool { return s.changelog != "" || s.source != "" })
}
