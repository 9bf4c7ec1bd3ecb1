package statemesh

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// errHurried is why giveAway stopped waiting after [Instance.Hurry].
var errHurried = errors.New("the wait was ended")

// Hurry ends the wait of a stop for other instances to take over its tasks: it goes on with what is left. It may be called at any
// time: before the stop it means that the stop will not wait at all.
func (i *Instance) Hurry() { i.hurry.Do(func() { close(i.hurried) }) }

func (i *Instance) notHurried() error {
	select {
	case <-i.hurried:
		return errHurried
	default:
		return nil
	}
}

// giveAway has other instances take over everything before the stop, while reads are answered here, for up to
// Config.DrainTimeout.
func (i *Instance) giveAway(ctx context.Context, p *parts) {
	if i.cfg.DrainTimeout <= 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, i.cfg.DrainTimeout, fmt.Errorf("%s are over", i.cfg.DrainTimeout))
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(context.Canceled)
	watch.Go(func() {
		select {
		case <-i.hurried:
			end(errHurried)
		case <-ctx.Done():
		}
	})
	began := time.Now()
	var last router.DrainStatus
	err := i.notHurried()
	if err == nil {
		err = p.runtime.Drain(ctx, router.TasksServed, func(s router.DrainStatus) {
			if len(s.Tasks) != len(last.Tasks) {
				i.log.InfoContext(ctx, "giving tasks away", "left", len(s.Tasks))
			}
			last = s
		})
	}
	took := time.Since(began)
	switch {
	case err == nil:
		i.log.InfoContext(ctx, "other instances have taken over", "took", took)
	case errors.Is(err, router.ErrNobodyTakes), errors.Is(err, router.ErrDrainUnsupported), errors.Is(err, store.ErrNotReady):
		i.log.InfoContext(ctx, "leaving with all tasks", "reason", err)
	default:
		i.log.WarnContext(ctx, "leaving before other instances have taken over", "tasks", len(last.Tasks), "took", took, "reason", err)
	}
}

// Drain gives away all that the instance has to others, see [processor.Runtime.Drain]; it goes on answering and stays in the
// group. [Instance.Undrain] takes it back, and so does a restart.
func (i *Instance) Drain(ctx context.Context, goal router.DrainGoal, report func(router.DrainStatus)) error {
	p := i.parts.Load()
	if p == nil {
		return errNotRunning
	}
	return p.runtime.Drain(ctx, goal, report)
}

// Undrain lets the group place tasks here again.
func (i *Instance) Undrain() error {
	p := i.parts.Load()
	if p == nil {
		return errNotRunning
	}
	p.runtime.Undrain()
	return nil
}
