package suspect

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/internal/hostproc"
)

// Why a question about itself was not answered.
var (
	errSilent   = errors.New("suspect: no answer in time")
	errNoAnswer = errors.New("suspect: not answered by the instance that was asked")
)

// look is how an instance looks from here at this moment.
func (r *Runner) look(ctx context.Context, a Action) Glance {
	g := Glance{Reach: Unreachable, Address: a.Address, Process: r.process(a.Subject)}
	if !a.Doubted && a.Address != "" {
		switch seen, err := r.question(ctx, a, FailFast, answerTimeout); {
		case err == nil:
			g.Reach, g.Incarnation = Alive, seen
			return g
		case errors.Is(err, errSilent):
			return g
		}
	}
	address := a.Address
	if address == "" {
		address = a.Endpoint
	}
	// A process that is killed may be seen on its way out: the port is still open, and nobody will answer. So it is not given all
	// the time at once.
	for patience := firstAnswer; ; patience *= 2 {
		var err error
		if g.Address, err = r.knock(ctx, address); err != nil {
			g.Address = a.Address
			if errors.Is(err, syscall.ECONNREFUSED) {
				g.Reach = Refused
			}
			return g
		}
		if seen, err := r.question(ctx, a, ForConnection, patience); err == nil {
			g.Reach, g.Incarnation = Alive, seen
			return g
		}
		if g.Process = r.process(a.Subject); g.Process == hostproc.Gone || 2*patience > answerTimeout || ctx.Err() != nil {
			return g
		}
	}
}

// process is what this machine knows of the process of a subject.
func (r *Runner) process(s Subject) hostproc.State {
	host := r.cfg.Hosts(s)
	if !r.cfg.Host.Beside(host) {
		return hostproc.Unknown
	}
	return hostproc.Look(r.cfg.Host, host)
}

// knock tries a connection and returns the address that took it.
func (r *Runner) knock(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := r.cfg.Dial(ctx, address)
	if err != nil {
		return "", err
	}
	at := conn.RemoteAddr().String()
	return at, conn.Close()
}

// question asks an instance about itself.
func (r *Runner) question(ctx context.Context, a Action, wait Wait, patience time.Duration) (incarnation string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen, by, err := r.cfg.Peers.Suspect(ctx, a.Endpoint, a.Subject, wait)
	switch {
	case ctx.Err() != nil:
		return "", errSilent
	case err != nil || by != a.Subject.Instance || seen.Kind != Alive || seen.Incarnation == "":
		return "", errNoAnswer
	}
	return seen.Incarnation, nil
}

// ask asks another instance. No answer is one that proves nothing.
func (r *Runner) ask(ctx context.Context, a Action) Sighting {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	seen, by, err := r.cfg.Peers.Suspect(ctx, a.Peer.Endpoint, a.Subject, FailFast)
	if err != nil || by != a.Peer.Subject.Instance {
		return Sighting{Kind: Unreachable}
	}
	return seen
}
