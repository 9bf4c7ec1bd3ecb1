package group

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
)

// Members join one after the other and leave again: no partition is ever lost or doubled, every process reads the same
// whole map, and nothing moves that need not.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	a := w.start("a", 1)
	one := settled(t.Context(), t, a)
	if n := counts(one); n["a"] != 12 {
		t.Fatalf("alone: %v", n)
	}
	b := w.start("b", 1)
	two := settled(t.Context(), t, a, b)
	if n := counts(two); n["a"] != 6 || n["b"] != 6 {
		t.Fatalf("two: %v", n)
	}
	c := w.start("c", 2)
	three := settled(t.Context(), t, a, b, c)
	if n := counts(three); n["a"] != 3 || n["b"] != 3 || n["c"] != 6 {
		t.Fatalf("three with four threads: %v", n)
	}
	b.leave()
	rest := settled(t.Context(), t, a, c)
	if n := counts(rest); n["a"] != 4 || n["c"] != 8 {
		t.Fatalf("after a leave: %v", n)
	}
	if one.Epoch() >= two.Epoch() || two.Epoch() >= three.Epoch() || three.Epoch() >= rest.Epoch() {
		t.Errorf("epochs %d %d %d %d", one.Epoch(), two.Epoch(), three.Epoch(), rest.Epoch())
	}
	w.check()
}

// While a task is on its way, the map has its old owner and says where it goes; only then the new one (design: publishing).
func TestMovingIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	release := sync.OnceFunc(func() { close(hold) })
	defer release() // before the processes leave
	a := w.start("a", 1, withLetGo(func(map[string][]int32) { once.Do(func() { close(held) }); <-hold }))
	settled(t.Context(), t, a)
	b := w.start("b", 1)
	select {
	case <-held:
	case <-t.Context().Done():
		t.Fatal("nothing was revoked")
	}
	for _, p := range []*process{a, b} {
		s := await(t, p, func(s *router.Snapshot) bool { _, ok := s.Instance("b"); return ok })
		in, _ := s.Instance("a")
		if len(in.Active) != 4 || len(s.Data().Moving) != 2 {
			t.Errorf("%s: first phase: %s", p.id, describe(s))
		}
		for id, to := range s.Data().Moving {
			if to != "b" || !slices.Contains(in.Active, id) {
				t.Errorf("%s: %s moves to %s: %s", p.id, id, to, describe(s))
			}
		}
	}
	if got := b.threads[0].last(); len(got.Active) != 0 || len(got.Incoming) != 2 {
		t.Errorf("b in the first phase: %+v", got)
	}
	release()
	if n := counts(settled(t.Context(), t, a, b)); n["a"] != 2 || n["b"] != 2 {
		t.Errorf("second phase: %v", n)
	}
	w.check()
}

// The leader leaves: the next one knows whom to fence and goes on from the epoch.
func TestLeaderLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a := w.start("a", 1)
	settled(t.Context(), t, a)
	b := w.start("b", 1)
	c := w.start("c", 1)
	before := settled(t.Context(), t, a, b, c)
	a.leave()
	after := settled(t.Context(), t, b, c)
	if after.Epoch() <= before.Epoch() {
		t.Errorf("epoch %d after %d", after.Epoch(), before.Epoch())
	}
	fenced := map[string]bool{}
	for _, p := range []*process{b, c} {
		for _, x := range p.threads[0].history() {
			for _, id := range x.Fence {
				fenced[id] = true
			}
		}
	}
	if len(fenced) != 1 || !fenced[a.threads[0].txn] {
		t.Errorf("fenced %v, want only %s", fenced, a.threads[0].txn)
	}
	w.check()
}

