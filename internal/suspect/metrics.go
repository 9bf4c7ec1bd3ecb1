package suspect

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	outcomes *prometheus.CounterVec
	doubted  prometheus.Gauge
}

// newMetrics registers at reg; nil: they are kept and shown to nobody.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		outcomes: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_suspicions_total",
			Help: "Steps of the suspicion that another instance is dead: suspected, cleared, proven, or why it was not proven.",
		}, []string{"outcome"}),
		doubted: f.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_suspected_instances", Help: "Instances of the map that do not answer at the moment.",
		}),
	}
	for _, o := range []Outcome{
		Suspected, Cleared, Proven, NeverSeen, SeenAlive, NoMajority, Limited, NoMember, SwitchedOff, AlreadyTried, WasGone, EvictionError,
	} {
		m.outcomes.WithLabelValues(string(o))
	}
	return m
}
