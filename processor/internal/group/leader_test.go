package group

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// joining is a member that takes part in a generation without a client.
type joining struct {
	id         string
	member     Member
	owned      map[string][]int32
	generation int32
	raw        []byte // instead of all that
	user       []byte // instead of member
}

func (j joining) response(ix *index) kmsg.JoinGroupResponseMember {
	r := kmsg.NewJoinGroupResponseMember()
	r.MemberID = j.id
	if j.raw != nil {
		r.ProtocolMetadata = j.raw
		return r
	}
	m := j.member
	if m.ProcessID == "" {
		m.ProcessID = j.id
	}
	switch m.Endpoint {
	case "":
		m.Endpoint = m.ProcessID + ":1"
	case none:
		m.Endpoint = ""
	}
	if m.ShapeHash == 0 {
		m.ShapeHash = ix.hash
	}
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version = 3
	meta.Topics = ix.topics
	meta.Generation = j.generation
	meta.UserData = m.AppendTo(nil)
	if j.user != nil {
		meta.UserData = j.user
	}
	for topic, ps := range j.owned {
		o := kmsg.NewConsumerMemberMetadataOwnedPartition()
		o.Topic, o.Partitions = topic, ps
		meta.OwnedPartitions = append(meta.OwnedPartitions, o)
	}
	r.ProtocolMetadata = meta.AppendTo(nil)
	return r
}

// lead decides for the members; the result is by member id.
func lead(shape Shape, known []View, members ...joining) (map[string]Assignment, []joined) {
	ix := newIndex(shape)
	var rs []kmsg.JoinGroupResponseMember
	for _, m := range members {
		rs = append(rs, m.response(ix))
	}
	list := readMembers(rs, ix)
	out := map[string]Assignment{}
	assignments, _ := decide(ix, list, 9, known, Options{})
	for i, a := range assignments {
		out[list[i].id] = a
	}
	return out, list
}

func line(partitions int) Shape {
	var s Shape
	for p := range partitions {
		s.Tasks = append(s.Tasks, TaskShape{ID: task(0, store.Partition(p)), Inputs: []store.TopicPartition{{Topic: "in", Partition: store.Partition(p)}}})
	}
	return s
}

// each checks that every task of the shape is with exactly one member, held or about to be let go of.
func each(t *testing.T, shape Shape, out map[string]Assignment) {
	t.Helper()
	holders := map[store.TaskID][]string{}
	incoming := map[store.TaskID]int{}
	for id, a := range out {
		for _, x := range a.Active {
			holders[x] = append(holders[x], id)
		}
		for _, r := range a.Releasing {
			holders[r.Task] = append(holders[r.Task], id)
			incoming[r.Task]--
		}
		for _, x := range a.Incoming {
			incoming[x]++
		}
	}
	for _, x := range shape.Tasks {
		if len(holders[x.ID]) != 1 {
			t.Errorf("task %s is with %v", x.ID, holders[x.ID])
		}
		if incoming[x.ID] != 0 {
			t.Errorf("task %s: on its way without an end", x.ID)
		}
	}
	if len(holders) != len(shape.Tasks) {
		t.Errorf("%d tasks placed of %d", len(holders), len(shape.Tasks))
	}
}

func problemOf(a Assignment) ProblemKind {
	if len(a.Problems) == 0 {
		return 0
	}
	return a.Problems[0].Kind
}

// Who drains is told that it is known, and what it has goes to others. While anything is on its way, all but who lets go of it are
// asked to join once more, and nobody is when nothing is.
func TestDrainingMember(t *testing.T) {
	t.Parallel()
	shape := line(4)
	a := joining{id: "a", owned: map[string][]int32{"in": {0, 1}}, generation: 5, member: Member{Draining: true}}
	b := joining{id: "b", owned: map[string][]int32{"in": {2, 3}}, generation: 5}
	out, _ := lead(shape, nil, a, b)
	each(t, shape, out)
	if x := out["a"]; !x.Drains || x.Again || len(x.Active) > 0 || len(x.Releasing) != 2 {
		t.Errorf("a, which drains: %+v", x)
	}
	if x := out["b"]; x.Drains || !x.Again || len(x.Active) != 2 || len(x.Incoming) != 2 {
		t.Errorf("b: %+v", x)
	}
	a.owned, a.member.Last, a.generation, b.generation = nil, 9, 6, 6
	b.member.Last, b.member.Incoming = 9, out["b"].Incoming
	out, _ = lead(shape, nil, a, b)
	each(t, shape, out)
	if x := out["a"]; !x.Drains || x.Again || len(x.Active)+len(x.Releasing) > 0 {
		t.Errorf("a in the second phase: %+v", x)
	}
	if x := out["b"]; x.Again || len(x.Active) != 4 {
		t.Errorf("b in the second phase: %+v", x)
	}
	alone, _ := lead(shape, nil, a)
	if x := alone["a"]; !x.Drains || len(x.Active) != 4 {
		t.Errorf("alone: %+v", x)
	}
}

