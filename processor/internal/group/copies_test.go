package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/assignor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// stateful is line with state.
func stateful(partitions int) Shape {
	s := line(partitions)
	for t := range s.Tasks {
		s.Tasks[t].Stateful = true
	}
	return s
}

func tasks(ps ...store.Partition) []store.TaskID {
	var ids []store.TaskID
	for _, p := range ps {
		ids = append(ids, task(0, p))
	}
	return ids
}

func leadWith(shape Shape, opts Options, members ...joining) map[string]Assignment {
	ix := newIndex(shape)
	var rs []kmsg.JoinGroupResponseMember
	for _, m := range members {
		rs = append(rs, m.response(ix))
	}
	list := readMembers(rs, ix)
	out, _ := decide(ix, list, 9, nil, opts)
	by := make(map[string]Assignment)
	for i, a := range out {
		by[list[i].id] = a
	}
	return by
}

func ends(shape Shape, end int64) map[store.TaskID]int64 {
	m := make(map[store.TaskID]int64)
	for _, t := range shape.Tasks {
		m[t.ID] = end
	}
	return m
}

// One thread of each process hears of its copies, that with the lowest number.
func TestLeadsHear(t *testing.T) {
	t.Parallel()
	out := leadWith(stateful(4), Options{Standbys: 1},
		joining{id: "1", member: Member{ProcessID: "a", Thread: 1}},
		joining{id: "2", member: Member{ProcessID: "a", Thread: 0}},
		joining{id: "3", member: Member{ProcessID: "b", Thread: 7}},
		joining{id: "4", member: Member{ProcessID: "c", ShapeHash: 1}}, // refused
	)
	for id, want := range map[string]bool{"1": false, "2": true, "3": true, "4": false} {
		if a := out[id]; a.Copies != want || len(a.Standby) > 0 != want {
			t.Errorf("%s: told %v, %v", id, a.Copies, a.Standby)
		}
	}
	if n := len(out["2"].Standby) + len(out["3"].Standby); n != 4 {
		t.Errorf("%d standbys", n)
	}
}

// A planned move: the old owner is told at once that it stays, the new one follows until the task comes.
func TestMoveKeepsBothEnds(t *testing.T) {
	t.Parallel()
	shape := stateful(2)
	opts := Options{Standbys: 1, Ends: ends(shape, 100_000), AcceptableLag: 10}
	x := joining{
		id: "x", owned: map[string][]int32{"in": {0, 1}}, generation: 3,
		member: Member{Held: []Held{{Task: task(0, 0), State: HeldActive}, {Task: task(0, 1), State: HeldActive}}},
	}
	y := joining{id: "y", generation: 3, member: Member{
		Standby: tasks(0, 1), Held: []Held{{Task: task(0, 0), State: HeldOffset, Offset: 7}, {Task: task(0, 1), State: HeldOffset, Offset: 99_995}},
	}}
	out := leadWith(shape, opts, x, y)
	each(t, shape, out)
	if !slices.Equal(out["x"].Releasing, []Release{{Task: task(0, 1), To: "y", Keep: true}}) || len(out["x"].Standby) > 0 {
		t.Errorf("x: %+v", out["x"])
	}
	if !slices.Equal(out["y"].Incoming, tasks(1)) || !slices.Equal(out["y"].Standby, tasks(0, 1)) || len(out["y"].Awaited) > 0 {
		t.Errorf("y: %+v", out["y"])
	}
	// The second phase.
	x.owned, x.generation = map[string][]int32{"in": {0}}, 4
	last := out["x"]
	last.reportCopies(&x.member)
	x.member.Last, y.member.Last, y.member.Incoming, y.generation = 9, 9, out["y"].Incoming, 4
	x.member.Held[1] = Held{Task: task(0, 1), State: HeldOffset, Offset: 100_000}
	out = leadWith(shape, opts, x, y)
	each(t, shape, out)
	if !slices.Equal(out["x"].Active, tasks(0)) || !slices.Equal(out["x"].Standby, tasks(1)) {
		t.Errorf("x: %+v", out["x"])
	}
	if !slices.Equal(out["y"].Active, tasks(1)) || !slices.Equal(out["y"].Standby, tasks(0)) {
		t.Errorf("y: %+v", out["y"])
	}
}

