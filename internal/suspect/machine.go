package suspect

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/router"
)

// Instance is one of the map.
type Instance struct {
	Subject
	// Endpoint is host:port, "" for one that answers no peer.
	Endpoint string
}

// Do is a kind of [Action].
type Do uint8

// What a machine asks for.
const (
	// Look at the subject. The answer goes to [Machine.Looked].
	Look Do = iota
	// Ask the instance Peer what it sees of the subject. The answer goes to [Machine.Voted].
	Ask
	// Evict the subject by the proof. The outcome goes to [Machine.Evicted].
	Evict
	// Report the outcome to whoever counts and logs.
	Report
)

// Action is what a machine wants done.
type Action struct {
	Do Do
	Instance
	// Address of a Look at one that was seen open there.
	Address string
	// Doubted: a Look at one that is; else asking how it is will do.
	Doubted bool
	// Round of a Look or Ask, to be given back.
	Round   int
	Peer    Instance
	Proof   Proof
	Outcome Outcome
}

// Outcome of a step. It is a label of metrics.
type Outcome string

// The outcomes.
const (
	Suspected     Outcome = "suspected"      // did not answer, or a connection broke
	Cleared       Outcome = "cleared"        // answered after all
	Proven        Outcome = "proven"         // will be evicted
	NeverSeen     Outcome = "never_seen"     // refuses, but was never seen open from here in this incarnation
	SeenAlive     Outcome = "seen_alive"     // refuses us; a peer sees it alive, or its process runs
	NoMajority    Outcome = "no_majority"    // refuses us, and too few others
	Limited       Outcome = "limited"        // proven, but there were too many evictions of late
	NoMember      Outcome = "no_member"      // proven, but this process is not in the map itself
	SwitchedOff   Outcome = "switched_off"   // refuses, or is proven to be dead, and nobody is ever evicted
	AlreadyTried  Outcome = "already_tried"  // refuses, and was evicted once in this incarnation
	WasGone       Outcome = "was_gone"       // proven, but the group did not have its members
	EvictionError Outcome = "eviction_error" // the group could not be told
)

// phase of a suspicion.
type phase uint8

const (
	calm       phase = iota // until the next look
	looking                 // a look is under way
	asking                  // the others are asked
	confirming              // the last look before an eviction is under way
	evicting
)

// Machine decides who is believed to be dead, and when that is proven. It is pure: what happens comes in by its methods, with
// the time, and what is to be done about it comes out. Evidence is never older than the round it was gathered in, so no
// jump of a clock can make proof of what was seen at different times. Not safe for concurrent use.
type Machine struct {
	self    Subject
	epoch   router.Epoch
	member  bool // this process is in the map
	armed   bool // evictions are on
	peers   map[string]*peer
	order   []string // their ids, ascending
	evicted []time.Time
}

// peer is another instance in one incarnation.
type peer struct {
	Instance

	// address at which this incarnation answered, "" while it never did.
	address string
	// ran: its process was seen to run on this machine.
	ran bool
	// doubted: it did not answer the last look, or a connection broke since. Begun says when that began.
	doubted bool
	begun   time.Time
	// tried: it was evicted in this incarnation, by this process or another. That happens once. Out: it is not in the group.
	tried, out bool

	phase phase
	// round of what is under way: what comes from others is late.
	round int
	votes map[string]Sighting
	wake  time.Time // of the next look, when calm
	vain  int       // looks and rounds without a result in a row
	said  Outcome   // the last report in this doubt
}

// NewMachine returns the machine of an instance that knows nobody yet. It evicts nobody before it is armed.
func NewMachine(self Subject) *Machine {
	return &Machine{self: self, peers: make(map[string]*peer)}
}

// Arm allows evictions.
func (m *Machine) Arm() { m.armed = true }

