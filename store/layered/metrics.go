package layered

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of an instance's stores.
type metrics struct {
	reg   prometheus.Registerer
	all   []prometheus.Collector
	leaks atomic.Int64
	cache cacheMetrics

	moves     *prometheus.CounterVec
	moveBytes prometheus.Counter
	moveTime  prometheus.Histogram
	undone    prometheus.Counter
	// compactions counts passes over whole databases.
	compactions prometheus.Counter
	quarantine  prometheus.Counter
	// expired counts writes that came too late.
	expired *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, s *Stores) (*metrics, error) {
	m := &metrics{
		reg: reg,
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_store_moves_total", Help: "Moves of recent commits to an engine, by result.",
		}, []string{"result"}),
		moveBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_store_moved_bytes_total", Help: "Bytes of keys and values moved to an engine.",
		}),
		moveTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "statemesh_store_move_duration_seconds", Help: "Time a move took until it was durable.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		undone: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_store_undone_moves_total", Help: "Cut or failed moves whose leftovers were undone.",
		}),
		compactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_store_compactions_total", Help: "Compactions of a whole database because much of it had been deleted.",
		}),
		quarantine: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_store_quarantined_directories_total", Help: "Corrupt database directories that were moved aside.",
		}),
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_store_expired_records_total", Help: "Writes dropped because their time had expired, by store.",
		}, []string{"store"}),
	}
	gauge := func(name, help string, value func() int64) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value()) }))
	}
	gauge("statemesh_store_open_iterators", "Iterators that are open.", s.iterators.Load)
	gauge("statemesh_store_open_snapshots", "Snapshots that are open.", s.OpenSnapshots)
	age := func(name, help, kind string) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return s.reads.oldest(kind).Seconds() }))
	}
	age("statemesh_store_oldest_iterator_seconds", "Age of the iterator that has been open for longest, at least.", iteratorKind)
	age("statemesh_store_oldest_snapshot_seconds", "Age of the snapshot that has been open for longest, at least.", snapshotKind)
	gauge("statemesh_store_open_tasks", "Copies of tasks that are open.", s.open.Load)
	gauge("statemesh_store_recent_bytes", "Memory of commits that the engines may not have yet.", s.RecentBytes)
	m.all = append(m.all, m.moves, m.moveBytes, m.moveTime, m.undone, m.compactions, m.quarantine, m.expired,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "statemesh_store_expired_reads_total",
			Help: "Iterators and snapshots that were closed because they were open for too long, or longer than their requests.",
		}, func() float64 { return float64(s.reads.expired.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "statemesh_store_leaks_total", Help: "Iterators found open by the garbage collector: a fault in the program.",
		}, func() float64 { return float64(m.leaks.Load()) }))
	m.all = append(m.all, m.cache.collectors()...)
	if reg == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := reg.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return nil, err
		}
	}
	return m, nil
}

// moved counts a move of one engine.
func (m *metrics) moved(err error, bytes int64, took time.Duration) {
	if err != nil {
		m.moves.WithLabelValues("failed").Inc()
		return
	}
	m.moves.WithLabelValues("ok").Inc()
	m.moveBytes.Add(float64(bytes))
	m.moveTime.Observe(took.Seconds())
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