// RB-08: claims of an older generation do not count, those of the same are settled, and nobody gets what another may
// still run.
func TestDuplicateClaims(t *testing.T) {
	t.Parallel()
	shape := line(4)
	out, _ := lead(shape, nil,
		joining{id: "a", owned: map[string][]int32{"in": {0, 1}}, generation: 5},
		joining{id: "b", owned: map[string][]int32{"in": {1, 2, 3}}, generation: 4}, // stale for 1
	)
	each(t, shape, out)
	if a := out["a"].Active; !slices.Equal(a, []store.TaskID{task(0, 0), task(0, 1)}) {
		t.Errorf("a runs %v", a)
	}
	if b := out["b"].Active; !slices.Equal(b, []store.TaskID{task(0, 2), task(0, 3)}) {
		t.Errorf("b runs %v", b)
	}
	// Both claim everything in one generation.
	all := map[string][]int32{"in": {0, 1, 2, 3, 3, 3}}
	out, _ = lead(shape, nil, joining{id: "a", owned: all, generation: 5}, joining{id: "b", owned: all, generation: 5})
	each(t, shape, out)
	if len(out["a"].Active)+len(out["b"].Active) != 4 || len(out["a"].Active) != 2 {
		t.Errorf("a %v, b %v", out["a"].Active, out["b"].Active)
	}
	// The plan goes back to a stale claimant: it must wait until the present owner has let go.
	out, _ = lead(line(1), nil,
		joining{id: "a", owned: map[string][]int32{"in": {0}}, generation: 4},
		joining{id: "b", owned: map[string][]int32{"in": {0}}, generation: 5, member: Member{ShapeHash: 1}}, // refused: must give it up
	)
	each(t, line(1), out)
	if len(out["a"].Active) != 0 || len(out["a"].Incoming) != 1 || len(out["b"].Releasing) != 1 {
		t.Errorf("a %+v, b %+v", out["a"], out["b"])
	}
}

func TestSenselessMembers(t *testing.T) {
	t.Parallel()
	shape := line(4)
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 200)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	newer := Member{ProcessID: "n"}
	newerBytes := newer.AppendTo(nil)
	newerBytes[0], newerBytes[1] = version+1, version+1
	out, list := lead(shape, nil,
		joining{id: "good", owned: map[string][]int32{"in": {-1, 99, 0}, "elsewhere": {0}}, generation: 1},
		joining{id: "noise", raw: noise},
		joining{id: "empty", raw: []byte{}},
		joining{id: "nouser", user: []byte{}},
		joining{id: "newer", user: newerBytes, owned: map[string][]int32{"in": {1, -7}}, generation: 1},
		joining{id: "good"},
	)
	each(t, shape, out)
	if len(list) != 5 {
		t.Errorf("%d members, want 5: an id listed twice counts once", len(list))
	}
	for _, id := range []string{"noise", "empty", "nouser", "newer"} {
		if k := problemOf(out[id]); k != UnreadableMember || len(out[id].Active) > 0 {
			t.Errorf("%s: problem %v, active %v", id, k, out[id].Active)
		}
	}
	// What the unreadable member may still run is not given away before it let go.
	if len(out["good"].Active) != 3 || !slices.Equal(out["good"].Incoming, []store.TaskID{task(0, 1)}) {
		t.Errorf("good: %+v", out["good"])
	}
	if !strings.Contains(out["newer"].Problems[0].Detail, "newer version") {
		t.Errorf("%v", out["newer"].Problems)
	}
}

