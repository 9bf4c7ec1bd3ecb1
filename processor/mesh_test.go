package processor

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// mesh is how an instance of a fleet reaches the others: by calls, as long as neither's network is cut.
type mesh struct {
	of *instance
	// deaf: it is told nothing of what others hold.
	deaf atomic.Bool
	// takes is how long telling the others takes, in nanoseconds: one more is there that does not answer.
	takes atomic.Int64
	// farewells counts how often it said that it has left.
	farewells atomic.Int64
}

func (m *mesh) Rejoin(ctx context.Context, epoch router.Epoch, why Rejoining) {
	if why == HasLeft {
		m.farewells.Add(1)
	}
	for _, in := range m.others() {
		in.rt.Nudge(epoch)
	}
	if d := time.Duration(m.takes.Load()); d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

func (m *mesh) Holdings(_ context.Context, of router.Instance) ([]router.Holding, error) {
	if m.deaf.Load() {
		return nil, nil
	}
	for _, in := range m.others() {
		if in.rt.cfg.ProcessID == of.ID && in.rt.cfg.Incarnation == of.Incarnation {
			return in.rt.Holdings(), nil
		}
	}
	return nil, errors.New("not reached")
}

// CopyTask implements Peers: nobody gives copies this way.
func (m *mesh) CopyTask(context.Context, string, store.CopyRequest, store.CopyTaker) error {
	return store.ErrShuttingDown
}

// Suspected implements Peers.
func (m *mesh) Suspected(router.Replica) bool { return false }

func (m *mesh) others() []*instance {
	f := m.of.f
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.all), func(in *instance) bool {
		return in == m.of || in.isCut() || m.of.isCut() || in.ended()
	})
}

func (in *instance) isCut() bool {
	in.cut.mu.Lock()
	defer in.cut.mu.Unlock()
	return in.cut.dead
}

func (in *instance) ended() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}