// Map takes in a newer map. An incarnation that is in it has joined since the one before: that is a sign of life, and what
// was held against it is forgotten.
func (m *Machine) Map(now time.Time, epoch router.Epoch, instances []Instance) []Action {
	if epoch <= m.epoch {
		return nil
	}
	m.epoch, m.member = epoch, false
	seen := make(map[string]bool, len(instances))
	for _, in := range instances {
		if in.Instance == m.self.Instance {
			m.member = in.Subject == m.self
			continue
		}
		if in.Endpoint == "" {
			continue
		}
		seen[in.Instance] = true
		p := m.peers[in.Instance]
		switch {
		case p == nil || p.Instance != in:
			p = &peer{Instance: in, wake: now}
			m.peers[in.Instance] = p
		case p.doubted && p.phase != evicting:
			p.drop(now)
		}
		p.out = false
	}
	for id := range m.peers {
		if !seen[id] {
			delete(m.peers, id)
		}
	}
	m.order = m.order[:0]
	for id := range m.peers {
		m.order = append(m.order, id)
	}
	slices.Sort(m.order)
	return m.Tick(now)
}

// drop forgets what was held against a peer and looks again.
func (p *peer) drop(now time.Time) {
	p.phase, p.vain, p.wake, p.begun = calm, 0, now, now
	p.round++
}

// Broken notes that a connection to an endpoint broke or could not be made. That is a reason to look, whatever the error:
// it proves nothing.
func (m *Machine) Broken(now time.Time, endpoint string) []Action {
	for _, id := range m.order {
		if p := m.peers[id]; p.Endpoint == endpoint && p.phase == calm && !p.doubted {
			return append(m.doubt(now, p), m.look(p))
		}
	}
	return nil
}

// Tick begins the looks that are due.
func (m *Machine) Tick(now time.Time) []Action {
	var actions []Action
	for _, id := range m.order {
		if p := m.peers[id]; p.phase == calm && due(p.wake, now) {
			actions = append(actions, m.look(p))
		}
	}
	return actions
}

// Next is when Tick has something to do, zero for never.
func (m *Machine) Next() time.Time {
	var next time.Time
	for _, p := range m.peers {
		if p.phase == calm && (next.IsZero() || p.wake.Before(next)) {
			next = p.wake
		}
	}
	return next
}

// due also holds for times further ahead than anything is ever planned: the clock was set back.
func due(at, now time.Time) bool { return !at.After(now) || at.Sub(now) > time.Minute }

// Looked takes in what this process sees of a subject.
func (m *Machine) Looked(now time.Time, s Subject, round int, g Glance) []Action {
	p := m.peers[s.Instance]
	if p == nil || p.Subject != s || p.round != round || p.phase != looking && p.phase != confirming {
		return nil
	}
	if g.Process == hostproc.Running {
		p.ran = true
	}
	if g.Reach == Alive && g.Incarnation == s.Incarnation {
		return m.answered(now, p, g)
	}
	actions := m.doubt(now, p)
	switch {
	case g.Process == hostproc.Gone && p.ran:
		return append(actions, m.prove(now, p, ProcessGone)...)
	case !g.deserted():
		p.rest(now)
		return actions
	case p.address == "":
		return append(actions, p.vainly(now, NeverSeen)...)
	case g.Process == hostproc.Running: // the listener is gone first, then the process
		return append(actions, p.vainly(now, SeenAlive)...)
	case p.phase == confirming:
		return append(actions, m.prove(now, p, EveryoneRefused)...)
	default:
		return append(actions, m.ask(now, p)...)
	}
}

// rest leaves a peer alone for a while, longer each time.
func (p *peer) rest(now time.Time) {
	p.phase = calm
	p.wake = now.Add(min(firstLook<<min(p.vain, 10), lastLook))
	p.vain++
}

// vainly rests after a look or a round that proved nothing, and says why, once in a doubt.
func (p *peer) vainly(now time.Time, why Outcome) []Action {
	p.rest(now)
	if p.said == why {
		return nil
	}
	p.said = why
	return []Action{report(p, why)}
}

