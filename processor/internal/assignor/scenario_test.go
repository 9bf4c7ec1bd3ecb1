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
//	join              lines "<process> [threads=<n>] [capacity=<c>] [rack=<r>] [tag.<key>=<value>] [old] [partial]"; old: cannot follow
//	leave a b         processes go, with what they own; what they hold stays on their disk
//	drain a b         processes give everything away, or, with undrain, no longer do
//	hold              lines "<process> <task>=<offset|active|unknown> ...": copies on disk
//	assign            places, says what moved, and makes it the present
//	options           standbys=<n> warmups=<n> acceptable=<offsets> tags=(<key>,...)
//	ends              lines "<task>=<end> ..." or "all=<end>"; unknown: the leader could not find out. From then on placements
//	                  know lags, and print what processes follow ("*": awaited)
//	catchup           [<process> ...]: what is run or followed there is read to the end
//	unreported a b    processes leave out from now on what they hold
//	phase             places, but owners only let go: what must move is promised (the first phase of a rebalance)
func TestScenarios(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{held: map[string][]Held{}, copies: map[string]Copies{}, serving: map[store.TaskID]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type scenario struct {
	shape   Shape
	members []Member
	held    map[string][]Held // by process, on disk
	opts    Options
	copies  map[string]Copies       // by process, by the last placement
	serving map[store.TaskID]string // process that has read all of it
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
	case "drain", "undrain":
		for _, a := range d.CmdArgs {
			for i := range s.members {
				if s.members[i].Process == a.Key {
					s.members[i].Draining = d.Cmd == "drain"
				}
			}
		}
	case "hold":
		for line := range strings.Lines(d.Input) {
			s.hold(t, strings.Fields(line))
		}
	case "options":
		s.setOptions(t, d)
	case "ends":
		s.setEnds(t, strings.Fields(d.Input))
	case "unreported":
		for _, a := range d.CmdArgs {
			delete(s.held, a.Key)
		}
	case "catchup":
		s.catchUp(d.CmdArgs)
	case "assign":
		s.report()
		p := Assign(s.shape, s.members, s.opts)
		out := s.print(p)
		s.adopt(p)
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
		m := Member{ID: fmt.Sprintf("%s.%d", f[0], i), Process: f[0], Capacity: capacity, Rack: o["rack"], Tags: map[string]string{}}
		_, m.CannotFollow = o["old"]
		_, m.HeldPartial = o["partial"]
		for k, v := range o {
			if tag, ok := strings.CutPrefix(k, "tag."); ok {
				m.Tags[tag] = v
			}
		}
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
	delete(s.copies, process)
	maps.DeleteFunc(s.serving, func(_ store.TaskID, at string) bool { return at == process })
	for _, m := range s.members {
		if m.Process == process {
			for _, id := range m.Owned {
				if s.opts.Ends == nil {
					held[id] = Held{Task: id, State: HeldOffset, Offset: 1}
				}
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
	s.report()
	p := Assign(s.shape, s.members, s.opts)
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
	s.printCopies(&b, p)
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
	s.printCopies(&b, p)
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
