package suspect

import (
	"time"

	"github.com/statemesh/statemesh/internal/hostproc"
)

// Subject is one incarnation of an instance.
type Subject struct{ Instance, Incarnation string }

// Kind says how an instance looks to another.
type Kind uint8

// The kinds of a sighting.
const (
	// Unknown: whoever is asked has never seen this incarnation open, or does not have it in its map.
	Unknown Kind = iota
	// Alive: it answers, or its process runs.
	Alive
	// Refused: the address at which it was seen open refuses connections.
	Refused
	// Unreachable: anything else. It proves nothing.
	Unreachable
)

func (k Kind) String() string {
	switch k {
	case Alive:
		return "alive"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	default:
		return "unknown"
	}
}

// Sighting is what an instance sees of another at one moment.
type Sighting struct {
	Kind Kind
	// Incarnation that was seen, "" unless Alive.
	Incarnation string
}

// deserted reports whether the listener was given up: it refuses, or another incarnation of the instance has its address. A
// process holds its listener as long as it lives.
func (s Sighting) deserted() bool {
	return s.Kind == Refused || s.Kind == Alive && s.Incarnation != ""
}

// Glance is what this process sees of an instance by itself.
type Glance struct {
	// Reach is Alive when the endpoint answers, Refused or Unreachable.
	Reach Kind
	// Incarnation that answered, and Address, host:port, at which.
	Incarnation, Address string
	// Process is what this machine knows of its process.
	Process hostproc.State
}

// deserted is that of a [Sighting], of an incarnation that has not answered itself.
func (g Glance) deserted() bool {
	return Sighting{Kind: g.Reach, Incarnation: g.Incarnation}.deserted()
}

// sighting is what others are told of the glance, if it was one of an incarnation seen open before.
func (g Glance) sighting(s Subject) Sighting {
	switch {
	case g.Reach == Alive:
		return Sighting{Kind: Alive, Incarnation: g.Incarnation}
	case g.Process == hostproc.Running:
		return Sighting{Kind: Alive, Incarnation: s.Incarnation}
	default:
		return Sighting{Kind: g.Reach}
	}
}

// Proof is why an instance may be removed from its group. It is a label of metrics.
type Proof string

// The proofs.
const (
	// ProcessGone: its process, once seen to run on this machine, is gone.
	ProcessGone Proof = "process"
	// EveryoneRefused: the listener, once seen open, refuses this process, twice, and most of the others.
	EveryoneRefused Proof = "refused"
)

// The times of a suspicion.
const (
	// firstLook and lastLook bound how long a doubted instance is left alone between two looks. The first is short: the
	// kernel closes the connections of a process that was killed a little before the process is gone.
	firstLook, lastLook = 25 * time.Millisecond, 5 * time.Second
	// reprieve is how long one is left alone whom a peer has seen alive.
	reprieve = 2 * time.Second
	// calmLook is how often an instance is asked how it is without any doubt, and spacing the least time between two such
	// questions to whomever: a paused process breaks no connection.
	calmLook, spacing = time.Second, 20 * time.Millisecond
	// turn is for how long survivors leave the eviction to those before them, and turns how often at most.
	turn, turns = 50 * time.Millisecond, 20
	// evictionsPerMinute of one process: more at a time are rather a fault of the network, or of this process.
	evictionsPerMinute = 10
)
