package statemesh

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/router"
)

// suspicion watches the other instances, and removes from the group those that are proven to be dead.
func (i *Instance) suspicion(p *parts, reg prometheus.Registerer) *suspect.Runner {
	c := i.cfg.Processor
	conf := suspect.Config{
		Self:  suspect.Subject{Instance: p.processID, Incarnation: p.incarnation},
		Host:  cmp.Or(hostproc.ID(c.Host), hostproc.Self()),
		Table: i.table,
		Hosts: func(s suspect.Subject) hostproc.ID { return hostproc.ID(p.runtime.Host(s.Instance, s.Incarnation)) },
		Peers: p.pool.Mesh(c.ApplicationID, p.processID),
		Evict: func(ctx context.Context, s suspect.Subject, by suspect.Proof) (int, error) {
			return p.runtime.Evict(ctx, processor.Dead{Process: s.Instance, Incarnation: s.Incarnation, Proof: string(by)})
		},
		Epoch:  func() router.Epoch { return p.runtime.Epoch() },
		Nudge:  func(epoch router.Epoch) { p.runtime.Nudge(epoch) },
		Logger: i.log, Registerer: reg,
	}
	if c.NoEviction {
		conf.Evict = nil
	}
	return suspect.NewRunner(conf)
}

// suspected reports whether another instance is believed to be dead.
func (p *parts) suspected(to router.Replica) bool {
	return p.suspect.Doubts(to.Instance) || p.pool.Down(to.Endpoint)
}
