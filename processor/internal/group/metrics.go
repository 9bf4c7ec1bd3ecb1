package group

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of the package. A nil registerer makes metrics that nobody reads.
type metrics struct {
	epoch   prometheus.Gauge
	members prometheus.Gauge
	moving  prometheus.Gauge
	reads   *prometheus.CounterVec
	bytes   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	with := promauto.With(reg)
	return &metrics{
		epoch: with.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_group_epoch",
			Help: "Epoch of the published metadata.",
		}),
		members: with.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_group_members",
			Help: "Members of the group under the published metadata.",
		}),
		moving: with.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_group_moving_tasks",
			Help: "Tasks on their way to another instance under the published metadata.",
		}),
		reads: with.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_group_map_reads_total",
			Help: "Descriptions of the group read, by what they were: whole, unsettled, partial or error.",
		}, []string{"result"}),
		bytes: with.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_group_metadata_bytes",
			Help: "Size of the group's metadata at the last placement this instance made.",
		}),
	}
}