func TestOtherTopology(t *testing.T) {
	t.Parallel()
	out, _ := lead(line(2), nil, joining{id: "a"}, joining{id: "b", member: Member{ShapeHash: 42}})
	each(t, line(2), out)
	a := out["b"]
	if p, ok := a.Refused(); !ok || p.Kind != OtherTopology || !strings.Contains(p.Detail, "000000000000002a") {
		t.Errorf("%v", a.Problems)
	}
	if len(a.Active) > 0 {
		t.Errorf("it got %v, which it does not know", a.Active)
	}
}

// CF-01: two processes at one address are found out, and so are addresses nobody can dial.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	out, _ := lead(line(4), nil,
		joining{id: "a", member: Member{Endpoint: "h:7"}},
		joining{id: "b", member: Member{Endpoint: "h:7"}},
		joining{id: "c1", member: Member{ProcessID: "c", Endpoint: "h:8"}},
		joining{id: "c2", member: Member{ProcessID: "c", Endpoint: "h:8", Thread: 1}},
	)
	each(t, line(4), out)
	for id, want := range map[string]ProblemKind{"a": DuplicateEndpoint, "b": DuplicateEndpoint, "c1": 0, "c2": 0} {
		if k := problemOf(out[id]); k != want {
			t.Errorf("%s: %v, want %v", id, k, want)
		}
		if len(out[id].Active) != 1 {
			t.Errorf("%s runs %v: a wrong address is no reason to stop processing", id, out[id].Active)
		}
	}
	for _, e := range []string{"0.0.0.0:7070", "[::]:7070", ":7070", "host:0", "host", "host:"} {
		out, _ := lead(line(2), nil, joining{id: "a"}, joining{id: "b", member: Member{Endpoint: e}})
		if k := problemOf(out["b"]); k != BadEndpoint || len(out["b"].Active) > 0 {
			t.Errorf("endpoint %q: problem %v, active %v", e, k, out["b"].Active)
		}
	}
}

// none is an endpoint that is empty.
const none = "-"

// An instance without an endpoint answers no peer, and works.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	a := joining{id: "a", member: Member{Endpoint: none}}
	b := joining{id: "b", member: Member{Endpoint: none}}
	out, _ := lead(line(2), nil, a, b)
	each(t, line(2), out)
	for _, id := range []string{"a", "b"} {
		if k := problemOf(out[id]); k != 0 || len(out[id].Active) != 1 {
			t.Errorf("%s: problem %v, active %v", id, k, out[id].Active)
		}
	}
}

func TestDuplicateProcess(t *testing.T) {
	t.Parallel()
	out, _ := lead(line(4), nil,
		joining{id: "a", member: Member{ProcessID: "p", Incarnation: "1", Endpoint: "h:1"}},
		joining{id: "b", member: Member{ProcessID: "p", Incarnation: "2", Endpoint: "h:2"}, owned: map[string][]int32{"in": {0, 1, 2, 3}}, generation: 1},
		joining{id: "b2", member: Member{ProcessID: "p", Incarnation: "2", Endpoint: "h:2", Thread: 1}},
	)
	each(t, line(4), out)
	if problemOf(out["a"]) != DuplicateProcess || problemOf(out["b"]) != 0 || problemOf(out["b2"]) != 0 {
		t.Errorf("%+v", out)
	}
}

// A task moves whole, or not yet.
func TestTasksStayWhole(t *testing.T) {
	t.Parallel()
	shape := Shape{Tasks: []TaskShape{{ID: task(0, 0), Inputs: []store.TopicPartition{{Topic: "a"}, {Topic: "b"}, {Topic: "c"}}}}}
	for name, owned := range map[string][2]map[string][]int32{
		"split over two":     {{"a": {0}}, {"b": {0}, "c": {0}}},
		"one part owned":     {{"a": {0}}, {}},
		"one by the refused": {{}, {"b": {0}}},
	} {
		out, _ := lead(shape, nil,
			joining{id: "x", owned: owned[0], generation: 3},
			joining{id: "y", owned: owned[1], generation: 3, member: Member{ShapeHash: 1}},
		)
		each(t, shape, out)
		if len(owned[1]) > 0 == (len(out["x"].Active) > 0) {
			t.Errorf("%s: x %+v, y %+v", name, out["x"], out["y"])
		}
	}
}

