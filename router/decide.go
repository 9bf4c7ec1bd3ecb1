package router

import (
	"fmt"
	"slices"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Origin says how a request reached the instance that decides.
type Origin uint8

const (
	// OriginEntry is a request of a client, or of the process itself: it may be forwarded.
	OriginEntry Origin = iota
	// OriginPeer is a request that another instance forwarded: it is answered here or refused, never forwarded again.
	// Only a proven peer makes it so.
	OriginPeer
)

// Preference says which copies the caller accepts, and in which order.
type Preference uint8

const (
	// PreferActive asks the owner first, then the standbys that may meet the bound.
	PreferActive Preference = iota
	// OnlyActive asks nobody but the owner. Caches do not answer either.
	OnlyActive
	// PreferLocal asks the copy of the instance that decides first, if it has one, then as PreferActive does. For a caller who
	// has said how old an answer may be: a copy that proves it meets the bound saves the hop.
	PreferLocal
)

// Query is a read of one partition, as far as the choice of who answers depends on it.
type Query struct {
	Store     store.Name
	Partition store.Partition
	// Self is the instance that decides; empty in a client, which is none.
	Self string
	// Held is the copy that Self really has open, RoleUnknown when none. It outranks the map, which learns of a new
	// assignment later than the instance itself.
	Held   store.Role
	Origin Origin
	Prefer Preference
	// MaxStaleness is the bound of the caller, after defaults; 0 accepts the state of the owner alone. Whoever answers
	// proves that it meets the bound; here it only decides who is worth asking.
	MaxStaleness time.Duration
	// Tried holds the instances that were asked already, with the reason why they did not answer. They are not asked
	// again, and an error lists them.
	Tried []store.Candidate
}

// Verdict is the kind of a Route.
type Verdict uint8

const (
	// Refuse means that nobody may answer; Route.Err says why.
	Refuse Verdict = iota
	// Local means that the instance that decides answers.
	Local
	// Remote means that the candidates are asked, in order.
	Remote
)

// String is the verdict as scenario files and logs have it.
func (v Verdict) String() string {
	switch v {
	case Local:
		return "local"
	case Remote:
		return "remote"
	default:
		return "refuse"
	}
}

// Route is the decision.
type Route struct {
	Verdict Verdict
	// Candidates are the copies to ask, best first. The first may answer; the others are for when it cannot be reached.
	// They may include Self. Empty when Local. Shared: not to be changed.
	Candidates []Replica
	// LocalFirst says that the verdict is Local because the caller prefers that, although the instance is not the owner: if its copy
	// does not meet what is asked for, the others are still to be asked, without PreferLocal.
	LocalFirst bool
	// Epoch of the snapshot that decided; 0 without one.
	Epoch Epoch
	// Owner is the active copy by the map, with an empty Instance when there is none.
	Owner Replica
	// Err is the reason of a refusal: one of the errors of package store.
	Err error
}

// notReadyRetry is what a caller is told to wait while metadata is on its way: about a rebalance with everybody alive.
const notReadyRetry = 200 * time.Millisecond

// Decide says who answers q under s. It is a function of its arguments. s may be nil: no metadata yet.
//
// Refusals: *[store.NotReadyError] without metadata or while the only owner is on its way; *[store.UnknownStoreError];
// *[store.InvalidRequestError] for a partition that the store does not have; *[store.MovedError] to a peer that forwarded to
// the wrong place; *[store.NoReplicaError] with every candidate and why it was passed over.
func Decide(s *Snapshot, q Query) Route {
	if s == nil {
		if servesFrom(q.Held, &q) {
			return Route{Verdict: Local}
		}
		return Route{Err: &store.NotReadyError{
			Store: q.Store, Partition: q.Partition, Reason: "no metadata yet", RetryAfter: notReadyRetry,
		}}
	}
	ix, err := s.find(q.Store)
	if err != nil {
		return Route{Epoch: s.epoch, Err: err}
	}
	if q.Partition < 0 || int(q.Partition) >= len(ix.tasks) {
		return Route{Epoch: s.epoch, Err: outOfRange(ix, q.Partition)}
	}
	t := &ix.tasks[q.Partition]
	r := Route{Epoch: s.epoch}
	owner, owned := t.active()
	r.Owner = owner

	switch {
	case tried(q.Tried, q.Self):
	case q.Held == store.RoleActive, owned && q.Self != "" && (t.global || owner.Instance == q.Self):
		r.Verdict = Local
		return r
	case q.Held == store.RoleStandby && q.Origin == OriginPeer && standbysMay(&q):
		r.Verdict = Local
		return r
	case q.Prefer == PreferLocal && q.Origin == OriginEntry && standbysMay(&q) && t.hasLocal(&q):
		r.Verdict, r.LocalFirst = Local, true
		return r
	}
	if q.Origin == OriginPeer {
		r.Err = refusePeer(s, &q, owner)
		return r
	}
	r.Candidates = candidates(t, &q)
	if len(r.Candidates) > 0 {
		r.Verdict = Remote
		if q.Self != "" && r.Candidates[0].Instance == q.Self {
			r.Verdict, r.Candidates = Local, nil
		}
		return r
	}
	r.Err = s.refuse(t, &q)
	return r
}

// servesFrom reports whether a copy in this role may answer q as far as the role goes.
func servesFrom(role store.Role, q *Query) bool {
	return role == store.RoleActive || role == store.RoleStandby && standbysMay(q)
}

// standbysMay reports whether standbys are worth asking: the caller accepts them and an age above zero.
func standbysMay(q *Query) bool { return q.Prefer != OnlyActive && q.MaxStaleness > 0 }

// hasLocal reports whether the instance that decides has a copy, by the map or by what it holds.
func (t *task) hasLocal(q *Query) bool {
	return q.Held == store.RoleStandby || q.Self != "" && slices.ContainsFunc(t.replicas, func(r Replica) bool { return r.Instance == q.Self })
}

func tried(list []store.Candidate, instance string) bool {
	if instance == "" {
		return false
	}
	for i := range list {
		if list[i].Instance == instance {
			return true
		}
	}
	return false
}

// candidates are the copies worth asking. The usual cases share the snapshot's own slice.
func candidates(t *task, q *Query) []Replica {
	all := t.replicas
	if !standbysMay(q) {
		n := 0
		if _, ok := t.active(); ok {
			n = 1
		}
		if t.global {
			n = len(all)
		}
		all = all[:n:n]
	}
	if len(q.Tried) == 0 && !t.silent {
		return slices.Clip(all)
	}
	var left []Replica
	for _, r := range all {
		if !tried(q.Tried, r.Instance) && (r.Endpoint != "" || r.Instance == q.Self) {
			left = append(left, r)
		}
	}
	return left
}

func outOfRange(ix *storeIndex, p store.Partition) error {
	return &store.InvalidRequestError{
		Field:  "partition",
		Reason: fmt.Sprintf("%d: store %s has %d, from 0", p, ix.info.Name, len(ix.tasks)),
	}
}

// refusePeer sends a peer that forwarded to the wrong place on to the owner, which it has to ask itself.
func refusePeer(s *Snapshot, q *Query, owner Replica) error {
	if owner.Instance != "" && owner.Instance != q.Self {
		return &store.MovedError{
			Store: q.Store, Partition: q.Partition, Instance: owner.Instance, Endpoint: owner.Endpoint, Epoch: int64(s.epoch),
		}
	}
	return &store.NotReadyError{Store: q.Store, Partition: q.Partition, Reason: "rebalancing", RetryAfter: notReadyRetry}
}

// refuse explains why nobody is asked.
func (s *Snapshot) refuse(t *task, q *Query) error {
	if _, owned := t.active(); !owned && t.movingTo != "" && len(q.Tried) == 0 {
		return &store.NotReadyError{
			Store: q.Store, Partition: q.Partition, Reason: "on the way to " + t.movingTo, RetryAfter: notReadyRetry,
		}
	}
	e := &store.NoReplicaError{Store: q.Store, Partition: q.Partition, Epoch: int64(s.epoch)}
	e.Candidates = append(e.Candidates, q.Tried...)
	for _, r := range t.replicas {
		if tried(q.Tried, r.Instance) {
			continue
		}
		reason := "the caller wants the owner"
		switch {
		case r.Endpoint == "":
			reason = "it has no endpoint: it answers no peer"
		case q.Prefer != OnlyActive:
			reason = "the caller accepts no staleness"
		}
		e.Candidates = append(e.Candidates, store.Candidate{
			Instance: r.Instance, Endpoint: r.Endpoint, Role: r.Role, Reason: reason,
		})
	}
	return e
}
