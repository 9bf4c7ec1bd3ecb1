package suspect

import "time"

// quorum of n witnesses beside this process: a majority of all, two at least.
func quorum(n int) int { return max(2, (n+1)/2+1) }

// Voted takes in what another instance sees of a subject. Nobody has two votes, and nobody who was not asked has one.
func (m *Machine) Voted(now time.Time, s Subject, round int, from string, v Sighting) []Action {
	p := m.peers[s.Instance]
	if p == nil || p.Subject != s || p.round != round || p.phase != asking {
		return nil
	}
	if v.Kind == Alive && v.Incarnation == s.Incarnation {
		actions := p.vainly(now, SeenAlive)
		p.wake = now.Add(max(reprieve, p.wake.Sub(now)))
		return actions
	}
	p.votes[from] = v
	witnesses := m.witnesses(p)
	refused, open := 1, 0 // this process itself
	for _, w := range witnesses {
		switch v, ok := p.votes[w.Subject.Instance]; {
		case !ok:
			open++
		case v.deserted():
			refused++
		}
	}
	switch need := quorum(len(witnesses)); {
	case refused >= need:
		action := m.look(p)
		p.phase, action.Doubted = confirming, true
		return []Action{action}
	case refused+open < need:
		return p.vainly(now, NoMajority)
	default:
		return nil
	}
}

// waits reports whether it is the turn of others to act, and then looks again when they had it.
func (m *Machine) waits(now time.Time, p *peer) bool {
	at := p.begun.Add(time.Duration(min(m.rank(p), turns)) * turn)
	if due(at, now) {
		return false
	}
	p.phase, p.wake = calm, at
	return true
}

// rank counts the instances that are not doubted between a peer and this one, in the order of their ids, as in a ring: the
// first of them acts at once.
func (m *Machine) rank(p *peer) int {
	n := 0
	between := func(id string) bool {
		if p.Subject.Instance < m.self.Instance {
			return id > p.Subject.Instance && id < m.self.Instance
		}
		return id > p.Subject.Instance || id < m.self.Instance
	}
	for id, other := range m.peers {
		if other != p && !other.doubted && between(id) {
			n++
		}
	}
	return n
}

// witnesses are the other instances that have a say about a peer: all that may be asked, but those that are out of the group.
func (m *Machine) witnesses(p *peer) []*peer {
	var w []*peer
	for _, id := range m.order {
		if other := m.peers[id]; other != p && !other.out {
			w = append(w, other)
		}
	}
	return w
}

// ask asks the others.
func (m *Machine) ask(now time.Time, p *peer) []Action {
	witnesses := m.witnesses(p)
	switch {
	case !m.armed:
		return p.vainly(now, SwitchedOff)
	case p.tried:
		return p.vainly(now, AlreadyTried)
	case len(witnesses)+1 < quorum(len(witnesses)):
		return p.vainly(now, NoMajority)
	case m.waits(now, p):
		return nil
	}
	p.phase, p.votes = asking, make(map[string]Sighting, len(witnesses))
	p.round++
	actions := make([]Action, 0, len(witnesses))
	for _, w := range witnesses {
		actions = append(actions, Action{Do: Ask, Instance: p.Instance, Peer: w.Instance, Round: p.round})
	}
	return actions
}