// A member of another version, or one that talks nonsense, gets nothing and disturbs nobody (RB-08, RB-10).
func TestForeignMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.start("a", 1)
	settled(t.Context(), t, a)
	newer := w.start("newer", 1, withCorrupt(func(m *kmsg.ConsumerMemberMetadata) { m.UserData[0], m.UserData[1] = version+1, version+1 }))
	w.start("noise", 1, withCorrupt(func(m *kmsg.ConsumerMemberMetadata) {
		*m = kmsg.ConsumerMemberMetadata{Version: 1, Topics: m.Topics, UserData: []byte("noise")}
	}))
	w.start("other", 1, withShape(testShape(1)))
	b := w.start("b", 1)
	if n := counts(settled(t.Context(), t, a, b)); n["a"] != 2 || n["b"] != 2 {
		t.Errorf("%v", n)
	}
	await(t, newer, func(s *router.Snapshot) bool { return s.Epoch() >= b.table.Load().Epoch() }) // it can still route
	last := newer.threads[0].last()
	if p, ok := last.Refused(); !ok || p.Kind != UnreadableMember || len(last.Active) > 0 {
		t.Errorf("newer: %+v", last)
	}
	w.check()
}

// One of the members of the future appends fields: it is a member like any other.
func TestNewerReadableMember(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a := w.start("a", 1)
	b := w.start("b", 1, withCorrupt(func(m *kmsg.ConsumerMemberMetadata) {
		m.UserData = append(m.UserData, 1, 2, 3)
		m.UserData[0] = version + 1
	}))
	if n := counts(settled(t.Context(), t, a, b)); n["a"] != 2 || n["b"] != 2 {
		t.Errorf("%v", n)
	}
	w.check()
}

// Epochs grow over a restart of everything with the clocks set back (invariant 13), and two processes at one address
// are told (CF-01).
func TestEpochSurvivesRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	dir := t.TempDir()
	first := w.start("a", 1, withDir(dir))
	before := settled(t.Context(), t, first).Epoch()
	first.leave()
	past := func() time.Time { return time.UnixMilli(1000) }
	again := w.start("a", 1, withDir(dir), withIncarnation("a-2"), withClock(past))
	if after := settled(t.Context(), t, again).Epoch(); after <= before {
		t.Errorf("epoch %d after %d", after, before)
	}
	// A member that knows nothing joins: the epoch still comes from those that know.
	b := w.start("b", 1, withClock(past), withEndpoint("a.example:7070"))
	s := settled(t.Context(), t, again, b)
	if s.Epoch() <= before {
		t.Errorf("epoch %d after %d", s.Epoch(), before)
	}
	if k := problemOf(b.threads[0].last()); k != DuplicateEndpoint {
		t.Errorf("problem %v", k)
	}
	w.check()
}

// A fleet that restarts finds its state where it was.
func TestStateAttracts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	a := w.start("a", 1, withHeld(Held{Task: task(0, 2), State: HeldOffset, Offset: 10}, Held{Task: task(0, 3), State: HeldOffset, Offset: 10}))
	b := w.start("b", 1, withHeld(Held{Task: task(0, 0), State: HeldOffset, Offset: 10}, Held{Task: task(0, 1), State: HeldOffset, Offset: 10}))
	s := settled(t.Context(), t, a, b)
	in, _ := s.Instance("b")
	if !slices.Contains(in.Active, task(0, 0)) || !slices.Contains(in.Active, task(0, 1)) || len(in.Active) != 4 {
		t.Errorf("%s", describe(s))
	}
	w.check()
}

// A member that the group has thrown out comes back, with no partition lost or doubled.
func TestThrownOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3)
	a, b := w.start("a", 1), w.start("b", 1)
	before := settled(t.Context(), t, a, b)
	id, _ := b.threads[0].cl.GroupMetadata()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = testGroup
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = id
	req.Members = append(req.Members, m)
	if _, err := req.RequestWith(t.Context(), a.threads[0].cl); err != nil {
		t.Fatal(err)
	}
	await(t, a, func(s *router.Snapshot) bool { return s.Epoch() > before.Epoch() })
	if n := counts(settled(t.Context(), t, a, b)); n["a"] != 3 || n["b"] != 3 {
		t.Errorf("%v", n)
	}
}

// await waits until the process has published a map that ok accepts.
func await(t *testing.T, p *process, ok func(*router.Snapshot) bool) *router.Snapshot {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		s, changed := p.table.Watch()
		if s != nil && ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Log(p.w.logs.String())
			t.Fatalf("%s: still %s", p.id, describe(s))
		}
	}
}
