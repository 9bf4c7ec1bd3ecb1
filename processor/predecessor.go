package processor

import (
	"context"
	"time"
)

// MemberInfo names one member of the group.
type MemberInfo struct {
	// Incarnation whose member it is.
	Incarnation string
	// Member id that the coordinator gave, and the transactional id that the member writes with, "" under AtLeastOnce.
	Member, TransactionalID string
}

// predecessorTimeout bounds what a start does about its predecessors. Without it the start is as slow as their sessions are long.
const predecessorTimeout = 5 * time.Second

// byPredecessor is the proof of who comes after on the same state directory.
const byPredecessor = "predecessor"

// evictPredecessors takes the members of incarnations that this one succeeds out of the group, by the ids that were kept of them: a
// group that waits for the dead in a rebalance tells of its members nothing else. A failure is none of the start: then their
// sessions end by themselves.
func (r *Runtime) evictPredecessors(ctx context.Context) {
	former := r.cfg.Predecessors
	if len(former) == 0 || r.cfg.NoEviction {
		return
	}
	log := r.cfg.Logger.With("process", r.cfg.ProcessID, "incarnation", former[len(former)-1].Incarnation)
	ctx, cancel := context.WithTimeout(ctx, predecessorTimeout)
	defer cancel()
	members, transactional := make([]string, 0, len(former)), make([]string, 0, len(former))
	for _, m := range former {
		members = append(members, m.Member)
		if m.TransactionalID != "" {
			transactional = append(transactional, m.TransactionalID)
		}
	}
	removed, err := r.expel(ctx, members, "its successor has its state directory")
	if err == nil {
		err = r.restorer.Fence(ctx, transactional)
	}
	if removed == 0 && err == nil { // their sessions were over, or another was faster
		log.InfoContext(ctx, "former incarnation has left the group already", "members", len(members))
		return
	}
	if removed > 0 {
		r.failover.evictions.WithLabelValues(byPredecessor).Inc()
	}
	log.WarnContext(ctx, "former incarnation evicted from the group", "members", len(members), "removed", removed, "error", err)
}

// sayMember tells the listener under which name the thread is in the group, once.
func (t *thread) sayMember() {
	if id, same := t.member.identity(); same && id.member != t.said {
		t.said = id.member
		t.rt.cfg.Listener.Member(MemberInfo{
			Incarnation: t.rt.cfg.Incarnation, Member: id.member, TransactionalID: t.transactionalID,
		})
	}
}
