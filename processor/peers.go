package processor

import (
	"context"
	"errors"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Peers are the other instances of the application: what the group does not tell them fast enough, and what is taken from them
// instead of from the brokers. Safe for concurrent use.
type Peers interface {
	// Rejoin has the peers ask the group for their tasks at once: a member of this instance joins to have tasks placed
	// anew, or all of them have left, after the map of the epoch. The other side calls [Runtime.Nudge]. It is bounded in time, and
	// who cannot be reached is passed over: it finds out by a heartbeat.
	Rejoin(ctx context.Context, epoch router.Epoch, why Rejoining)
	// Holdings asks an instance of the map what it has of tasks. It is bounded in time.
	Holdings(ctx context.Context, of router.Instance) ([]router.Holding, error)
	// CopyTask takes the copy of a task from the instance at endpoint, or what is left of one, all in the caller's goroutine.
	// [store.ErrCopyCut] is a copy that may be gone on with behind the last mark that was taken; [store.ErrOverloaded] an instance
	// that sends as many as it may.
	CopyTask(ctx context.Context, endpoint string, req store.CopyRequest, to store.CopyTaker) error
	// Suspected reports whether an instance is believed to be dead.
	Suspected(to router.Replica) bool
}

// Rejoining is why peers are to ask the group for their tasks.
type Rejoining uint8

const (
	// ToPlace says that a member has asked for another placement.
	ToPlace Rejoining = iota
	// HasLeft says that this instance has left the group, and the broker has said so.
	HasLeft
)

// noPeers is an instance that has no way to others.
type noPeers struct{}

var errNoPeers = errors.New("no way to other instances is configured")

func (noPeers) Rejoin(context.Context, router.Epoch, Rejoining) {}

func (noPeers) Holdings(context.Context, router.Instance) ([]router.Holding, error) {
	return nil, errNoPeers
}

func (noPeers) CopyTask(context.Context, string, store.CopyRequest, store.CopyTaker) error {
	return errNoPeers
}

func (noPeers) Suspected(router.Replica) bool { return false }

// rejoin asks the group for another placement, by way of a thread that is a member. When that joins, everybody else is told
// to join as well: the group waits for each of them, and would wait for their heartbeats.
func (r *Runtime) rejoin() {
	for _, t := range r.streamThreads() {
		if m := t.current.Load(); m != nil && !m.isLost() {
			r.asked.Store(true)
			m.note(memberEvent{kind: eventRejoin})
			return
		}
	}
}

// joining is called by the client of a thread when it joins, before it says anything.
func (r *Runtime) joining() {
	if !r.asked.Swap(false) {
		return
	}
	r.joinedAt.Store(int64(r.Epoch()))
	select {
	case r.tell <- struct{}{}:
	default: // they are about to be told
	}
}

// tellPeers tells threads and instances of joins that are to place tasks anew, until ctx ends. What it comes to late, since an
// instance that does not answer takes a while to be told, is over when there is an assignment: everybody has joined by then, and would
// only join once more.
func (r *Runtime) tellPeers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.tell:
			epoch := router.Epoch(r.joinedAt.Load())
			if r.observer.Expected() > epoch {
				continue
			}
			for _, t := range r.streamThreads() {
				t.nudge()
			}
			r.cfg.Peers.Rejoin(ctx, epoch, ToPlace)
		}
	}
}

// nudge makes the thread join the group, unless it is doing so.
func (t *thread) nudge() {
	if m := t.current.Load(); m != nil && !m.isLost() {
		m.note(memberEvent{kind: eventNudge})
	}
}

// HasLeft reports whether no member of this instance is in the group, as far as the broker has said; true before the first.
// While one may be there, others are not told of the leave: a rebalance would wait for it, and who is told does not look
// whether the instance is dead.
func (r *Runtime) HasLeft() bool {
	if r.threads.lingers.Load() {
		return false
	}
	for _, t := range r.streamThreads() {
		if t.inside.Load() {
			return false
		}
	}
	return true
}
