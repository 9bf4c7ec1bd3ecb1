package layered

import (
	"maps"
	"slices"
)

// MoveNow moves what is recent of one task.
func MoveNow(s *Stores, t *Task) error { return s.moveNow(t) }

// OpenTasks lists the tasks that are open.
func OpenTasks(s *Stores) []*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.tasks))
}
