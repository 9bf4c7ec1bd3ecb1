package layered_test

import (
	"math/rand/v2"
	"slices"

	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// historied is a task with a random history of numbered commits, of which snapshots are kept open.
type historied struct {
	*machine
	rng  *rand.Rand
	step int
	now  int64 // around which times are drawn

	last  int // commit
	moved int // commit that is durable
	held  []heldRows
}

// heldRows is a snapshot of a commit that is kept open.
type heldRows struct {
	snap *layered.Snapshot
	n    int
}

// pin keeps the last commit open, in the place of another one when there are many.
func (m *historied) pin() {
	if len(m.held) > 3 {
		i := m.rng.IntN(len(m.held))
		m.held[i].snap.Close()
		m.held = slices.Delete(m.held, i, i+1)
	}
	snap, err := m.task.Snapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	m.held = append(m.held, heldRows{snap, m.last})
}

func (m *historied) release() {
	for _, h := range m.held {
		h.snap.Close()
	}
	m.held = nil
}

// end ends the task in some way and opens it again. What is there then is commit n, no older than what that way leaves. When
// a store did not outlive it, whole is false, and n 0: everything is to be replayed.
func (m *historied) end() (n int, whole bool, end storetest.End) {
	m.t.Helper()
	m.release()
	end = storetest.End(m.rng.IntN(4))
	n, lost := m.Restart(end)
	least := m.moved
	if end == storetest.EndClose || end == storetest.EndStop {
		least = m.last
	}
	if end == storetest.EndWipe || len(lost) > 0 {
		least = 0
	}
	if n < least || n > m.last {
		m.t.Fatalf("step %d: after end %d commit %d is there; %d were made, %d durable", m.step, end, n, m.last, least)
	}
	if len(lost) > 0 {
		return 0, false, end
	}
	return n, true, end
}
