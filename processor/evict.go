package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/router"
)

// HostID says which process of which machine an instance is.
type HostID = group.HostID

// Dead is one incarnation of an instance that will never do anything again.
type Dead struct {
	// Process is the instance's id.
	Process, Incarnation string
	// Proof says how that was proven. It is a label of metrics, so there are few.
	Proof string
}

// ErrNotEvicted reports an eviction that was not tried: the switch is off, the instance is this one, or the runtime is not in the
// group.
var ErrNotEvicted = errors.New("not evicted")

// The times of a failover.
const (
	// evictTimeout bounds an eviction. What it does not get done by then the session timeout of the dead one does.
	evictTimeout = 30 * time.Second
	// nudgeInterval is the least time between two nudges within one epoch.
	nudgeInterval = time.Second
)

// failover removes dead members from the group. The zero value is not ready.
type failover struct {
	evictions *prometheus.CounterVec
	refused   *prometheus.CounterVec
	nudges    prometheus.Counter

	// ready: what is needed has been prepared.
	ready atomic.Bool

	mu     sync.Mutex
	nudged router.Epoch // the epoch of the last nudge, and its time
	at     time.Time
}

// The reasons why nothing was removed.
const (
	refusedOff    = "switched_off"
	refusedSelf   = "self"
	refusedEarly  = "not_ready"
	refusedGone   = "gone"
	refusedBroker = "broker"
)

func newFailover(reg prometheus.Registerer) *failover {
	with := promauto.With(reg)
	f := &failover{
		evictions: with.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_evictions_total",
			Help: "Instances whose members this one removed from the group, by how they were proven to be dead.",
		}, []string{"proof"}),
		refused: with.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_evictions_refused_total",
			Help: "Evictions that removed nobody, by why: switched off, this instance itself, not ready, gone already, or an error of the broker.",
		}, []string{"reason"}),
		nudges: with.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_rejoins_total", Help: "Times that the threads were told to look for their tasks at once.",
		}),
	}
	for _, reason := range []string{refusedOff, refusedSelf, refusedEarly, refusedGone, refusedBroker} {
		f.refused.WithLabelValues(reason)
	}
	return f
}

// thisHost is this process, as its machine knows it.
func thisHost() HostID { return HostID(hostproc.Self()) }

// Host is the process of an incarnation in the newest map, zero when that is not known.
func (r *Runtime) Host(process, incarnation string) HostID {
	if !r.failover.ready.Load() {
		return HostID{}
	}
	for _, m := range r.observer.View().Members {
		if m.Member.ProcessID == process && m.Member.Incarnation == incarnation && m.Member.Host != (HostID{}) {
			return m.Member.Host
		}
	}
	return HostID{}
}

