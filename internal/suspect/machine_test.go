package suspect

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/router"
)

// story drives a machine of instance "a" and keeps what it wants.
type story struct {
	t     *testing.T
	m     *Machine
	now   time.Time
	epoch router.Epoch
	all   []Instance
	// open are the looks, asks and evictions that were not answered yet.
	open     []Action
	outcomes []Outcome
}

func instance(id, incarnation string) Instance {
	return Instance{Subject: Subject{Instance: id, Incarnation: incarnation}, Endpoint: id + ":1"}
}

// newStory is a fleet of a, b, c and so on, all of which a has seen open.
func newStory(t *testing.T, n int) *story {
	t.Helper()
	s := &story{t: t, m: NewMachine(Subject{Instance: "a", Incarnation: "1"}), now: time.Unix(1_000_000, 0)}
	s.m.Arm()
	for i := range n {
		s.all = append(s.all, instance(string(rune('a'+i)), "1"))
	}
	s.publish()
	for _, in := range s.all[1:] {
		s.look(in.Subject.Instance, alive("1"))
	}
	if len(s.open) > 0 {
		t.Fatalf("open at the start: %+v", s.open)
	}
	return s
}

func alive(incarnation string) Glance {
	return Glance{Reach: Alive, Incarnation: incarnation, Address: "10.0.0.1:1"}
}

var (
	refused     = Glance{Reach: Refused}
	unreachable = Glance{Reach: Unreachable}
)

func (s *story) take(actions []Action) {
	for _, a := range actions {
		if a.Do == Report {
			s.outcomes = append(s.outcomes, a.Outcome)
			continue
		}
		s.open = append(s.open, a)
	}
}

// publish gives the machine the fleet of now under a new epoch.
func (s *story) publish() {
	s.epoch++
	s.take(s.m.Map(s.now, s.epoch, s.all))
}

// sleep lets time pass in steps, as a timer would.
func (s *story) sleep(d time.Duration) {
	end := s.now.Add(d)
	for {
		next := s.m.Next()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(s.now) {
			s.now = next
		}
		before := len(s.open)
		s.take(s.m.Tick(s.now))
		if len(s.open) == before {
			break
		}
	}
	s.now = end
}

func (s *story) next(do Do) Action {
	s.t.Helper()
	i := slices.IndexFunc(s.open, func(a Action) bool { return a.Do == do })
	if i < 0 {
		s.t.Fatalf("no action %d among %+v; outcomes %v", do, s.open, s.outcomes)
	}
	a := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	return a
}

// look answers the look at an instance.
func (s *story) look(id string, g Glance) {
	s.t.Helper()
	i := slices.IndexFunc(s.open, func(a Action) bool { return a.Do == Look && a.Subject.Instance == id })
	if i < 0 {
		s.t.Fatalf("no look at %s among %+v; outcomes %v", id, s.open, s.outcomes)
	}
	a := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	s.take(s.m.Looked(s.now, a.Subject, a.Round, g))
}

// vote answers the question to an instance.
func (s *story) vote(from string, v Sighting) {
	s.t.Helper()
	i := slices.IndexFunc(s.open, func(a Action) bool { return a.Do == Ask && a.Peer.Subject.Instance == from })
	if i < 0 {
		s.t.Fatalf("%s was not asked: %+v; outcomes %v", from, s.open, s.outcomes)
	}
	a := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	s.take(s.m.Voted(s.now, a.Subject, a.Round, from, v))
}

// wantEviction expects exactly one, of an instance by a proof.
func (s *story) wantEviction(id string, by Proof) {
	s.t.Helper()
	a := s.next(Evict)
	if a.Subject.Instance != id || a.Proof != by {
		s.t.Fatalf("eviction of %s by %s, want %s by %s", a.Subject.Instance, a.Proof, id, by)
	}
	s.wantNoEviction()
	s.take(s.m.Evicted(s.now, a.Subject, 1, nil))
}

func (s *story) wantNoEviction() {
	s.t.Helper()
	if slices.ContainsFunc(s.open, func(a Action) bool { return a.Do == Evict }) {
		s.t.Fatalf("evicts: %+v; outcomes %v", s.open, s.outcomes)
	}
}

