package store_test

import (
	"math"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func TestTaskID(t *testing.T) {
	t.Parallel()
	for _, id := range []store.TaskID{{}, {Subtopology: 1, Partition: 11}, {Subtopology: math.MaxInt32, Partition: math.MaxInt32}} {
		if got, err := store.ParseTaskID(id.String()); err != nil || got != id {
			t.Errorf("%s: parsed %v, %v", id, got, err)
		}
	}
	for _, s := range []string{"", "1", "_", "1_", "_1", "-1_0", "0_-1", "0_1_2", "a_b", "0_2147483648", " 0_1"} {
		if got, err := store.ParseTaskID(s); err == nil {
			t.Errorf("%q: parsed as %v", s, got)
		}
	}
}

// Tasks are ordered by number, not as text.
func TestTaskIDOrder(t *testing.T) {
	t.Parallel()
	ordered := []store.TaskID{{0, 0}, {0, 2}, {0, 11}, {1, 0}, {10, 0}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := a.Compare(b), sign(i-j); got != want {
				t.Errorf("%s against %s: %d, want %d", a, b, got, want)
			}
		}
	}
}

func sign(n int) int { return min(1, max(-1, n)) }
