package client

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of one client. Labels are bounded: methods and reasons.
type metrics struct {
	retries *prometheus.CounterVec // reason
	maps    *prometheus.CounterVec // result
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		retries: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_client_retries_total",
			Help: "Requests sent again, by the reason of the failure before.",
		}, []string{"reason"}),
		maps: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_client_maps_total",
			Help: "Attempts to learn the map: ok, failed (nobody gave one), refused (what came was older or less).",
		}, []string{"result"}),
	}
}