func (s *story) wantOutcome(o Outcome) {
	s.t.Helper()
	if !slices.Contains(s.outcomes, o) {
		s.t.Fatalf("outcomes %v, want %s", s.outcomes, o)
	}
}

func (s *story) broken(id string) { s.take(s.m.Broken(s.now, id+":1")) }

// calm answers the looks at instances that are well.
func (s *story) calm(ids ...string) {
	for _, id := range ids {
		for s.has(Look, id) {
			s.look(id, alive("1"))
		}
	}
}

// has reports whether something is wanted about an instance.
func (s *story) has(do Do, id string) bool {
	return slices.ContainsFunc(s.open, func(a Action) bool { return a.Do == do && a.Subject.Instance == id })
}

func TestRefusedToTheMajority(t *testing.T) {
	t.Parallel()
	R, U, N := Sighting{Kind: Refused}, Sighting{Kind: Unreachable}, Sighting{Kind: Unknown}
	A, B := Sighting{Kind: Alive, Incarnation: "1"}, Sighting{Kind: Alive, Incarnation: "2"}
	for name, tc := range map[string]struct {
		votes []Sighting // of b, c, ...; the suspect comes after them
		want  bool
	}{
		"alone":                               {nil, false},
		"two survivors, both":                 {[]Sighting{R}, true},
		"two survivors, one does not get out": {[]Sighting{U}, false},
		"two survivors, one never saw it":     {[]Sighting{N}, false},
		"two survivors, one sees it":          {[]Sighting{A}, false},
		"its successor has the address":       {[]Sighting{B}, true},
		"three survivors, two":                {[]Sighting{R, U}, true},
		"three survivors, one":                {[]Sighting{U, N}, false},
		"three survivors, one sees it":        {[]Sighting{A, R}, false},
		"four survivors, two":                 {[]Sighting{R, U, U}, false},
		"four survivors, three":               {[]Sighting{U, R, R}, true},
		"five survivors, three":               {[]Sighting{R, N, U, R}, true},
		"five survivors, two":                 {[]Sighting{R, N, U, U}, false},
		"a life without a name":               {[]Sighting{{Kind: Alive}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := len(tc.votes) + 2
			s := newStory(t, n)
			dead := s.all[n-1].Subject.Instance // a comes after it: it is its turn
			s.broken(dead)
			s.look(dead, refused)
			for i, v := range tc.votes {
				s.wantNoEviction()
				if s.has(Ask, dead) {
					s.vote(s.all[i+1].Subject.Instance, v)
				}
			}
			s.wantNoEviction() // not before it refuses once more
			if tc.want {
				s.open = slices.DeleteFunc(s.open, func(a Action) bool { return a.Do == Ask })
				s.look(dead, refused)
				s.wantEviction(dead, EveryoneRefused)
				return
			}
			s.wantNoEviction()
			if tc.votes == nil || tc.votes[0] != A {
				s.wantOutcome(NoMajority)
			}
		})
	}
}

// One peer's word is never enough, however often it is given and from however many rounds.
func TestVotesOfOnePeerDoNotAddUp(t *testing.T) {
	t.Parallel()
	s := newStory(t, 5)
	for range 20 {
		s.broken("e")
		s.sleep(lastLook)
		s.look("e", refused)
		round := s.next(Ask).Round
		for range 3 {
			s.take(s.m.Voted(s.now, s.all[4].Subject, round, "b", Sighting{Kind: Refused}))
			s.take(s.m.Voted(s.now, s.all[4].Subject, round, "stranger", Sighting{Kind: Refused}))
			s.take(s.m.Voted(s.now, s.all[4].Subject, round, "e", Sighting{Kind: Refused}))
			s.take(s.m.Voted(s.now, s.all[4].Subject, round-1, "c", Sighting{Kind: Refused}))
		}
		s.wantNoEviction()
		for _, id := range []string{"c", "d"} {
			s.vote(id, Sighting{Kind: Unreachable})
		}
		s.wantNoEviction()
		s.calm("b", "c", "d")
	}
	s.wantOutcome(NoMajority)
}

