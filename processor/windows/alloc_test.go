package windows_test

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/windows"
)

// TestPlanAllocatesNothing with a buffer that is used again.
func TestPlanAllocatesNothing(t *testing.T) {
	w := windows.Sliding{Difference: 10 * time.Millisecond}
	kept := []windows.Kept{{Start: 0, Latest: 10}, {Start: 5, Latest: 12}, {Start: 11, Latest: 12}}
	steps := make([]windows.Step, 0, 8)
	if n := testing.AllocsPerRun(100, func() { steps = w.AppendPlan(steps[:0], kept, 12, 12) }); n > 0 || len(steps) == 0 {
		t.Errorf("%g allocations for %d steps", n, len(steps))
	}
}
