package processor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of a runtime.
type metrics struct {
	records, commits, aborts, memberships, fetchErrors prometheus.Counter
	copiesDropped, replaced                            prometheus.Counter
	pauses                                             prometheus.Counter
	dropped, dataLoss, commitReasons                   *prometheus.CounterVec
	commitSeconds                                      prometheus.Histogram
	restoring, tasks, state, inputBytes                prometheus.Gauge
	restoreLag, restoreLeft                            *prometheus.GaugeVec
	copies                                             *prometheus.CounterVec
	copyRows, copyResumes                              prometheus.Counter
}

// newMetrics registers at reg; nil: the metrics are kept and shown to nobody.
func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "statemesh_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: "statemesh_" + name, Help: help})
	}
	return &metrics{
		records:       counter("records_total", "Input records processed, those of aborted commits included."),
		commits:       counter("commits_total", "Commits of stream threads."),
		aborts:        counter("aborts_total", "Commits that were undone."),
		memberships:   counter("memberships_lost_total", "Group memberships that stream threads lost."),
		copiesDropped: counter("copies_dropped_total", "Local copies dropped because their tasks have long run elsewhere."),
		replaced:      counter("threads_replaced_total", "Stream threads that failed and were begun again."),
		fetchErrors:   counter("fetch_errors_total", "Fetches of inputs that failed and were tried again."),
		pauses:        counter("input_pauses_total", "Times that the fetching of a partition was paused because enough waits."),
		commitReasons: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_commits_due_total",
			Help: "Commits of stream threads that were begun, by why: interval, request of a processor, uncommitted bytes, rebalance.",
		}, []string{"reason"}),
		dropped: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_dropped_records_total",
			Help: "Input records that were not processed, by reason and what became of them.",
		}, []string{"reason", "to"}),
		dataLoss: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_lost_records_total",
			Help: "Offsets of input records that the broker deleted before they were processed.",
		}, []string{"topic"}),
		copies: f.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_restore_copies_total",
			Help: "Copies of tasks that peers were asked for in place of changelogs, by outcome: taken, busy, slower (than the changelogs), " +
				"refused, unavailable, cut, expired, broken, interrupted, failed.",
		}, []string{"outcome"}),
		copyRows:    counter("restore_copy_rows_total", "Rows taken from copies of peers."),
		copyResumes: counter("restore_copy_resumes_total", "Copies of peers that were gone on with after their connection broke."),
		commitSeconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "statemesh_commit_seconds",
			Help: "Time a commit takes.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		inputBytes: gauge("input_buffer_bytes", "Memory of fetched records that wait to be processed."),
		restoring:  gauge("restoring_tasks", "Tasks that are being restored."),
		tasks:      gauge("running_tasks", "Tasks that process."),
		state:      gauge("runtime_state", "State of the runtime: 0 created, 1 rebalancing, 2 running, 3 stopping, 4 stopped, 5 failed."),
		restoreLag: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "statemesh_restore_lag_offsets",
			Help: "Changelog offsets left to read, by task that is being restored.",
		}, []string{"task"}),
		restoreLeft: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "statemesh_restore_left_seconds",
			Help: "Time that the rest of a restore takes at its rate so far, by task; absent while that is unknown.",
		}, []string{"task"}),
	}
}

// restore notes how far that of a task is: offsets left, and how long they take, 0 when unknown.
func (m *metrics) restore(task string, left int64, time time.Duration) {
	m.restoreLag.WithLabelValues(task).Set(float64(left))
	if time > 0 {
		m.restoreLeft.WithLabelValues(task).Set(time.Seconds())
	} else {
		m.restoreLeft.DeleteLabelValues(task)
	}
}

// restored ends what restore noted.
func (m *metrics) restored(task string) {
	m.restoreLag.DeleteLabelValues(task)
	m.restoreLeft.DeleteLabelValues(task)
}

// standbyMetrics registers what is read when somebody looks.
func standbyMetrics(reg prometheus.Registerer, list func() []StandbyInfo) {
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_standby_age_seconds",
		Help: "Proven age of the oldest of the standby copies that have one; 0 without any.",
	}, func() float64 {
		var oldest time.Duration
		for _, s := range list() {
			oldest = max(oldest, s.Age)
		}
		return oldest.Seconds()
	})
}

// globalMetrics registers those of a global store and returns the counter of the records that are applied; the gauges are read
// when somebody looks.
func globalMetrics(reg prometheus.Registerer, name string, lag, restoring func() float64) prometheus.Counter {
	f, labels := promauto.With(reg), prometheus.Labels{"store": name}
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_global_lag_offsets", ConstLabels: labels,
		Help: "Offsets of a global store's topic left to read, as of the last fetch, all partitions together.",
	}, lag)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_global_restoring", ConstLabels: labels,
		Help: "1 while this instance has no whole copy of a global store to read, else 0.",
	}, restoring)
	return f.NewCounter(prometheus.CounterOpts{
		Name: "statemesh_global_records_total", ConstLabels: labels,
		Help: "Records of a global store's topic that were applied, those of attempts that failed included.",
	})
}

func (m *metrics) commit(took time.Duration, err error) {
	if err == nil {
		m.commits.Inc()
	}
	m.commitSeconds.Observe(took.Seconds())
}