// The re-dial before the eviction counts: whoever answers, or does not refuse, is left alone.
func TestLastLookDecides(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		last Glance
		want bool
	}{
		"refuses":          {refused, true},
		"answers":          {alive("1"), false},
		"does not answer":  {unreachable, false},
		"answers as a new": {alive("2"), true},
		"without a name":   {alive(""), false},
		"its process runs": {Glance{Reach: Refused, Process: hostproc.Running}, false},
	} {
		s := newStory(t, 3)
		s.broken("c")
		s.look("c", refused)
		s.vote("b", Sighting{Kind: Refused})
		s.look("c", tc.last)
		if tc.want {
			s.wantEviction("c", EveryoneRefused)
			continue
		}
		if s.has(Evict, "c") {
			t.Errorf("%s: evicted", name)
		}
	}
}

func TestProcessGone(t *testing.T) {
	t.Parallel()
	ran := func(s *story) { // seen to run
		s.sleep(calmLook)
		for _, in := range s.all[1:] {
			s.look(in.Subject.Instance, Glance{Reach: Alive, Incarnation: "1", Address: "10.0.0.1:1", Process: hostproc.Running})
		}
	}
	gone := Glance{Reach: Refused, Process: hostproc.Gone}
	t.Run("alone", func(t *testing.T) { // nobody else is needed
		s := newStory(t, 2)
		ran(s)
		s.broken("b")
		s.look("b", gone)
		s.wantEviction("b", ProcessGone)
	})
	t.Run("a moment late", func(t *testing.T) { // its connections end before it does
		s := newStory(t, 2)
		ran(s)
		s.broken("b")
		s.look("b", Glance{Reach: Refused, Process: hostproc.Running})
		s.wantNoEviction()
		s.sleep(firstLook)
		s.look("b", gone)
		s.wantEviction("b", ProcessGone)
	})
	t.Run("its address is taken", func(t *testing.T) { // by its successor, which is not hit: its incarnation is another
		s := newStory(t, 2)
		ran(s)
		s.broken("b")
		s.look("b", Glance{Reach: Alive, Incarnation: "2", Address: "10.0.0.1:1", Process: hostproc.Gone})
		s.wantEviction("b", ProcessGone)
	})
	t.Run("never seen to run", func(t *testing.T) { // another machine that looks like this one, or a hidden process
		s := newStory(t, 2)
		s.broken("b")
		for range 10 {
			s.look("b", gone)
			s.sleep(lastLook)
		}
		s.wantNoEviction()
		s.wantOutcome(NoMajority)
	})
	t.Run("stopped", func(t *testing.T) { // SIGSTOP: it runs, answers nothing, and refuses nobody
		s := newStory(t, 3)
		ran(s)
		s.broken("b")
		for range 100 {
			s.look("b", Glance{Reach: Unreachable, Process: hostproc.Running})
			s.sleep(lastLook)
			s.calm("c")
		}
		s.wantNoEviction()
	})
	t.Run("answers", func(t *testing.T) { // whatever is said of its process
		s := newStory(t, 2)
		ran(s)
		s.broken("b")
		s.look("b", Glance{Reach: Alive, Incarnation: "1", Address: "10.0.0.1:1", Process: hostproc.Gone})
		s.wantNoEviction()
		if len(s.m.Doubted()) != 0 {
			t.Error("it is doubted")
		}
	})
}

// Without having seen an incarnation open its refusal means nothing: it may be starting, behind a firewall, or never have
// been there. Nor does that of a former incarnation count.
func TestNeverSeenOpen(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.all = append(s.all, instance("d", "1"))
	s.all[1] = instance("b", "2") // restarted, at the same endpoint
	s.publish()
	for range 20 {
		s.calm("c")
		for _, id := range []string{"b", "d"} {
			if s.has(Look, id) {
				s.look(id, refused)
			}
		}
		if len(s.open) > 0 {
			t.Fatalf("asks or evicts: %+v", s.open)
		}
		s.sleep(lastLook)
	}
	s.wantOutcome(NeverSeen)
}

// What is known of the former incarnation does not count against the new one, and late answers about it go nowhere.
func TestRestartAtTheSameEndpoint(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.broken("c")
	s.look("c", refused)
	late := s.open
	s.open = nil
	s.all[2] = instance("c", "2")
	s.publish()
	for _, a := range late {
		s.take(s.m.Voted(s.now, a.Subject, a.Round, "b", Sighting{Kind: Refused}))
	}
	s.look("c", alive("2"))
	s.wantNoEviction()
	if len(s.open) > 0 || len(s.m.Doubted()) > 0 {
		t.Errorf("open %+v, doubted %+v", s.open, s.m.Doubted())
	}
}