// Evict takes an incarnation that is proven to be dead out of the group, so that the others take over its tasks neither
// after its session timeout nor after that of its transactions. In this order: its members leave the group, by their
// ids in the newest map; its transactional ids are initialised, again until that succeeds, which ends what it left open;
// the threads of this instance look for their new tasks. Tell the other instances ([Runtime.Nudge]) when it has
// returned.
//
// It returns how many members it removed: none when another survivor was faster, which is no error. Any number of survivors
// may do it at the same time, and again. Who is not dead loses nothing by it: what it has not committed is refused,
// and it joins anew, under member ids and transactional ids that this does not know. The error is ErrNotEvicted, or
// what the brokers said; then the threads look for their tasks all the same, if the members are out. Bounded by 30 s.
func (r *Runtime) Evict(ctx context.Context, d Dead) (removed int, err error) {
	log := r.cfg.Logger.With("process", d.Process, "incarnation", d.Incarnation, "proof", d.Proof)
	refuse := func(reason string, why string) (int, error) {
		r.failover.refused.WithLabelValues(reason).Inc()
		return 0, fmt.Errorf("%w: %s of %s: %s", ErrNotEvicted, d.Incarnation, d.Process, why)
	}
	switch {
	case r.cfg.NoEviction:
		return refuse(refusedOff, "evictions are switched off")
	case d.Process == r.cfg.ProcessID && d.Incarnation == r.cfg.Incarnation:
		return refuse(refusedSelf, "it is this instance")
	case !r.failover.ready.Load():
		return refuse(refusedEarly, "this instance is not in the group yet")
	}
	ctx, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	began := r.now()
	view, epoch := r.observer.View(), r.Epoch()
	members, transactional := idsOf(slices.DeleteFunc(slices.Clone(view.Members), func(m group.ViewMember) bool {
		return m.Member.ProcessID != d.Process || m.Member.Incarnation != d.Incarnation
	}))
	if len(members) == 0 {
		r.failover.refused.WithLabelValues(refusedGone).Inc()
		log.InfoContext(ctx, "dead instance has left the group already")
		return 0, nil
	}
	removed, err = r.expel(ctx, members, fmt.Sprintf("%s found it dead (%s)", r.cfg.ProcessID, d.Proof))
	if err != nil {
		r.failover.refused.WithLabelValues(refusedBroker).Inc()
		return 0, fmt.Errorf("evict %s of %s: leave the group for it: %w", d.Incarnation, d.Process, err)
	}
	left := r.now()
	err = r.restorer.Fence(ctx, transactional)
	r.Nudge(epoch)
	if removed > 0 {
		r.failover.evictions.WithLabelValues(d.Proof).Inc()
	} else {
		r.failover.refused.WithLabelValues(refusedGone).Inc()
	}
	level := slog.LevelWarn
	if removed == 0 && err == nil {
		level = slog.LevelInfo
	}
	log.Log(ctx, level, "dead instance evicted from the group", "members", len(members), "removed", removed, "epoch", epoch,
		"left_after", left.Sub(began), "fenced_after", r.now().Sub(began), "error", err)
	if err != nil {
		return removed, fmt.Errorf("evict %s of %s: %w", d.Incarnation, d.Process, err)
	}
	return removed, nil
}

// idsOf lists the member and transactional ids of members.
func idsOf(all []group.ViewMember) (members, transactional []string) {
	for _, m := range all {
		members = append(members, m.ID)
		if m.Member.TransactionalID != "" {
			transactional = append(transactional, m.Member.TransactionalID)
		}
	}
	return members, transactional
}

// expel makes members leave the group, all in one request, so that there is one rebalance. It returns how many were in it.
func (r *Runtime) expel(ctx context.Context, members []string, reason string) (int, error) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = r.cfg.ApplicationID
	for _, id := range members {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.Reason = id, &reason
		req.Members = append(req.Members, m)
	}
	resp, err := req.RequestWith(ctx, r.client)
	if err != nil {
		return 0, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	removed := 0
	for _, m := range resp.Members {
		switch err := kerr.ErrorForCode(m.ErrorCode); {
		case err == nil:
			removed++
		case !errors.Is(err, kerr.UnknownMemberID): // out already
			return removed, fmt.Errorf("member %s: %w", m.MemberID, err)
		}
	}
	return removed, nil
}

// Epoch is the newest that this instance knows of: of the map, or of an assignment that the map has not followed yet. 0 before
// the first.
func (r *Runtime) Epoch() router.Epoch {
	if !r.failover.ready.Load() {
		return 0
	}
	return max(r.observer.View().Epoch, r.observer.Expected())
}

// Nudge makes every thread ask the group for its tasks at once, and not when its next heartbeat is due: the group has
// changed since the map of the epoch. It does nothing when this instance knows of a newer assignment, nor twice
// within a second for one epoch, and reports whether it did something.
func (r *Runtime) Nudge(epoch router.Epoch) bool {
	f := r.failover
	if !f.ready.Load() || r.observer.Expected() > epoch {
		return false
	}
	f.mu.Lock()
	now := r.now()
	again := f.nudged == epoch && now.Sub(f.at).Abs() < nudgeInterval
	if !again {
		f.nudged, f.at = epoch, now
	}
	f.mu.Unlock()
	if again {
		return false
	}
	f.nudges.Inc()
	for _, t := range r.streamThreads() {
		t.nudge()
	}
	return true
}
