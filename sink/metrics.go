package sink

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a sink.
type metrics struct {
	rows, deletes, batches, moved, gaps, failures prometheus.Counter
	errors, refused                               *prometheus.CounterVec
	lag                                           *prometheus.GaugeVec
	commitSeconds                                 prometheus.Histogram
}

// newMetrics registers at reg, under the name of the sink; nil: the metrics are kept and shown to nobody. up says whether changes are written.
func newMetrics(reg prometheus.Registerer, name string, up func() float64) *metrics {
	if reg != nil {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"sink": name}, reg)
	}
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "statemesh_sink_" + name, Help: help})
	}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_sink_up", Help: "1 while changes are written as they come; 0 while the database is away, or the sink has failed.",
	}, up)
	return &metrics{
		rows:    counter("rows_total", "Rows written to the database: inserts and updates."),
		deletes: counter("deletes_total", "Rows deleted from the database."),
		batches: counter("batches_total", "Transactions that moved an offset."),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_sink_errors_total",
			Help: "Attempts at the database that failed and were tried again, by why: its SQLSTATE, timeout, or unreachable.",
		}, []string{"reason"}),
		failures: counter("failures_total", "Times that the sink has ended with an error that trying again does not cure."),
		moved:    counter("moved_total", "Times that the database's offset was found elsewhere than the sink had left it, and was read on from."),
		gaps:     counter("gaps_total", "Times that reading went on at the beginning of a compacted topic, behind the database's offset."),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_sink_refused_total",
			Help: "Records that were passed over because they are no rows, by why: a reason of decoding, or the database's code.",
		}, []string{"reason"}),
		lag: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "statemesh_sink_lag_records", Help: "Offsets of the topic left to apply, by partition that this instance has.",
		}, []string{"partition"}),
		commitSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "statemesh_sink_commit_seconds",
			Help: "Time that a transaction with the database takes.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
	}
}

func (m *metrics) setLag(partition int32, offsets int64) {
	label := strconv.Itoa(int(partition))
	if offsets < 0 {
		m.lag.DeleteLabelValues(label)
		return
	}
	m.lag.WithLabelValues(label).Set(float64(offsets))
}