// A newer map that has the incarnation: it joined. What was held against it is forgotten, votes on their way included.
func TestNewerMapIsASignOfLife(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.broken("c")
	s.look("c", refused)
	late := s.open
	s.open = nil
	s.publish()
	for _, a := range late {
		s.take(s.m.Voted(s.now, a.Subject, a.Round, "b", Sighting{Kind: Refused}))
	}
	s.wantNoEviction()
	s.look("c", refused) // from the beginning
	s.vote("b", Sighting{Kind: Refused})
	s.look("c", refused)
	s.wantEviction("c", EveryoneRefused)
}

// A peer that sees it alive ends the procedure, for a while.
func TestPeerSeesItAlive(t *testing.T) {
	t.Parallel()
	s := newStory(t, 4)
	s.broken("d")
	s.look("d", refused)
	s.vote("b", Sighting{Kind: Alive, Incarnation: "1"})
	s.wantOutcome(SeenAlive)
	a := s.next(Ask)
	s.take(s.m.Voted(s.now, a.Subject, a.Round, "c", Sighting{Kind: Refused}))
	s.open = nil
	s.take(s.m.Tick(s.now.Add(reprieve / 2)))
	if s.has(Look, "d") {
		t.Errorf("looks again at once: %+v", s.open)
	}
	if len(s.m.Doubted()) != 1 {
		t.Error("it does not answer here, and is not doubted")
	}
}

// An incarnation is evicted once: one that is back was alive.
func TestOncePerIncarnation(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.broken("c")
	s.look("c", refused)
	s.vote("b", Sighting{Kind: Refused})
	s.look("c", refused)
	s.wantEviction("c", EveryoneRefused)
	s.publish() // it is in there again
	s.look("c", alive("1"))
	s.outcomes = nil
	s.broken("c")
	s.look("c", refused)
	s.wantOutcome(AlreadyTried)
	if s.has(Ask, "c") || s.has(Evict, "c") {
		t.Errorf("%+v", s.open)
	}

	told := newStory(t, 3) // the same when another instance did it
	told.m.Removed(told.all[2].Subject)
	told.broken("c")
	told.look("c", refused)
	told.wantOutcome(AlreadyTried)
}

// An eviction that failed, or found nobody, is tried again, with a new proof.
func TestEvictionFails(t *testing.T) {
	t.Parallel()
	for removed, err := range map[int]error{0: nil, 1: errors.New("the broker is away")} {
		s := newStory(t, 3)
		s.broken("c")
		for range 3 {
			s.look("c", refused)
			s.vote("b", Sighting{Kind: Refused})
			s.look("c", refused)
			a := s.next(Evict)
			s.take(s.m.Evicted(s.now, a.Subject, removed, err))
			s.sleep(lastLook)
			s.calm("b")
		}
	}
}

func TestEvictionsAreLimited(t *testing.T) {
	t.Parallel()
	const n = evictionsPerMinute + 5
	s := newStory(t, n+1)
	done := 0
	for i := n; i > 0; i-- { // from the last one on: always a's turn
		id := s.all[i].Subject.Instance
		s.m.peers[id].ran = true
		s.broken(id)
		s.look(id, Glance{Reach: Refused, Process: hostproc.Gone})
		if s.has(Evict, id) {
			s.wantEviction(id, ProcessGone)
			done++
		}
	}
	if done != evictionsPerMinute {
		t.Fatalf("%d evictions at once, want %d", done, evictionsPerMinute)
	}
	s.wantOutcome(Limited)
	s.sleep(time.Minute)
	s.look("b", Glance{Reach: Refused, Process: hostproc.Gone})
	s.wantEviction("b", ProcessGone)
}

// Who is not in the map itself has no say: it was evicted.
func TestOnlyMembersEvict(t *testing.T) {
	t.Parallel()
	for name, self := range map[string]Instance{"gone": instance("z", "1"), "a former incarnation": instance("a", "2")} {
		s := newStory(t, 3)
		s.m.peers["c"].ran = true
		s.all[0] = self
		s.publish()
		s.broken("c")
		s.sleep(turn * turns)
		s.look("c", Glance{Reach: Refused, Process: hostproc.Gone})
		if s.has(Evict, "c") {
			t.Errorf("%s: evicts", name)
		}
		s.wantOutcome(NoMember)
	}
}

