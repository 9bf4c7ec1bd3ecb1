package restore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// standbySet holds the standbys that are at work, and what they have in common. Safe for concurrent use.
type standbySet struct {
	standbyMetrics
	waiting atomic.Int64 // bytes of the budget that wait to be applied

	mu  sync.Mutex // never taken with another lock held, and held while none is taken
	all map[*Standby]struct{}
}

func (f *standbySet) add(s *Standby) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = make(map[*Standby]struct{})
	}
	f.all[s] = struct{}{}
}

func (f *standbySet) remove(s *Standby) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, s)
}

func (f *standbySet) list() []*Standby {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*Standby, 0, len(f.all))
	for s := range f.all {
		all = append(all, s)
	}
	return all
}

// reserve takes bytes that are to wait, if all that wait stay within a limit.
func (f *standbySet) reserve(bytes, limit int64) bool {
	if f.waiting.Add(bytes) <= limit {
		return true
	}
	f.waiting.Add(-bytes)
	return false
}

func (f *standbySet) unreserve(bytes int64) { f.waiting.Add(-bytes) }

// standbyMetrics of all standbys.
type standbyMetrics struct {
	rebuilds, records, skipped, bytes prometheus.Counter
}

func newStandbyMetrics() standbyMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return standbyMetrics{
		rebuilds: counter("statemesh_standby_rebuilds_total", "Standby copies dropped because they did not fit their changelog."),
		records:  counter("statemesh_standby_records_total", "Changelog records applied by standbys."),
		skipped:  counter("statemesh_standby_skipped_records_total", "Changelog records without a key, which standbys skip."),
		bytes:    counter("statemesh_standby_bytes_total", "Changelog bytes applied by standbys, as they come from the brokers."),
	}
}

func (m *standbyMetrics) read(n counts, bytes int64) {
	m.records.Add(float64(n.records))
	m.skipped.Add(float64(n.skipped))
	m.bytes.Add(float64(bytes))
}

func (f *standbySet) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	sum := func(of func(*Standby) float64) func() float64 {
		return func() (all float64) {
			for _, s := range f.list() {
				all += of(s)
			}
			return all
		}
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		f.rebuilds, f.records, f.skipped, f.bytes,
		gauge("statemesh_standby_tasks", "Tasks whose changelogs are followed.", sum(func(*Standby) float64 { return 1 })),
		gauge("statemesh_standby_inexact_tasks", "Followed tasks whose copy is not exact, so that it does not answer.", sum(func(s *Standby) float64 {
			if s.Exact() {
				return 0
			}
			return 1
		})),
		gauge("statemesh_standby_lag_offsets", "Changelog offsets that standbys have still to publish, over all that know their end.",
			sum(func(s *Standby) float64 {
				if left, ok := s.lag(); ok {
					return float64(left)
				}
				return 0
			})),
		gauge("statemesh_standby_waiting_bytes", "Changelog bytes that standbys hold because they may not be published yet.",
			func() float64 { return float64(f.waiting.Load()) }),
	} {
		if err := reg.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("standby metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}
