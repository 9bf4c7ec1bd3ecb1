package layered

import (
	"context"
	"fmt"
)

// closeTask moves what is recent of t within ctx and releases the copy. A move that is on its way when ctx ends is not
// left behind: who runs it releases the copy, and nobody can open it before.
func (s *Stores) closeTask(ctx context.Context, t *Task) error {
	err := s.move(ctx, []*Task{t})
	t.pub.Lock()
	t.publish(nil)
	free := false
	select {
	case t.moving <- struct{}{}:
		free = true
	default:
	}
	t.closing = true
	t.pub.Unlock()
	if free {
		s.endMove(t)
	}
	if err != nil {
		return fmt.Errorf("task %s: close: what is recent stays in the changelog only: %w", t.id, err)
	}
	return nil
}

// endMove gives back the right to move, and releases a task that was closed meanwhile.
func (s *Stores) endMove(t *Task) {
	t.pub.Lock()
	last := t.closing
	t.closing = false
	t.moving.give() // with pub, so that Close either gets the right or leaves the rest to who has it
	t.pub.Unlock()
	if !last {
		return
	}
	s.mu.Lock()
	delete(s.tasks, t.id)
	s.mu.Unlock()
	s.open.Add(-1)
	close(t.gone)
}