// Evicted takes in how an eviction ended: how many members it removed. One that failed, or found none, is tried again with a proof of
// its own: the map of the members may have been a moment old. Had another survivor been faster, a newer map comes first.
func (m *Machine) Evicted(now time.Time, s Subject, removed int, err error) []Action {
	p := m.peers[s.Instance]
	if p == nil || p.Subject != s || p.phase != evicting {
		return nil
	}
	p.said = ""
	switch {
	case err != nil:
		return p.vainly(now, EvictionError)
	case removed == 0:
		actions := p.vainly(now, WasGone)
		p.wake = now.Add(reprieve)
		return actions
	}
	p.tried, p.out = true, true
	p.rest(now)
	return nil
}

// Removed takes in that another instance has evicted a subject.
func (m *Machine) Removed(s Subject) {
	if p := m.peers[s.Instance]; p != nil && p.Subject == s {
		p.tried, p.out = true, true
	}
}

// Epoch of the newest map.
func (m *Machine) Epoch() router.Epoch { return m.epoch }

// Find returns what is known of a subject: the address at which it was seen open, "" for never; false when it is not in the
// map.
func (m *Machine) Find(s Subject) (in Instance, address string, ok bool) {
	p := m.peers[s.Instance]
	if p == nil || p.Subject != s {
		return Instance{}, "", false
	}
	return p.Instance, p.address, true
}

// Peers lists the other instances that are not doubted, in the order of their ids.
func (m *Machine) Peers() []Instance { return m.list(func(p *peer) bool { return !p.doubted }) }

// Doubted lists those that were seen open in their incarnation and are doubted.
func (m *Machine) Doubted() []Instance {
	return m.list(func(p *peer) bool { return p.doubted && p.address != "" })
}

func (m *Machine) look(p *peer) Action {
	p.phase = looking
	p.round++
	return Action{Do: Look, Instance: p.Instance, Address: p.address, Doubted: p.doubted, Round: p.round}
}

// doubt marks a peer as suspect.
func (m *Machine) doubt(now time.Time, p *peer) []Action {
	if p.doubted {
		return nil
	}
	p.doubted, p.begun, p.vain, p.said = true, now, 0, ""
	if p.address == "" {
		return nil // it is about to come up
	}
	return []Action{report(p, Suspected)}
}

// answered is the plainest sign of life.
func (m *Machine) answered(now time.Time, p *peer, g Glance) []Action {
	var actions []Action
	if p.doubted && p.address != "" {
		actions = append(actions, report(p, Cleared))
	}
	p.address, p.doubted, p.phase, p.vain, p.said = g.Address, false, calm, 0, ""
	p.wake = now.Add(max(calmLook, time.Duration(len(m.peers))*spacing))
	return actions
}

// prove evicts a peer, unless something forbids it.
func (m *Machine) prove(now time.Time, p *peer, by Proof) []Action {
	switch {
	case !m.armed:
		return p.vainly(now, SwitchedOff)
	case p.tried:
		return p.vainly(now, AlreadyTried)
	case !m.member:
		return p.vainly(now, NoMember)
	case m.waits(now, p):
		return nil
	case m.limited(now):
		return p.vainly(now, Limited)
	}
	m.evicted = append(m.evicted, now)
	p.phase = evicting
	p.round++
	return []Action{report(p, Proven), {Do: Evict, Instance: p.Instance, Proof: by}}
}

func (m *Machine) limited(now time.Time) bool {
	m.evicted = slices.DeleteFunc(m.evicted, func(t time.Time) bool { return now.Sub(t).Abs() >= time.Minute })
	return len(m.evicted) >= evictionsPerMinute
}

func (m *Machine) list(which func(*peer) bool) []Instance {
	var list []Instance
	for _, id := range m.order {
		if p := m.peers[id]; which(p) {
			list = append(list, p.Instance)
		}
	}
	return list
}

func report(p *peer, o Outcome) Action { return Action{Do: Report, Instance: p.Instance, Outcome: o} }
