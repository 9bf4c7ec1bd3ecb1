package wire

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func TestHoldingsBothWays(t *testing.T) {
	t.Parallel()
	want := Holdings{LookedBefore: 3 * time.Millisecond, Of: []router.Holding{
		{Task: store.TaskID{Partition: 1}, Role: router.HeldAsOwner, State: router.HoldingServing, Age: 0},
		{Task: store.TaskID{Partition: 2}, Role: router.HeldAsWarmup, State: router.HoldingRestoring, Restored: 3, Total: 10, Left: time.Minute, Lag: 7, Age: -1},
		{Task: store.TaskID{Partition: 3}, Role: router.HeldAsStandby, State: router.HoldingCopying, Restored: 5, Total: 9, From: "b", Bytes: 77, Lag: -1, Age: -1},
		{Task: store.TaskID{Subtopology: 1}, Role: router.HeldAsRetained, State: router.HoldingResting, Lag: -1, Age: time.Second},
	}}
	if got := ToHoldings(reread(t, FromHoldings(want), &statemeshv1.Holdings{})); !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if got := ToHoldings(nil); got.Problem == "" {
		t.Errorf("of nothing: %+v", got)
	}
	failed := Holdings{Problem: "no answer"}
	if got := ToHoldings(reread(t, FromHoldings(failed), &statemeshv1.Holdings{})); !reflect.DeepEqual(got, failed) {
		t.Errorf("%+v", got)
	}
	later := &statemeshv1.Holdings{Holdings: []*statemeshv1.Holding{{Role: 99, State: 99}}}
	if got := ToHoldings(later).Of[0]; got.Role != router.HeldUnknown || got.State != router.HoldingUnknown {
		t.Errorf("of a later version: %+v", got)
	}
}

// TestHoldingNames: roles and states have the same numbers in both.
func TestHoldingNames(t *testing.T) {
	t.Parallel()
	same := func(prefix, proto, domain string) {
		t.Helper()
		want := prefix + strings.ToUpper(strings.ReplaceAll(domain, "-", ""))
		if domain == "unknown" {
			want = prefix + "UNSPECIFIED"
		}
		if proto != want {
			t.Errorf("%s is %s", domain, proto)
		}
	}
	for n, name := range statemeshv1.HoldingRole_name {
		same("HOLDING_ROLE_", name, toHeldAs(fromHeldAs(router.HoldingRole(n))).String())
	}
	for n, name := range statemeshv1.HoldingState_name {
		same("HOLDING_STATE_", name, toHoldingState(fromHoldingState(router.HoldingState(n))).String())
	}
}