// Owners that vanished are fenced by who gets their tasks, also those they had not come to fence themselves.
func TestFences(t *testing.T) {
	t.Parallel()
	member := func(id string) Member {
		return Member{ProcessID: id, TransactionalID: "tx-" + id}
	}
	known := View{Epoch: 5, Members: []ViewMember{
		{ID: "a", Member: member("a"), Assignment: Assignment{Active: []store.TaskID{task(0, 0)}}},
		{ID: "b", Member: member("b"), Assignment: Assignment{Active: []store.TaskID{task(0, 1)}, Fence: []string{"tx-old"}}},
		{ID: "c", Member: member("c"), Assignment: Assignment{Releasing: []Release{{Task: task(0, 2), To: "a"}}, Active: []store.TaskID{task(0, 3)}}},
	}}
	m := member("a")
	m.Fencing = []string{"tx-pending"}
	cMember := member("c")
	cMember.Endpoint = "c:1"
	out, _ := lead(line(4), []View{{}, known},
		joining{id: "a", member: m, owned: map[string][]int32{"in": {0}}, generation: 1},
		joining{id: "c-again", member: cMember, owned: map[string][]int32{"in": {3}}, generation: 1},
	)
	each(t, line(4), out)
	got := slices.Concat(out["a"].Fence, out["c-again"].Fence)
	slices.Sort(got)
	if want := []string{"tx-b", "tx-old", "tx-pending"}; !slices.Equal(got, want) {
		t.Errorf("fenced: %v, want %v", got, want)
	}
	if slices.Contains(got, "tx-c") {
		t.Error("a member that is in the group under another member id is fenced")
	}
	if !slices.Contains(out["a"].Fence, "tx-pending") {
		t.Error("what a member has still to fence is forgotten")
	}
}

// Promises older than the newest assignment are void.
func TestOldPromises(t *testing.T) {
	t.Parallel()
	out, _ := lead(line(2), nil,
		joining{id: "a", member: Member{Last: 3, Incoming: []store.TaskID{task(0, 0)}}},
		joining{id: "b", member: Member{Last: 4, Incoming: []store.TaskID{task(0, 0)}}},
	)
	if !slices.Equal(out["b"].Active, []store.TaskID{task(0, 0)}) {
		t.Errorf("a %v, b %v", out["a"].Active, out["b"].Active)
	}
}

func newTestBalancer(t *testing.T, shape Shape, m Member) *Balancer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	obs, err := NewObserver(ObserverConfig{Application: "x", Group: "x", Table: router.NewTable(), Client: cl})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewBalancer(t.Context(), BalancerConfig{Shape: shape, Observer: obs, Member: func() Member { return m }, OnAssignment: func(Assignment) {}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What the leader sends is what a follower understands, by user data and, where that is unreadable, by partitions.
func TestFollowerReads(t *testing.T) {
	t.Parallel()
	shape := testShape(3)
	b := newTestBalancer(t, shape, Member{ProcessID: "p", Endpoint: "p:1"})
	rs := []kmsg.JoinGroupResponseMember{joining{id: "p"}.response(b.ix), joining{id: "q"}.response(b.ix)}
	mb, topics, err := b.MemberBalancer(rs)
	if err != nil || len(topics) != 3 {
		t.Fatal(topics, err)
	}
	plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{"flights": 3, "planes": 2, "weather": 3})
	if err != nil {
		t.Fatal(err)
	}
	sync := plan.IntoSyncAssignment()
	if len(sync) != 2 || sync[0].MemberID != "p" {
		t.Fatalf("%+v", sync)
	}
	got, err := b.ParseSyncAssignment(sync[0].MemberAssignment)
	if err != nil {
		t.Fatal(err)
	}
	want := b.last.Active
	if len(want) != 3 || !slices.Equal(b.ix.whole(got), want) || b.last.Epoch == 0 {
		t.Errorf("tasks %v, partitions %v", want, got)
	}
	var wire kmsg.ConsumerMemberAssignment
	if err := wire.ReadFrom(sync[0].MemberAssignment); err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string][]byte{"newer": {version + 1, version + 1}, "noise": []byte("noise"), "none": nil} {
		wire.UserData = user
		again, err := b.ParseSyncAssignment(wire.AppendTo(nil))
		if err != nil || !slices.Equal(b.ix.whole(again), want) || !slices.Equal(b.last.Active, want) || b.last.Epoch != 0 {
			t.Errorf("%s user data: %v, %+v, %v", name, again, b.last, err)
		}
	}
	for name, data := range map[string][]byte{"nothing": nil, "noise": []byte("noise noise")} {
		if again, err := b.ParseSyncAssignment(data); err != nil || len(again) > 0 {
			t.Errorf("%s: %v, %v", name, again, err)
		}
	}
	// Half a task is none.
	wire.UserData = nil
	for i := range wire.Topics {
		if wire.Topics[i].Topic == "planes" {
			wire.Topics[i].Partitions = nil
		}
	}
	again, err := b.ParseSyncAssignment(wire.AppendTo(nil))
	if err != nil || len(again["flights"]) >= len(got["flights"]) {
		t.Errorf("%v, %v", again, err)
	}
}

