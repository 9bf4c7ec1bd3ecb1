package assignor

import (
	"fmt"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func TestNothingToPlace(t *testing.T) {
	t.Parallel()
	if p := Assign(Shape{Tasks: []TaskShape{{}}}, nil, Options{}); len(p.Members) != 0 {
		t.Errorf("a plan for nobody: %v", p)
	}
	if p := Assign(Shape{}, []Member{{ID: "a"}}, Options{}); len(p.Members) != 1 || len(p.Members[0].Active) != 0 {
		t.Errorf("a plan of nothing: %v", p)
	}
}

// RB-08: what members claim need not make sense.
func TestSenselessClaims(t *testing.T) {
	t.Parallel()
	shape := Shape{Tasks: []TaskShape{{ID: store.TaskID{Partition: 0}}, {ID: store.TaskID{Partition: 1}}, {ID: store.TaskID{Partition: 1}}}}
	unknown := store.TaskID{Subtopology: -3, Partition: 9}
	both := []store.TaskID{{Partition: 0}, {Partition: 0}, unknown, {Partition: 1}}
	p := Assign(shape, []Member{
		{ID: "b", Process: "b", Capacity: -5, Owned: both, Held: []Held{{Task: unknown, Offset: -1}}},
		{ID: "a", Process: "a", Owned: both, Expected: []store.TaskID{unknown}},
	}, Options{})
	if len(p.Members[0].Active) != 1 || len(p.Members[1].Active) != 1 || p.Members[0].Active[0] == p.Members[1].Active[0] {
		t.Errorf("%v", p)
	}
}

func TestShapeHash(t *testing.T) {
	t.Parallel()
	base := func() Shape {
		return Shape{Topology: 1, Tasks: []TaskShape{
			{ID: store.TaskID{Partition: 0}, Inputs: []store.TopicPartition{{Topic: "a"}, {Topic: "b"}}, Stateful: true},
			{ID: store.TaskID{Partition: 1}, Inputs: []store.TopicPartition{{Topic: "a", Partition: 1}}, Stateful: true},
		}}
	}
	h := base().Hash()
	same := base()
	same.Tasks[0], same.Tasks[1] = same.Tasks[1], same.Tasks[0]
	same.Tasks[1].Inputs[0], same.Tasks[1].Inputs[1] = same.Tasks[1].Inputs[1], same.Tasks[1].Inputs[0]
	same.Tasks[0].Weight = 9
	if same.Hash() != h {
		t.Error("order or weight changes the hash")
	}
	for name, change := range map[string]func(*Shape){
		"topology":    func(s *Shape) { s.Topology = 2 },
		"task gone":   func(s *Shape) { s.Tasks = s.Tasks[:1] },
		"task id":     func(s *Shape) { s.Tasks[0].ID.Subtopology = 1 },
		"input gone":  func(s *Shape) { s.Tasks[0].Inputs = s.Tasks[0].Inputs[:1] },
		"input topic": func(s *Shape) { s.Tasks[0].Inputs[1].Topic = "c" },
		"input moved": func(s *Shape) { s.Tasks[0].Inputs[1].Partition = 1 },
		"state":       func(s *Shape) { s.Tasks[0].Stateful = false },
	} {
		s := base()
		change(&s)
		if s.Hash() == h {
			t.Errorf("%s: same hash", name)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, bench := range []struct {
		name  string
		start func(*Shape, []Member)
	}{
		{"cold", func(*Shape, []Member) {}},
		{"unchanged", func(s *Shape, ms []Member) { own(ms, Assign(*s, ms, Options{})) }},
		{"join", func(s *Shape, ms []Member) { own(ms, Assign(*s, ms[:len(ms)-5], Options{})) }},
		{"restart", func(s *Shape, ms []Member) {
			for i, p := range Assign(*s, ms, Options{}).Members {
				for _, id := range p.Active {
					ms[i].Held = append(ms[i].Held, Held{Task: id, State: HeldOffset, Offset: 1})
				}
			}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			shape, members := largeFleet(10_000, 500)
			bench.start(&shape, members)
			b.ReportAllocs()
			for b.Loop() {
				Assign(shape, members, Options{})
			}
		})
	}
}

// With standbys, lags and racks. The state of all tasks but the joined members' has caught up.
func BenchmarkFollow(b *testing.B) {
	for _, bench := range []struct {
		name      string
		perMember int // members of a process
		racks     int
		joined    int // processes that are new
		crashed   int
	}{
		{"steady", 5, 1, 0, 0},
		{"steady,3racks", 5, 3, 0, 0},
		{"join", 5, 3, 5, 0},
		{"crash", 5, 3, 0, 5},
		{"join,500processes", 1, 3, 25, 0},
		{"cold", 5, 3, 100, 0},
		{"cold,500processes", 1, 3, 500, 0},
	} {
		b.Run(bench.name, func(b *testing.B) {
			shape, members := largeFleet(10_000, 500)
			opts := Options{Standbys: 1, MaxWarmups: 2, AcceptableLag: DefaultAcceptableLag, Ends: make(map[store.TaskID]int64)}
			for _, t := range shape.Tasks {
				opts.Ends[t.ID] = 1e6
			}
			for i := range members {
				p := i / bench.perMember
				members[i].Process, members[i].Rack = fmt.Sprintf("p%03d", p), fmt.Sprintf("r%d", p%bench.racks)
			}
			before := len(members) - bench.joined*bench.perMember
			run(members[:before], Assign(shape, members[:before], opts))
			members = members[bench.crashed*bench.perMember:]
			var p Plan
			b.ReportAllocs()
			for b.Loop() {
				p = Assign(shape, members, opts)
			}
			if p.Missing > 0 {
				b.Fatalf("%d standbys missing", p.Missing)
			}
		})
	}
}

// run makes a plan the present of members, with everything caught up.
func run(ms []Member, p Plan) {
	own(ms, p)
	first := make(map[string]*Member)
	for i := range ms {
		m := &ms[i]
		if first[m.Process] == nil {
			first[m.Process] = m
		}
		for _, id := range m.Owned {
			first[m.Process].Held = append(first[m.Process].Held, Held{Task: id, State: HeldActive})
		}
	}
	for _, c := range p.Processes {
		m := first[c.Process]
		m.Standby = c.Standby
		for _, id := range c.Standby {
			m.Held = append(m.Held, Held{Task: id, State: HeldOffset, Offset: 1e6})
		}
	}
}

// largeFleet has four sub-topologies, and processes of five threads.
func largeFleet(tasks, threads int) (Shape, []Member) {
	var s Shape
	for i := range tasks {
		s.Tasks = append(s.Tasks, TaskShape{ID: store.TaskID{Subtopology: int32(i % 4), Partition: store.Partition(i / 4)}, Stateful: i%4 != 3})
	}
	var ms []Member
	for i := range threads {
		ms = append(ms, Member{ID: fmt.Sprintf("m%03d", i), Process: fmt.Sprintf("p%03d", i/5)})
	}
	return s, ms
}

func own(ms []Member, p Plan) {
	for i := range p.Members {
		ms[i].Owned = p.Members[i].Active
	}
}