func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.m.armed = false
	s.broken("c")
	s.look("c", Glance{Reach: Refused, Process: hostproc.Gone})
	s.wantOutcome(SwitchedOff)
	if len(s.open) > 0 {
		t.Errorf("asks or evicts: %+v", s.open)
	}
	if len(s.m.Doubted()) != 1 {
		t.Error("reads do not avoid it")
	}
}

// Those before this one in the ring have their turn first.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := newStory(t, 5)
	s.broken("b") // c, d and e come before a
	s.look("b", refused)
	if len(s.open) > 0 {
		t.Fatalf("acts out of turn: %+v", s.open)
	}
	s.broken("e") // a comes right after e
	s.look("e", refused)
	if !s.has(Ask, "e") {
		t.Fatalf("%+v; outcomes %v", s.open, s.outcomes)
	}
	s.sleep(3 * turn) // c and d had theirs, e is doubted
	s.look("b", refused)
	if !s.has(Ask, "b") {
		t.Fatalf("%+v; outcomes %v", s.open, s.outcomes)
	}
}

// A clock that jumps makes nobody dead, and nobody is forgotten for it.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{-30 * 24 * time.Hour, -time.Hour, time.Hour, 30 * 24 * time.Hour} {
		t.Run(fmt.Sprint(jump), func(t *testing.T) {
			t.Parallel()
			s := newStory(t, 3)
			s.broken("c")
			s.look("c", refused)
			s.now = s.now.Add(jump)
			s.take(s.m.Tick(s.now))
			s.vote("b", Sighting{Kind: Unreachable})
			s.now = s.now.Add(jump)
			s.take(s.m.Tick(s.now))
			s.sleep(lastLook)
			s.wantNoEviction()
			s.look("c", refused) // it is not forgotten
			s.wantNoEviction()
		})
	}
	// A proof is not held back for ever by a clock that was set back, nor by evictions of the future.
	s := newStory(t, 2)
	s.m.peers["b"].ran = true
	s.broken("b")
	s.now = s.now.Add(-time.Hour)
	for range evictionsPerMinute {
		s.m.evicted = append(s.m.evicted, s.now.Add(time.Hour))
	}
	s.look("b", Glance{Reach: Refused, Process: hostproc.Gone})
	s.wantEviction("b", ProcessGone)
}

// A paused or cut-off process is doubted, for reads, and never evicted, however long it lasts.
func TestPausedOrCutOff(t *testing.T) {
	t.Parallel()
	s := newStory(t, 4)
	s.broken("d")
	for range 1000 {
		for s.has(Look, "d") {
			s.look("d", unreachable)
		}
		s.calm("b", "c")
		if len(s.open) > 0 {
			t.Fatalf("%+v", s.open)
		}
		s.sleep(time.Second)
	}
	if d := s.m.Doubted(); len(d) != 1 || d[0].Subject.Instance != "d" {
		t.Fatalf("doubted: %+v", d)
	}
	s.sleep(lastLook)
	s.look("d", alive("1")) // it wakes up
	s.wantOutcome(Cleared)
	if d := s.m.Doubted(); len(d) != 0 {
		t.Fatalf("doubted: %+v", d)
	}
}

// Whoever is calm is asked now and then: a process that is stopped breaks no connection.
func TestCalmOnesAreAsked(t *testing.T) {
	t.Parallel()
	s := newStory(t, 3)
	s.sleep(calmLook)
	if len(s.open) != 2 || s.open[0].Doubted || s.open[0].Address == "" {
		t.Fatalf("%+v", s.open)
	}
	const many = 500
	big := &story{t: t, m: NewMachine(Subject{Instance: "0", Incarnation: "1"}), now: s.now}
	for i := range many {
		big.all = append(big.all, instance(fmt.Sprint(i), "1"))
	}
	big.publish()
	big.look("1", alive("1"))
	if wait := big.m.peers["1"].wake.Sub(big.now); wait < (many-1)*spacing {
		t.Errorf("asked again after %s in a fleet of %d", wait, many)
	}
}
