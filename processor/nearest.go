package processor

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/statemesh/statemesh/router"
)

// peers lists who has a copy of the task, the nearest first: on the same machine, in the same rack, elsewhere; among those in any
// order, so that not all ask the same.
func (s *seeding) peers(ctx context.Context) []router.Replica {
	snap := s.rt.published(ctx, s.manner.mapPatience)
	sub := s.rt.built.subs[s.id.Subtopology]
	if snap == nil || len(sub.stores) == 0 {
		return nil
	}
	type candidate struct {
		router.Replica
		far int
	}
	var found []candidate
	for _, to := range snap.Replicas(sub.stores[0].spec.Name, s.id.Partition) {
		if to.Instance == s.rt.cfg.ProcessID || to.Endpoint == "" || s.rt.cfg.Peers.Suspected(to) {
			continue
		}
		found = append(found, candidate{Replica: to, far: s.distance(snap, to)})
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(a.far, b.far) })
	peers := make([]router.Replica, len(found))
	for i, c := range found {
		peers[i] = c.Replica
	}
	return peers
}

// distance of a peer: 0 on this machine, 1 in this rack, else 2.
func (s *seeding) distance(snap *router.Snapshot, to router.Replica) int {
	in, ok := snap.Instance(to.Instance)
	if !ok {
		return 2
	}
	own, its := s.rt.cfg.Host, s.rt.Host(in.ID, in.Incarnation)
	switch {
	case own.BootID != "" && own.BootID == its.BootID:
		return 0
	case s.rt.cfg.Rack != "" && s.rt.cfg.Rack == in.Rack:
		return 1
	default:
		return 2
	}
}

// published is the newest map; the first is waited for.
func (r *Runtime) published(ctx context.Context, patience time.Duration) *router.Snapshot {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		snap, changed := r.table.Watch()
		if snap != nil {
			return snap
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
