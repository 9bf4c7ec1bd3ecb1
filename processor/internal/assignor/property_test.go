package assignor

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the property tests; 0 takes a random one")

func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// kinds of shape: in a uniform one all tasks are of one class, in an even one all weigh the same.
type kind int

const (
	uniform kind = iota
	even
	mixed
)

func randomShape(rng *rand.Rand, k kind) Shape {
	var s Shape
	for sub := range 1 + rng.IntN(3) {
		weight, stateful := 1, true
		if k != uniform {
			stateful = rng.IntN(2) == 0
		}
		if k == mixed {
			weight = 1 + rng.IntN(4)
		}
		for p := range rng.IntN(24) {
			s.Tasks = append(s.Tasks, TaskShape{
				ID:     store.TaskID{Subtopology: int32(sub), Partition: store.Partition(p)},
				Weight: weight, Stateful: stateful,
			})
		}
	}
	rng.Shuffle(len(s.Tasks), func(i, j int) { s.Tasks[i], s.Tasks[j] = s.Tasks[j], s.Tasks[i] })
	return s
}

// fleetModel is a fleet with a history.
type fleetModel struct {
	rng     *rand.Rand
	shape   Shape
	members []Member
	next    int
}

// join adds a process of n members.
func (m *fleetModel) join(n, capacity int) {
	process := fmt.Sprintf("p%02d", m.next)
	m.next++
	for i := range n {
		m.members = append(m.members, Member{ID: fmt.Sprintf("%s-%d", process, i), Process: process, Capacity: capacity})
	}
}

// adopt makes the plan the present: everybody has what it was given, no promise is open.
func (m *fleetModel) adopt(p Plan) {
	for i := range m.members {
		m.members[i].Owned, m.members[i].Expected = p.Members[i].Active, nil
	}
}

func owners(p Plan) map[store.TaskID]string {
	o := make(map[store.TaskID]string)
	for _, m := range p.Members {
		for _, id := range m.Active {
			o[id] = m.Member
		}
	}
	return o
}

// moved counts the tasks that had an owner among the members and have another now, by new owner.
func moved(members []Member, p Plan) map[string]int {
	now := owners(p)
	n := map[string]int{}
	for _, m := range members {
		for _, id := range m.Owned {
			if now[id] != m.ID {
				n[now[id]]++
			}
		}
	}
	return n
}

func TestProperties(t *testing.T) {
	t.Parallel()
	rng := newRand(t)
	for round := range 120 {
		k := kind(round % 3)
		m := &fleetModel{rng: rng, shape: randomShape(rng, k)}
		for range 12 {
			step(t, m, k)
		}
	}
}

// step changes the fleet at random and checks what the package promises.
func step(t *testing.T, m *fleetModel, k kind) {
	t.Helper()
	capacity := 1
	if k == mixed {
		capacity = 1 + m.rng.IntN(3)
	}
	joined, left := false, false
	switch r := m.rng.IntN(10); {
	case r < 5 || len(m.members) == 0:
		m.join(1+m.rng.IntN(4), capacity)
		joined = true
	case r < 8:
		gone := m.members[m.rng.IntN(len(m.members))].Process
		m.members = slices.DeleteFunc(m.members, func(x Member) bool { return x.Process == gone })
		left = true
	default:
		m.randomState()
	}
	p := Assign(m.shape, m.members, Options{})
	if len(m.members) == 0 {
		if len(p.Members) != 0 {
			t.Fatalf("a plan for nobody: %v", p)
		}
		return
	}
	checkOnce(t, m.shape, p)
	checkBalance(t, m, p, k)
	shift := moved(m.members, p)
	for to, n := range shift {
		newcomer := joined && slices.ContainsFunc(m.members, func(x Member) bool { return x.ID == to && len(x.Owned) == 0 })
		if k == uniform && (joined && !newcomer || left) {
			t.Fatalf("%d tasks move to %s needlessly (joined %v, left %v)\n%v\n%v", n, to, joined, left, m.members, p)
		}
	}
	shuffled := slices.Clone(m.members)
	m.rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if diff := cmp.Diff(owners(p), owners(Assign(m.shape, shuffled, Options{}))); diff != "" {
		t.Fatalf("the order of members matters: %s", diff)
	}
	m.adopt(p)
	if again := Assign(m.shape, m.members, Options{}); len(moved(m.members, again)) > 0 {
		t.Fatalf("nothing changed, yet tasks move: %v\n%v\n%v", moved(m.members, again), p, again)
	}
}

