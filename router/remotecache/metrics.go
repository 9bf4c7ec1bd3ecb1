package remotecache

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics of one cache. Hit ratio = hits / (hits + misses + collapsed): an expired entry is a miss.
type metrics struct {
	hits, misses, collapsed, bypassed prometheus.Counter
	evictions, expired, moved         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, c *Cache) *metrics {
	f := promauto.With(reg)
	requests := f.NewCounterVec(prometheus.CounterOpts{
		Name: "statemesh_remote_cache_requests_total",
		Help: "Requests for another instance's answer: hit, miss (one call), collapsed (shared that of another request), " +
			"bypass (the caller wants a fresh one).",
	}, []string{"result"})
	removed := f.NewCounterVec(prometheus.CounterOpts{
		Name: "statemesh_remote_cache_removed_total",
		Help: "Cached answers removed: evicted (budget), expired (TTL), moved (the owner changed).",
	}, []string{"reason"})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_remote_cache_bytes", Help: "Memory held by cached answers, overhead included.",
	}, func() float64 { return float64(c.bytes.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "statemesh_remote_cache_entries",
		Help: "Cached answers in memory, with those that expired and were not tidied up yet.",
	}, func() float64 { return float64(c.count.Load()) })
	return &metrics{
		hits: requests.WithLabelValues("hit"), misses: requests.WithLabelValues("miss"),
		collapsed: requests.WithLabelValues("collapsed"), bypassed: requests.WithLabelValues("bypass"),
		evictions: removed.WithLabelValues("evicted"), expired: removed.WithLabelValues("expired"),
		moved: removed.WithLabelValues("moved"),
	}
}
