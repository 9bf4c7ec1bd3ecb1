package assignor

import (
	"encoding/binary"
	"hash"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// Shape is what there is to place: the tasks of a topology over topics whose partition counts are known.
type Shape struct {
	// Topology tells topologies apart that happen to have the same tasks. It goes into [Shape.Hash].
	Topology uint64
	Tasks    []TaskShape
}

// TaskShape is one task.
type TaskShape struct {
	ID store.TaskID
	// Inputs are the partitions that the task reads. They go to one member together.
	Inputs []store.TopicPartition
	// Weight is the load of the task relative to others; 0 and less count as 1. Few distinct weights keep placements
	// stickier than many.
	Weight int
	// Stateful tasks are spread first, so that each process has its share of them.
	Stateful bool
}

// Hash is equal for two shapes whose instances may share the tasks of one group. Weights are not part of it: only those
// of the leader count. It is stable over processes and versions of the program.
func (s Shape) Hash() uint64 {
	h := fnv.New64a()
	put(h, s.Topology)
	tasks := slices.Clone(s.Tasks)
	slices.SortFunc(tasks, func(a, b TaskShape) int { return a.ID.Compare(b.ID) })
	for _, t := range tasks {
		put(h, uint64(uint32(t.ID.Subtopology))<<32|uint64(uint32(t.ID.Partition)))
		state := uint64(len(t.Inputs)) << 1
		if t.Stateful {
			state |= 1
		}
		put(h, state)
		inputs := slices.Clone(t.Inputs)
		slices.SortFunc(inputs, compareInputs)
		for _, in := range inputs {
			put(h, uint64(len(in.Topic)))
			h.Write([]byte(in.Topic))
			put(h, uint64(uint32(in.Partition)))
		}
	}
	return h.Sum64()
}

// Topics are the input topics, sorted.
func (s Shape) Topics() []string {
	seen := make(map[string]struct{})
	var topics []string
	for _, t := range s.Tasks {
		for _, in := range t.Inputs {
			if _, ok := seen[in.Topic]; !ok {
				seen[in.Topic] = struct{}{}
				topics = append(topics, in.Topic)
			}
		}
	}
	slices.Sort(topics)
	return topics
}

func compareInputs(a, b store.TopicPartition) int {
	if c := strings.Compare(a.Topic, b.Topic); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

func put(h hash.Hash64, v uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	h.Write(b[:])
}