// randomState lets processes hold, and be promised, tasks at random.
func (m *fleetModel) randomState() {
	for i := range m.members {
		x := &m.members[i]
		x.Held, x.Expected = nil, nil
		for _, task := range m.shape.Tasks {
			switch m.rng.IntN(8) {
			case 0:
				x.Held = append(x.Held, Held{Task: task.ID, State: HeldState(m.rng.IntN(3)), Offset: m.rng.Int64N(100)})
			case 1:
				x.Expected = append(x.Expected, task.ID)
			}
		}
	}
}

func checkOnce(t *testing.T, shape Shape, p Plan) {
	t.Helper()
	seen := map[store.TaskID]int{}
	for _, m := range p.Members {
		if !slices.IsSortedFunc(m.Active, store.TaskID.Compare) {
			t.Fatalf("unsorted: %v", m.Active)
		}
		for _, id := range m.Active {
			seen[id]++
		}
	}
	for _, task := range shape.Tasks {
		if seen[task.ID] != 1 {
			t.Fatalf("task %s is active %d times", task.ID, seen[task.ID])
		}
	}
	if len(seen) != len(shape.Tasks) {
		t.Fatalf("%d tasks placed of %d", len(seen), len(shape.Tasks))
	}
}

type load struct{ all, stateful, capacity int }

func checkBalance(t *testing.T, m *fleetModel, p Plan, k kind) {
	t.Helper()
	tasks := map[store.TaskID]TaskShape{}
	heaviest := 1
	for _, task := range m.shape.Tasks {
		tasks[task.ID] = task
		heaviest = max(heaviest, task.Weight)
	}
	processes := map[string]*load{}
	members := map[string]*load{}
	for i, pl := range p.Members {
		proc := m.members[i].Process
		if processes[proc] == nil {
			processes[proc] = &load{}
		}
		ml := &load{}
		members[pl.Member] = ml
		for _, l := range []*load{processes[proc], ml} {
			l.capacity += m.members[i].Capacity
			for _, id := range pl.Active {
				l.all += tasks[id].Weight
				if tasks[id].Stateful {
					l.stateful += tasks[id].Weight
				}
			}
		}
	}
	pairs(t, "process", processes, heaviest)
	if k != mixed {
		pairs(t, "member", members, 1)
	}
}

// pairs checks that of no two bins the fuller would stay at or above the other by giving a task away, half of it counted.
func pairs(t *testing.T, what string, bins map[string]*load, weight int) {
	t.Helper()
	for a, x := range bins {
		for b, y := range bins {
			if (2*x.all-weight)*y.capacity > (2*y.all+weight)*x.capacity {
				t.Fatalf("%s %s has %+v, %s has %+v", what, a, *x, b, *y)
			}
			if (2*x.stateful-weight)*y.capacity > (2*y.stateful+weight)*x.capacity {
				t.Fatalf("%s %s has %+v, %s has %+v", what, a, *x, b, *y)
			}
		}
	}
}

// A promise made in one phase of a cooperative rebalance is what the next phase does, whoever has let go by then and
// whoever holds what.
func TestPromisesAreKept(t *testing.T) {
	t.Parallel()
	rng := newRand(t)
	for range 120 {
		m := &fleetModel{rng: rng, shape: randomShape(rng, kind(rng.IntN(3)))}
		for range 1 + rng.IntN(5) {
			m.join(1+rng.IntN(3), 1)
		}
		m.adopt(Assign(m.shape, m.members, Options{}))
		m.join(1+rng.IntN(3), 1)
		m.randomState()
		for i := range m.members {
			m.members[i].Expected = nil
		}
		p := Assign(m.shape, m.members, Options{})
		target := owners(p)
		for i := range m.members {
			x := &m.members[i]
			for _, id := range p.Members[i].Active {
				if !slices.Contains(x.Owned, id) {
					x.Expected = append(x.Expected, id)
				}
			}
			x.Owned = slices.DeleteFunc(slices.Clone(x.Owned), func(id store.TaskID) bool {
				return target[id] != x.ID && rng.IntN(3) > 0 // some are slow to let go
			})
		}
		if diff := cmp.Diff(target, owners(Assign(m.shape, m.members, Options{}))); diff != "" {
			t.Fatalf("the second phase differs: %s", diff)
		}
	}
}