// A newcomer warms up; it is told what for, and by how much less than what is accepted it has to be near.
func TestAwaited(t *testing.T) {
	t.Parallel()
	shape := stateful(2)
	out := leadWith(shape, Options{MaxWarmups: 2, Ends: ends(shape, 100_000), AcceptableLag: 10},
		joining{
			id: "x", owned: map[string][]int32{"in": {0, 1}}, generation: 3,
			member: Member{Held: []Held{{Task: task(0, 0), State: HeldActive}, {Task: task(0, 1), State: HeldActive}}},
		},
		joining{id: "y"},
	)
	each(t, shape, out)
	if a := out["y"]; !slices.Equal(a.Warmup, tasks(1)) || !slices.Equal(a.Awaited, tasks(1)) || a.ReadyLag != 5 || len(a.Active) > 0 {
		t.Errorf("y: %+v", a)
	}
}

// What a process follows is what it was told, not what it has got to.
func TestReportedCopies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		told Assignment
		want Member
	}{
		"nothing": {Assignment{}, Member{Standby: tasks(7)}},
		"all":     {Assignment{Copies: true, Standby: tasks(1), Warmup: tasks(2), Retained: tasks(3)}, Member{Standby: tasks(1), Warmup: tasks(2), Retained: tasks(3)}},
		"none":    {Assignment{Copies: true}, Member{}},
		"kept":    {Assignment{Releasing: []Release{{Task: task(0, 4)}, {Task: task(0, 5), Keep: true}}}, Member{Standby: tasks(7), Retained: tasks(5)}},
	} {
		m := Member{Standby: tasks(7)}
		c.told.reportCopies(&m)
		if !slices.Equal(m.Standby, c.want.Standby) || !slices.Equal(m.Warmup, c.want.Warmup) || !slices.Equal(m.Retained, c.want.Retained) {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// RB-10: a process of the previous version gets no copies, and whatever moves, it can read the map as it reads it: every
// instance with each task once.
func TestMapsOfRollingUpgrades(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(rand.Uint64(), 5))
	for range 200 {
		shape := stateful(1 + rng.IntN(12))
		ix := newIndex(shape)
		opts := Options{Standbys: rng.IntN(3), MaxWarmups: 1 + rng.IntN(3), Ends: ends(shape, 100), AcceptableLag: int64(rng.IntN(100))}
		var members []joining
		taken := rng.Perm(len(shape.Tasks))
		for i := range 1 + rng.IntN(6) {
			j := joining{id: fmt.Sprintf("m%d", i), generation: int32(rng.IntN(2)), owned: map[string][]int32{}}
			j.member.ProcessID = fmt.Sprintf("p%d", i/2)
			j.member.Endpoint = j.member.ProcessID + ":1"
			j.member.Thread = i % 2
			for range rng.IntN(4) {
				if len(taken) > 0 {
					j.owned["in"] = append(j.owned["in"], int32(taken[0]))
					taken = taken[1:]
				}
			}
			for _, x := range shape.Tasks {
				switch rng.IntN(5) {
				case 0:
					j.member.Standby = append(j.member.Standby, x.ID)
				case 1:
					j.member.Retained = append(j.member.Retained, x.ID)
				case 2:
					j.member.Warmup = append(j.member.Warmup, x.ID)
				}
				if rng.IntN(2) == 0 {
					j.member.Held = append(j.member.Held, Held{Task: x.ID, State: []assignor.HeldState{HeldUnknown, HeldOffset, HeldActive}[rng.IntN(3)], Offset: rng.Int64N(101)})
				}
			}
			members = append(members, j)
		}
		old := fmt.Sprintf("p%d", rng.IntN(3))
		var rs []kmsg.JoinGroupResponseMember
		for _, j := range members {
			r := j.response(ix)
			if j.member.ProcessID == old {
				r = asPrevious(t, r)
			}
			rs = append(rs, r)
		}
		list := readMembers(rs, ix)
		out, _ := decide(ix, list, 9, nil, opts)
		by := make(map[string]Assignment)
		v, before := View{}, View{}
		for m := range list {
			by[list[m].id] = out[m]
			if list[m].member.ProcessID == old && (out[m].Copies || len(out[m].Standby)+len(out[m].Warmup)+len(out[m].Retained) > 0) {
				t.Fatalf("%s is of the previous version and is given copies: %+v", list[m].id, out[m])
			}
			read, err := DecodeAssignment(out[m].AppendTo(nil))
			if err != nil {
				t.Fatal(err)
			}
			v.Members = append(v.Members, ViewMember{ID: list[m].id, Member: list[m].member, Assignment: read})
			read.Warmup, read.Retained = nil, nil
			before.Members = append(before.Members, ViewMember{ID: list[m].id, Member: list[m].member, Assignment: read})
		}
		each(t, shape, by)
		if err := v.check(); err != nil {
			t.Fatal(err)
		}
		if _, err := router.NewSnapshot(v.data("app", nil)); err != nil {
			t.Fatalf("%v\n%+v", err, v)
		}
		if err := previousMap(&before); err != nil {
			t.Fatalf("the previous version: %v\n%+v", err, before)
		}
	}
}

// previousMap reads a map as the previous version does, which knows no copy of what its process also has.
func previousMap(v *View) error {
	type at struct {
		process string
		task    store.TaskID
	}
	seen := make(map[at]bool)
	for i := range v.Members {
		m := &v.Members[i]
		for id := range m.holds {
			seen[at{m.Member.ProcessID, id}] = true
		}
	}
	for i := range v.Members {
		m := &v.Members[i]
		for _, id := range m.Assignment.Standby {
			if seen[at{m.Member.ProcessID, id}] {
				return fmt.Errorf("%s lists %s as standby and as active", m.Member.ProcessID, id)
			}
		}
	}
	return nil
}

// asPrevious makes a member's data what the previous version would have sent.
func asPrevious(t *testing.T, r kmsg.JoinGroupResponseMember) kmsg.JoinGroupResponseMember {
	t.Helper()
	var meta kmsg.ConsumerMemberMetadata
	if err := meta.ReadFrom(r.ProtocolMetadata); err != nil {
		t.Fatal(err)
	}
	m, err := DecodeMember(meta.UserData)
	if err != nil {
		t.Fatal(err)
	}
	full := m.AppendTo(nil)
	m.Standby, m.Warmup, m.Retained, m.Tags, m.Host, m.HeldPartial = nil, nil, nil, nil, HostID{}, false
	bare := m.AppendTo(nil)
	meta.UserData = full[:len(bare)-6] // flags, three empty sets, no tags, no host
	meta.UserData[0] = 1
	if back, err := DecodeMember(meta.UserData); err != nil || back.Version != 1 {
		t.Fatalf("not the previous version: %+v, %v", back, err)
	}
	r.ProtocolMetadata = meta.AppendTo(nil)
	return r
}

// The leader asks for the ends of stateful tasks only, with a time limit; without an answer tasks stay, and it says so.
func TestEndsUnknown(t *testing.T) {
	t.Parallel()
	shape := stateful(2)
	shape.Tasks[1].Stateful = false
	for name, answer := range map[string]error{"known": nil, "unknown": errors.New("no broker")} {
		b := newTestBalancer(t, shape, Member{})
		var asked []store.TaskID
		cfg := b.cfg
		cfg.Ends = func(ctx context.Context, ids []store.TaskID) (map[store.TaskID]int64, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("no time limit")
			}
			asked = ids
			return nil, answer
		}
		b, err := NewBalancer(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		mb, _, err := b.MemberBalancer([]kmsg.JoinGroupResponseMember{joining{id: "p"}.response(b.ix), joining{id: "q"}.response(b.ix)})
		if err != nil {
			t.Fatal(err)
		}
		mb.(kgo.GroupMemberBalancerInfo).SetBalanceInfo(kgo.BalanceInfo{LeaderID: "q"})
		plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"in": 2})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, tasks(0)) {
			t.Errorf("asked for %v", asked)
		}
		for _, g := range plan.IntoSyncAssignment() {
			if _, err := b.ParseSyncAssignment(g.MemberAssignment); err != nil {
				t.Fatal(err)
			}
			if want := g.MemberID == "q" && answer != nil; b.last.FollowUp != want {
				t.Errorf("%s: %s is asked for another rebalance: %v", name, g.MemberID, b.last.FollowUp)
			}
		}
	}
}
