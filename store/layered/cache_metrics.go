package layered

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// cacheStats are what a record cache counts between two commits; its thread's own.
type cacheStats struct {
	hits, misses, evictions int64
	flushed                 [flushReasons]int64
	// bytes and dirty are what was last told to the metrics.
	bytes, dirty int64
}

// cacheMetrics are those of all record caches of an instance.
type cacheMetrics struct {
	hits, misses, evictions atomic.Int64
	flushed                 [flushReasons]atomic.Int64
	bytes, dirty            atomic.Int64
}

// publish adds what was counted to the metrics.
func (r *RecordCache) publish() {
	s, m := &r.stats, r.report
	add(&m.hits, &s.hits)
	add(&m.misses, &s.misses)
	add(&m.evictions, &s.evictions)
	for i := range s.flushed {
		add(&m.flushed[i], &s.flushed[i])
	}
	m.bytes.Add(r.bytes - s.bytes)
	m.dirty.Add(r.dirty - s.dirty)
	s.bytes, s.dirty = r.bytes, r.dirty
}

func add(to *atomic.Int64, n *int64) {
	if *n != 0 {
		to.Add(*n)
		*n = 0
	}
}

// collectors shows the metrics.
func (m *cacheMetrics) collectors() []prometheus.Collector {
	read := func(v *atomic.Int64) func() float64 { return func() float64 { return float64(v.Load()) } }
	counter := func(name, help string, labels prometheus.Labels, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "statemesh_record_cache_" + name, Help: help, ConstLabels: labels,
		}, read(v))
	}
	gauge := func(name, help string, v *atomic.Int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "statemesh_record_cache_" + name, Help: help}, read(v))
	}
	all := []prometheus.Collector{
		counter("hits_total", "Reads of caching stores by processors that were answered in memory.", nil, &m.hits),
		counter("misses_total", "Reads of caching stores by processors that went to older commits or the engine.", nil, &m.misses),
		counter("evictions_total", "Entries that made room for others.", nil, &m.evictions),
		gauge("bytes", "What the entries of the record caches cost, as of the last commits.", &m.bytes),
		gauge("dirty_bytes", "Of them what is not flushed; after a commit, nothing is.", &m.dirty),
	}
	for reason, label := range [flushReasons]string{"commit", "pressure", "put"} {
		all = append(all, counter("flushed_total", "Changes that were flushed, by reason.",
			prometheus.Labels{"reason": label}, &m.flushed[reason]))
	}
	return all
}
