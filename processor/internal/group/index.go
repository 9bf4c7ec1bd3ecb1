package group

import (
	"slices"

	"github.com/statemesh/statemesh/store"
)

// index is a shape, ready to be asked.
type index struct {
	shape       Shape
	hash        uint64
	topics      []string
	byID        map[store.TaskID]int32
	byPartition map[store.TopicPartition]int32
}

func newIndex(shape Shape) *index {
	ix := &index{
		shape: shape, hash: shape.Hash(), topics: shape.Topics(),
		byID:        make(map[store.TaskID]int32, len(shape.Tasks)),
		byPartition: make(map[store.TopicPartition]int32, len(shape.Tasks)),
	}
	for t := range shape.Tasks {
		task := &shape.Tasks[t]
		ix.byID[task.ID] = int32(t)
		for _, in := range task.Inputs {
			ix.byPartition[in] = int32(t)
		}
	}
	return ix
}

// stateful lists the tasks with state.
func (ix *index) stateful() []store.TaskID {
	var ids []store.TaskID
	for t := range ix.shape.Tasks {
		if ix.shape.Tasks[t].Stateful {
			ids = append(ids, ix.shape.Tasks[t].ID)
		}
	}
	return ids
}

func (ix *index) inputs(t int32) []store.TopicPartition { return ix.shape.Tasks[t].Inputs }

// partitions lists the inputs of tasks by topic, sorted.
func (ix *index) partitions(tasks []store.TaskID) map[string][]int32 {
	m := make(map[string][]int32)
	for _, id := range tasks {
		t, ok := ix.byID[id]
		if !ok {
			continue
		}
		for _, in := range ix.inputs(t) {
			m[in.Topic] = append(m[in.Topic], int32(in.Partition))
		}
	}
	for _, ps := range m {
		slices.Sort(ps)
	}
	return m
}

// whole returns the tasks of which every input is among partitions, sorted.
func (ix *index) whole(partitions map[string][]int32) []store.TaskID {
	have := make(map[int32]int)
	for topic, ps := range partitions {
		seen := make(map[int32]bool, len(ps))
		for _, p := range ps {
			t, ok := ix.byPartition[store.TopicPartition{Topic: topic, Partition: store.Partition(p)}]
			if ok && !seen[p] {
				seen[p] = true
				have[t]++
			}
		}
	}
	var tasks []store.TaskID
	for t, n := range have {
		if n == len(ix.inputs(t)) {
			tasks = append(tasks, ix.shape.Tasks[t].ID)
		}
	}
	slices.SortFunc(tasks, store.TaskID.Compare)
	return tasks
}

// check reports what makes a shape unfit to be placed.
func (ix *index) check() error {
	seen := 0
	for t := range ix.shape.Tasks {
		id := ix.shape.Tasks[t].ID
		if id.Subtopology < 0 || id.Partition < 0 {
			return &ShapeError{Task: id, Reason: "numbers below 0"}
		}
		if ix.byID[id] != int32(t) {
			return &ShapeError{Task: id, Reason: "listed twice"}
		}
		if len(ix.inputs(int32(t))) == 0 {
			return &ShapeError{Task: id, Reason: "no inputs"}
		}
		for _, in := range ix.inputs(int32(t)) {
			if ix.byPartition[in] != int32(t) {
				return &ShapeError{Task: id, Reason: "shares the input " + in.String()}
			}
			seen++
		}
	}
	if seen != len(ix.byPartition) {
		return &ShapeError{Reason: "an input is listed twice"}
	}
	return nil
}

// ShapeError names the task that cannot be placed.
type ShapeError struct {
	Task   store.TaskID
	Reason string
}

func (e *ShapeError) Error() string { return "task " + e.Task.String() + ": " + e.Reason }
