package assignor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/statemesh/statemesh/store"
)

// The scenarios play with one fleet. Commands:
//
//	shape             lines "<sub-topology> partitions=<n> [weight=<w>] [stateless]"
//	join              lines "<process> [threads=<n>] [capacity=<c>]"
//	leave a b         processes go, with what they own; what they hold stays on their disk
//	hold              lines "<process> <task>=<offset|active|unknown> ...": copies on disk
//	assign            places, says what moved, and makes it the present
//	phase             places, but owners only let go: what must move is promised (the first phase of a rebalance)
func TestScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{held: map[string][]Held{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type scenario struct {
	shape   Shape
	members []Member
	held    map[string][]Held // by process, on disk
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "shape":
		s.shape = Shape{}
		for line := range strings.Lines(d.Input) {
			s.addTasks(t, strings.Fields(line))
		}
		return fmt.Sprintf("%d tasks\n", len(s.shape.Tasks))
	case "join":
		for line := range strings.Lines(d.Input) {
			s.join(t, strings.Fields(line))
		}
	case "leave":
		for _, a := range d.CmdArgs {
			s.leave(a.Key)
		}
	case "hold":
		for line := range strings.Lines(d.Input) {
			s.hold(t, strings.Fields(line))
		}
	case "assign":
		p := Assign(s.shape, s.members)
		out := s.print(p)
		for i := range s.members {
			s.members[i].Owned, s.members[i].Expected = p.Members[i].Active, nil
		}
		return out
	case "phase":
		return s.phase()
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return "ok\n"
}

func number(t *testing.T, v string) int {
	t.Helper()
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func options(fields []string) map[string]string {
	o := map[string]string{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		o[k] = v
	}
	return o
}

func (s *scenario) addTasks(t *testing.T, f []string) {
	t.Helper()
	o := options(f[1:])
	_, stateless := o["stateless"]
	weight := 1
	if v, ok := o["weight"]; ok {
		weight = number(t, v)
	}
	for p := range number(t, o["partitions"]) {
		s.shape.Tasks = append(s.shape.Tasks, TaskShape{
			ID: store.TaskID{Subtopology: int32(number(t, f[0])), Partition: store.Partition(p)}, Weight: weight, Stateful: !stateless,
		})
	}
}

func (s *scenario) join(t *testing.T, f []string) {
	t.Helper()
	o := options(f[1:])
	threads, capacity := 1, 1
	if v, ok := o["threads"]; ok {
		threads = number(t, v)
	}
	if v, ok := o["capacity"]; ok {
		capacity = number(t, v)
	}
	for i := range threads {
		m := Member{ID: fmt.Sprintf("%s.%d", f[0], i), Process: f[0], Capacity: capacity}
		if i == 0 {
			m.Held = s.held[f[0]]
		}
		s.members = append(s.members, m)
	}
}

func (s *scenario) leave(process string) {
	held := map[store.TaskID]Held{}
	for _, h := range s.held[process] {
		held[h.Task] = h
	}
	for _, m := range s.members {
		if m.Process == process {
			for _, id := range m.Owned {
				held[id] = Held{Task: id, State: HeldOffset, Offset: 1}
			}
		}
	}
	s.held[process] = slices.SortedFunc(maps.Values(held), func(a, b Held) int { return a.Task.Compare(b.Task) })
	s.members = slices.DeleteFunc(s.members, func(m Member) bool { return m.Process == process })
}

func (s *scenario) hold(t *testing.T, f []string) {
	t.Helper()
	for _, x := range f[1:] {
		task, v, _ := strings.Cut(x, "=")
		id, err := store.ParseTaskID(task)
		if err != nil {
			t.Fatal(err)
		}
		h := Held{Task: id}
		switch v {
		case "active":
			h.State = HeldActive
		case "unknown":
		default:
			h.State, h.Offset = HeldOffset, int64(number(t, v))
		}
		s.held[f[0]] = append(s.held[f[0]], h)
	}
	for i := range s.members {
		if s.members[i].Process == f[0] {
			s.members[i].Held = s.held[f[0]]
			break
		}
	}
}

// phase is what the members own and are promised after the first generation of a cooperative rebalance.
func (s *scenario) phase() string {
	p := Assign(s.shape, s.members)
	var b strings.Builder
	owner := map[store.TaskID]bool{}
	for _, m := range s.members {
		for _, id := range m.Owned {
			owner[id] = true
		}
	}
	for i := range s.members {
		m, active := &s.members[i], p.Members[i].Active
		var own, promised []store.TaskID
		for _, id := range active {
			if owner[id] && !slices.Contains(m.Owned, id) {
				promised = append(promised, id)
			} else {
				own = append(own, id)
			}
		}
		m.Owned, m.Expected = own, promised
		fmt.Fprintf(&b, "%s: has %s, promised %s\n", m.ID, tasks(own), tasks(promised))
	}
	return b.String()
}

func (s *scenario) print(p Plan) string {
	var b strings.Builder
	was := map[store.TaskID]string{}
	for _, m := range s.members {
		for _, id := range m.Owned {
			was[id] = m.ID
		}
	}
	moves := 0
	for _, m := range p.Members {
		fmt.Fprintf(&b, "%s: %s\n", m.Member, tasks(m.Active))
		for _, id := range m.Active {
			if from, ok := was[id]; ok && from != m.Member {
				moves++
			}
		}
	}
	fmt.Fprintf(&b, "%d moved\n", moves)
	return b.String()
}

func tasks(ids []store.TaskID) string {
	if len(ids) == 0 {
		return "-"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	return strings.Join(names, " ")
}
