package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests  *prometheus.CounterVec
	seconds   *prometheus.HistogramVec
	inFlight  *prometheus.GaugeVec
	rejected  *prometheus.CounterVec
	panics    prometheus.Counter
	rows      *prometheus.CounterVec
	readings  prometheus.Gauge
	hops      *prometheus.CounterVec
	localCopy *prometheus.CounterVec
	hedges    *prometheus.CounterVec
	partial   prometheus.Counter

	copyBytes prometheus.Counter
}

// newMetrics registers the metrics; reg may be nil. Labels are bounded: methods, routes, reasons and limits are fixed
// sets.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_requests_total",
			Help: "Requests answered, by method, origin (entry, peer), route (local, remote, cache, mixed, none) and outcome (OK or the reason).",
		}, []string{"method", "origin", "route", "outcome"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "statemesh_server_request_seconds", Help: "Time to answer a request, by method and route.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2.5, 14), // 50 us to 7 s
		}, []string{"method", "route"}),
		inFlight: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "statemesh_server_requests_in_flight", Help: "Requests being answered, by the limit that counts them.",
		}, []string{"limit"}),
		rejected: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_requests_rejected_total", Help: "Requests refused because a limit was reached, by limit.",
		}, []string{"limit"}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_server_panics_total", Help: "Requests that ended in a panic, which was recovered.",
		}),
		rows: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_scan_rows_total", Help: "Rows sent by scans, by origin.",
		}, []string{"origin"}),
		readings: f.NewGauge(prometheus.GaugeOpts{
			Name: "statemesh_server_open_readings", Help: "Snapshots that requests hold open.",
		}),
		copyBytes: f.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_server_copy_bytes_total", Help: "Bytes of rows sent to peers that were given copies of tasks.",
		}),
		hops: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_hops_total", Help: "Requests forwarded to a peer, by outcome (OK, OVERTAKEN by a copy, or the reason).",
		}, []string{"outcome"}),
		localCopy: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_local_copy_reads_total",
			Help: "Reads with a bound that a copy of this instance was asked for before the owner: answered, or passed over.",
		}, []string{"outcome"}),
		partial: f.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_server_partial_reads_total",
			Help: "Partitions that were read here in a copy that is being restored, for callers who accept that.",
		}),
		hedges: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_server_hedged_reads_total",
			Help: "Forwarded reads that were slow, so that a copy was asked as well: answered by the copy, overtaken by the slow one, or failed.",
		}, []string{"outcome"}),
	}
}
