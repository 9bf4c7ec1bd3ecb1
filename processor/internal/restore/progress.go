package restore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// report tells the caller how far the job is.
func (j *job) report(phase Phase, err error) {
	if j.req.Progress == nil {
		return
	}
	p := Progress{Task: j.req.Task.ID(), Phase: phase, Took: time.Since(j.started), Err: err}
	for _, s := range j.stores {
		p.Done += int64(s.next - s.from)
		p.Total += int64(max(s.end, s.next) - s.from)
		p.Stores = append(p.Stores, StoreProgress{
			Store: s.name, Topic: s.log.Topic, Partition: j.partition(), From: s.from, Next: s.next, End: s.end,
		})
	}
	p.Left = timeLeft(p.Done, p.Total, p.Took)
	if phase == Restoring && time.Since(j.told) >= tellInterval {
		j.told = time.Now()
		tell(j.r.log.With("task", p.Task.String(), "as", "owner"), p.Done, p.Total, p.Left)
	}
	j.req.Progress(p)
}

// tellInterval is how often a restore, or a standby that catches up, says in the log how far it is.
const tellInterval = 10 * time.Second

// tell logs how far a copy is.
func tell(log *slog.Logger, done, total int64, left time.Duration) {
	if left > 0 {
		log = log.With("left", left.Round(time.Second))
	}
	log.Info("restoring", "restored", done, "total", total)
}

// timeLeft extrapolates the rate so far; 0 when there is none, or nothing is left.
func timeLeft(done, total int64, took time.Duration) time.Duration {
	if done <= 0 || took <= 0 || done >= total {
		return 0
	}
	return time.Duration(float64(took) / float64(done) * float64(total-done))
}

// metrics of all restores.
type metrics struct {
	running                        prometheus.Gauge
	rebuilds                       prometheus.Counter
	records, skip, bytes           prometheus.Counter
	completed, interrupted, failed prometheus.Observer
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "statemesh_restore_seconds", Help: "Time of whole restores of a task, by outcome.",
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
	}, []string{"outcome"})
	running := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "statemesh_restore_tasks", Help: "Tasks that are being restored.",
	})
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		running:     running,
		rebuilds:    counter("statemesh_restore_rebuilds_total", "Local copies dropped because they did not fit their changelog."),
		records:     counter("statemesh_restore_records_total", "Changelog records applied by restores."),
		skip:        counter("statemesh_restore_skipped_records_total", "Changelog records without a key, which are skipped."),
		bytes:       counter("statemesh_restore_bytes_total", "Changelog bytes read by restores, as they come from the brokers."),
		completed:   seconds.WithLabelValues("completed"),
		interrupted: seconds.WithLabelValues("interrupted"),
		failed:      seconds.WithLabelValues("failed"),
	}
	if reg == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{seconds, running, m.rebuilds, m.records, m.skip, m.bytes} {
		if err := reg.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("restore metrics: %w", err))
		}
	}
	return m, errors.Join(errs...)
}

func (m *metrics) read(n counts, bytes int64) {
	m.records.Add(float64(n.records))
	m.skip.Add(float64(n.skipped))
	m.bytes.Add(float64(bytes))
}

func (m *metrics) finished(took time.Duration, err error) {
	o := m.completed
	switch {
	case err == nil:
	case isContext(err), errors.Is(err, ErrStopped):
		o = m.interrupted
	default:
		o = m.failed
	}
	o.Observe(took.Seconds())
}
