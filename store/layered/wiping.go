package layered

import (
	"context"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Unfinished reports whether what is here is no copy: a wipe or a load has begun and is not at its end. While it is, nobody reads it and
// nobody writes it but the load, nothing of it moves, and its checkpoint is that of an empty copy. What a wipe or a load leaves that
// has failed stays so until another Wipe succeeds, or the task is closed.
func (t *Task) Unfinished() bool { return t.unfinished.Load() }

// Wipe drops the local data and begins an empty copy under a new key space, open. After an error the task is unfinished, unless nothing
// was begun. Writer only.
func (t *Task) Wipe(ctx context.Context) error { return t.wipe(ctx, nil) }

// wipe empties the task, for a load to fill it if there is one.
func (t *Task) wipe(ctx context.Context, filledBy *Load) error {
	if t.current.Load() == nil {
		return store.ErrClosed
	}
	t.Rollback()
	if err := t.moving.take(ctx); err != nil {
		return fmt.Errorf("task %s: wipe: %w", t.id, err)
	}
	defer t.stores.endMove(t)
	t.turn.Lock()
	defer t.turn.Unlock()
	t.unfinished.Store(true)
	if t.loading != nil {
		t.loading.ended = true
	}
	t.pub.Lock()
	t.urgent, t.dirtySince, t.retryAt = false, time.Time{}, time.Time{} // what is recent goes nowhere
	t.pub.Unlock()
	for _, use := range t.engines {
		if err := use.Drop(ctx, use.space); err != nil {
			return fmt.Errorf("task %s: wipe: %w", t.id, err)
		}
	}
	if err := t.load(ctx); err != nil {
		return fmt.Errorf("task %s: wipe: %w", t.id, err)
	}
	t.loading = filledBy
	t.unfinished.Store(filledBy != nil)
	return nil
}

// held is the checkpoint of what a view shows, as far as it counts.
func (t *Task) held(v *view) store.Checkpoint {
	if t.Unfinished() {
		return store.Checkpoint{StreamTime: -1, Restoring: true}
	}
	return v.cp.Clone()
}

func (t *Task) unfinishedError() error { return t.building("a copy is being loaded") }

// building says what the copy is waiting for, by the name of one of its stores, for those who know no tasks.
func (t *Task) building(reason string) error {
	err := &store.NotReadyError{Partition: t.id.Partition, Reason: reason, Building: true}
	if len(t.specs) > 0 {
		err.Store = t.specs[0].Name
	}
	return err
}
