package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// Custom makes a store of one's own, see [processor.CustomStore], one for Uses. Its handle is what its own open makes, one for all processors
// of a task.
func Custom[H any](s *processor.CustomStore[H]) *Store[H] {
	parts := s.Parts()
	own := &Store[H]{parts: parts, opened: func(c *processorContext) (H, error) { return s.Open(c.raw) }}
	if len(parts) == 0 {
		own.reason = "a store of one's own needs at least one part"
	}
	return own
}

// names of the parts.
func (s *Store[H]) names() []store.Name {
	names := make([]store.Name, len(s.parts))
	for i := range s.parts {
		names[i] = s.parts[i].Name
	}
	return names
}
