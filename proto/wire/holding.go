package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
)

// Holdings are what one instance says that it has.
type Holdings struct {
	// Of each task, in order.
	Of []router.Holding
	// LookedBefore is how long before the answer was sent the instance looked, at most: ages are that much higher by then.
	LookedBefore time.Duration
	// Problem says why nothing is known; empty when something is.
	Problem string
}

// FromHoldings makes the message.
func FromHoldings(h Holdings) *statemeshv1.Holdings {
	m := &statemeshv1.Holdings{LookedBefore: durationpb.New(h.LookedBefore), Problem: clip(h.Problem)}
	for _, v := range h.Of {
		hold := &statemeshv1.Holding{
			Task: fromTask(v.Task), Role: fromHeldAs(v.Role), State: fromHoldingState(v.State), Restored: v.Restored, Total: v.Total,
			TimeLeft: fromDuration(v.Left), FromInstance: v.From, Bytes: v.Bytes,
		}
		if v.Lag >= 0 {
			hold.Lag = new(v.Lag)
		}
		if v.Age >= 0 {
			hold.Age = durationpb.New(v.Age)
		}
		m.Holdings = append(m.Holdings, hold)
	}
	return m
}

// ToHoldings reads the message; what is absent is unknown.
func ToHoldings(m *statemeshv1.Holdings) Holdings {
	if m == nil {
		return Holdings{Problem: "nothing was said of it"}
	}
	h := Holdings{LookedBefore: toDuration(m.GetLookedBefore()), Problem: m.GetProblem()}
	for _, v := range m.GetHoldings() {
		hold := router.Holding{
			Task: toTask(v.GetTask()), Role: toHeldAs(v.GetRole()), State: toHoldingState(v.GetState()), Restored: v.GetRestored(),
			Total: v.GetTotal(), Left: toDuration(v.GetTimeLeft()), From: v.GetFromInstance(), Bytes: max(v.GetBytes(), 0), Lag: -1, Age: -1,
		}
		if v.Lag != nil {
			hold.Lag = max(v.GetLag(), 0)
		}
		if v.GetAge() != nil {
			hold.Age = toDuration(v.GetAge())
		}
		h.Of = append(h.Of, hold)
	}
	return h
}

// Roles and states have the same numbers on both sides; a test compares their names.
const (
	lastHeldAs       = router.HeldAsRetained
	lastHoldingState = router.HoldingCopying
)

func fromHeldAs(r router.HoldingRole) statemeshv1.HoldingRole { return statemeshv1.HoldingRole(r) }

func toHeldAs(r statemeshv1.HoldingRole) router.HoldingRole {
	if r < 0 || r > statemeshv1.HoldingRole(lastHeldAs) {
		return router.HeldUnknown
	}
	return router.HoldingRole(r)
}

func fromHoldingState(s router.HoldingState) statemeshv1.HoldingState {
	return statemeshv1.HoldingState(s)
}

func toHoldingState(s statemeshv1.HoldingState) router.HoldingState {
	if s < 0 || s > statemeshv1.HoldingState(lastHoldingState) {
		return router.HoldingUnknown
	}
	return router.HoldingState(s)
}
