package streams

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// bufferMetrics are those of a Suppress, of all tasks in the process together.
type bufferMetrics struct {
	records, bytes prometheus.Gauge
	told           prometheus.Counter
}

func newBufferMetrics(ctx *processor.Context, name store.Name) *bufferMetrics {
	reg := ctx.Registerer()
	gauge := func(metric, help string) prometheus.Gauge {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "statemesh_suppress_" + metric, Help: help}, []string{"store"})
		return shared(reg, v).WithLabelValues(string(name))
	}
	told := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "statemesh_suppress_emitted_total", Help: "Changes that were held back and handed on.",
	}, []string{"store"})
	return &bufferMetrics{
		records: gauge("buffer_records", "Changes that are held back."),
		bytes:   gauge("buffer_bytes", "Keys and values of changes that are held back."),
		told:    shared(reg, told).WithLabelValues(string(name)),
	}
}

// shared registers a metric, or finds the one that another task has registered. Without a registerer nobody sees it.
func shared[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	err := reg.Register(c)
	if e, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if had, ok := e.ExistingCollector.(C); ok {
			return had
		}
	}
	return c
}
