package group

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// scaled is a group of many members under way: what each has been told, and what it says when it joins again.
type scaled struct {
	b       *Balancer
	members []joining
	out     []Assignment
	size    Size
}

// newScaled makes processes of five threads, with names as long as they are in practice.
func newScaled(t *testing.T, nTasks, nMembers int, opts Options) *scaled {
	t.Helper()
	shape := Shape{}
	for i := range nTasks {
		p := store.Partition(i / 4)
		shape.Tasks = append(shape.Tasks, TaskShape{
			ID: store.TaskID{Subtopology: int32(i % 4), Partition: p}, Stateful: i%4 != 3,
			Inputs: []store.TopicPartition{{Topic: fmt.Sprintf("orders-by-customer-%d", i%4), Partition: p}},
		})
	}
	g := &scaled{b: newTestBalancer(t, shape, Member{})}
	g.b.cfg.Options = opts
	g.b.ends = func() (map[store.TaskID]int64, error) {
		ends := make(map[store.TaskID]int64)
		for _, id := range g.b.ix.stateful() {
			ends[id] = 40_000_000
		}
		return ends, nil
	}
	for i := range nMembers {
		process := fmt.Sprintf("6ffa5b1e-7a39-4c3b-9c2f-%012d", i/5)
		g.members = append(g.members, joining{
			id: fmt.Sprintf("orders-view-0e8c5d1b-2a3f-4c3b-9c2f-%012d", i),
			member: Member{
				ProcessID: process, Incarnation: fmt.Sprintf("0e8c5d1b-7a39-4c3b-9c2f-%012d", i/5), Endpoint: fmt.Sprintf("orders-view-%d.orders.svc:7070", i/5),
				Rack: fmt.Sprintf("eu-central-1%c", 'a'+i/5%3), TransactionalID: fmt.Sprintf("orders-view-%s-0e8c5d1b-7a39-4c3b-9c2f-%012d-%d-0", process, i/5, i%5),
				Thread: i % 5, Capacity: 1,
				Host: HostID{BootID: process, PIDNamespace: "4026531836", PID: 4000 + i/5, StartTime: 99_887_766},
			},
		})
	}
	return g
}

// generation joins all members and places the tasks.
func (g *scaled) generation(t *testing.T) {
	t.Helper()
	rs := make([]kmsg.JoinGroupResponseMember, len(g.members))
	for i := range g.members {
		rs[i] = g.members[i].response(g.b.ix)
	}
	mb, _, err := g.b.MemberBalancer(rs)
	if err != nil {
		t.Fatal(err)
	}
	l := mb.(*leader)
	plan, err := l.BalanceOrError(nil)
	if err != nil {
		t.Fatal(err)
	}
	sync := plan.IntoSyncAssignment()
	g.size = Size{Members: len(sync), Tasks: len(g.b.ix.shape.Tasks)}
	g.out = make([]Assignment, len(sync))
	for m := range sync {
		var wire kmsg.ConsumerMemberAssignment
		if err := wire.ReadFrom(sync[m].MemberAssignment); err != nil {
			t.Fatal(err)
		}
		if g.out[m], err = DecodeAssignment(wire.UserData); err != nil {
			t.Fatal(err)
		}
		g.size.Metadata += l.members[m].bytes
		g.size.Assignments += len(sync[m].MemberAssignment)
		g.size.Overhead += memberOverhead(sync[m].MemberID)
	}
}

// carryOn makes the members say what they have by now: all of what they were told, caught up.
func (g *scaled) carryOn() {
	held := make(map[string][]Held)
	for i := range g.members {
		process := g.members[i].member.ProcessID
		for _, id := range g.out[i].Active {
			if g.b.ix.shape.Tasks[g.b.ix.byID[id]].Stateful {
				held[process] = append(held[process], Held{Task: id, State: HeldActive})
			}
		}
		for _, id := range g.out[i].Standby {
			held[process] = append(held[process], Held{Task: id, State: HeldOffset, Offset: 39_999_000})
		}
	}
	for i := range g.members {
		j, a := &g.members[i], &g.out[i]
		j.generation++
		j.owned = g.b.ix.partitions(a.Active)
		j.member.Epoch, j.member.Last, j.member.Incoming, j.member.Held = a.Epoch, a.Epoch, a.Incoming, nil
		a.reportCopies(&j.member)
		if j.member.Thread == 0 {
			var left int
			j.member.Held, left = trimHeld(held[j.member.ProcessID], a.HeldBudget, a.Awaited)
			j.member.HeldPartial = left > 0
		}
	}
}

// A group of 10,000 tasks, 7,500 of them with state, and 500 members in 100 processes, fits with standbys:
// nothing moves once it runs, and all are told of all.
func TestScale(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		standbys, limit int
	}{{0, SizeLimit}, {1, 560 << 10}, {2, 576 << 10}} {
		g := newScaled(t, 10_000, 500, Options{Standbys: c.standbys, MaxWarmups: 2, AcceptableLag: 10_000})
		g.generation(t)
		first := g.size.Total()
		for range 3 {
			g.carryOn()
			g.generation(t)
		}
		standbys, copies, held, partial := 0, 0, 0, 0
		for i := range g.out {
			a := &g.out[i]
			if len(a.Releasing)+len(a.Incoming)+len(a.Warmup)+len(a.Retained) > 0 || a.FollowUp {
				t.Fatalf("%d standbys: not at rest: %+v", c.standbys, a)
			}
			standbys += len(a.Standby)
			if a.Copies {
				copies++
			}
			held += len(g.members[i].member.Held)
			if g.members[i].member.HeldPartial {
				partial++
			}
		}
		t.Logf("%d standbys: %d bytes at first, then %d (metadata %d, assignments %d, overhead %d); %d copies reported, %d processes had more",
			c.standbys, first, g.size.Total(), g.size.Metadata, g.size.Assignments, g.size.Overhead, held, partial)
		if g.size.Total() > c.limit {
			t.Errorf("%d standbys: %d bytes, limit %d", c.standbys, g.size.Total(), c.limit)
		}
		if standbys != 7_500*c.standbys || copies != 100 {
			t.Errorf("%d standbys told of %d, by %d threads", standbys, 7_500*c.standbys, copies)
		}
	}
}