// A group that grows is first asked for less, then warned of, then refused before the broker loses it.
func TestSizeLimit(t *testing.T) {
	t.Parallel()
	shape := line(1000)
	b := newTestBalancer(t, shape, Member{})
	balance := func(members, heldEach int) (Size, Assignment, error) {
		var rs []kmsg.JoinGroupResponseMember
		for i := range members {
			j := joining{id: "member-" + string(rune('a'+i%26)) + strings.Repeat("x", i)}
			j.id = j.id[:min(len(j.id), 60)] + string(rune('A'+i/26)) + string(rune('a'+i%26))
			for p := range heldEach {
				j.member.Held = append(j.member.Held, Held{Task: task(0, store.Partition(p)), State: HeldOffset, Offset: 1 << 40})
			}
			rs = append(rs, j.response(b.ix))
		}
		mb, _, err := b.MemberBalancer(rs)
		if err != nil {
			t.Fatal(err)
		}
		l := mb.(*leader)
		plan, err := l.BalanceOrError(map[string]int32{"in": 1000})
		if err != nil {
			return Size{}, Assignment{}, err
		}
		var wire kmsg.ConsumerMemberAssignment
		if err := wire.ReadFrom(plan.IntoSyncAssignment()[0].MemberAssignment); err != nil {
			t.Fatal(err)
		}
		a, err := DecodeAssignment(wire.UserData)
		if err != nil {
			t.Fatal(err)
		}
		assignments, _ := decide(b.ix, l.members, 1, nil, Options{})
		_, size := l.encode(assignments)
		return size, a, nil
	}
	size, a, err := balance(100, 0)
	if err != nil || size.Total() > SizeLimit || a.HeldBudget == 0 {
		t.Fatalf("%+v, budget %d, %v", size, a.HeldBudget, err)
	}
	t.Logf("100 members, 1000 tasks: %d bytes, room for %d members", size.Total(), size.MembersPossible())
	if n := size.MembersPossible(); n < 500 {
		t.Errorf("room for %d members: they should be smaller", n)
	}
	size, a, err = balance(80, 1000)
	fixed := size.Total() - 80*1000*heldBytes(Held{State: HeldOffset, Offset: 1 << 40})
	if err != nil || size.Total() < SizeLimit || a.HeldBudget == 0 || fixed+80*a.HeldBudget > SizeLimit {
		t.Errorf("above the limit: %+v, budget %d, %v", size, a.HeldBudget, err)
	}
	_, _, err = balance(150, 1000)
	if e, ok := errors.AsType[*SizeError](err); !ok || e.Members != 150 || e.Bytes < SizeMax {
		t.Errorf("above the broker's limit: %v", err)
	}
}

func TestBadShapes(t *testing.T) {
	t.Parallel()
	in := []store.TopicPartition{{Topic: "in"}}
	for name, shape := range map[string]Shape{
		"negative":     {Tasks: []TaskShape{{ID: task(-1, 0), Inputs: in}}},
		"twice":        {Tasks: []TaskShape{{ID: task(0, 0), Inputs: in}, {ID: task(0, 0), Inputs: []store.TopicPartition{{Topic: "b"}}}}},
		"no inputs":    {Tasks: []TaskShape{{ID: task(0, 0)}}},
		"shared input": {Tasks: []TaskShape{{ID: task(0, 0), Inputs: in}, {ID: task(0, 1), Inputs: in}}},
		"input twice":  {Tasks: []TaskShape{{ID: task(0, 0), Inputs: slices.Concat(in, in)}}},
	} {
		if err := newIndex(shape).check(); err == nil {
			t.Errorf("%s: accepted", name)
		} else if _, ok := errors.AsType[*ShapeError](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
