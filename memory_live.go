package statemesh

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/membudget"
)

// MemoryUse is a part of the memory limit and what is taken of it.
type MemoryUse struct {
	MemoryPart

	// Used in bytes; -1 where it is not counted.
	Used int64 `json:"used"`
}

// Memory shows the parts of the memory limit with what is used of them at this moment.
func (i *Instance) Memory() []MemoryUse {
	var used map[string]func() int64
	if p := i.parts.Load(); p != nil {
		used = p.used()
	}
	parts := i.memory.Parts
	if p := i.parts.Load(); p != nil {
		parts = p.budgets()
	}
	out := make([]MemoryUse, len(parts))
	for n, part := range parts {
		out[n] = MemoryUse{MemoryPart: part, Used: -1}
		if f := used[part.Name]; f != nil {
			out[n].Used = f()
		}
	}
	return out
}

// budgets are the parts as they are now: threads that were added beyond those the limit was divided for take of what was to spare.
func (p *parts) budgets() []MemoryPart {
	out := slices.Clone(p.divided)
	threads := int64(len(p.runtime.Threads()))
	for n := range out {
		switch membudget.Part(out[n].Name) {
		case membudget.Fetch:
			out[n].Bytes = max(out[n].Bytes, p.fetchBytes*threads)
		case membudget.Produce:
			out[n].Bytes = max(out[n].Bytes, p.produceBytes*produceCost*threads)
		default:
		}
	}
	return out
}

// used is what the parts that count know of themselves.
func (p *parts) used() map[string]func() int64 {
	return map[string]func() int64{
		string(membudget.Recent):      p.stores.RecentBytes,
		string(membudget.Restore):     p.runtime.RestoreBytes,
		string(membudget.RemoteCache): p.cache.Bytes,
		string(membudget.Queries):     p.server.Bytes,
	}
}

// limitMemory tells the Go runtime its limit, unless it has one, and says how the memory is divided. restore takes the limit back;
// adapt, which is not called after that, sets it anew by what of files is in memory.
func (i *Instance) limitMemory(ctx context.Context) (adapt, restore func()) {
	attrs := []slog.Attr{
		slog.String("limit", membudget.Text(i.memory.Limit)), slog.String("from", i.memory.Source),
	}
	adapt, restore = func() {}, func() {}
	switch none := int64(math.MaxInt64); {
	case i.memory.Go == 0:
	case os.Getenv("GOMEMLIMIT") != "", debug.SetMemoryLimit(-1) != none:
		attrs = append(attrs, slog.String("go_limit", "as it was set"))
	default:
		now := i.memory.Go
		debug.SetMemoryLimit(now)
		attrs = append(attrs, slog.String("go_limit", membudget.Text(now)))
		adapt = func() {
			next := membudget.GoLimitBeside(i.memory.Limit, i.memory.Go, membudget.MappedResident(os.DirFS("/")))
			if next != now && debug.SetMemoryLimit(-1) == now { // else somebody else sets it
				debug.SetMemoryLimit(next)
				now = next
			}
		}
		restore = func() {
			if debug.SetMemoryLimit(-1) == now {
				debug.SetMemoryLimit(none)
			}
		}
	}
	for _, p := range i.memory.Parts {
		if p.Bytes > 0 {
			attrs = append(attrs, slog.String(p.Name, membudget.Text(p.Bytes)))
		}
	}
	i.log.LogAttrs(ctx, slog.LevelInfo, "memory divided", attrs...)
	return adapt, restore
}

// rest gives memory back to the system once the instance has come to rest: what a burst has needed is kept for the next one as
// long as there is work, and no longer. It does so once per rest, for it costs a collection. In between it has adapt look.
func (i *Instance) rest(ctx context.Context, p *parts, adapt func()) {
	const look, quiet = time.Second, 10
	tick := time.NewTicker(look)
	defer tick.Stop()
	last, idle := i.commits.Load(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		adapt()
		now := i.commits.Load()
		if now != last || p.runtime.RestoreBytes() > 0 {
			last, idle = now, 0
			continue
		}
		if idle++; idle == quiet {
			debug.FreeOSMemory()
		}
	}
}

// memoryMetrics show the parts of the limit.
type memoryMetrics struct {
	reg          prometheus.Registerer
	parts        func() []MemoryPart
	used         map[string]func() int64
	budget, live *prometheus.Desc
}

func newMemoryMetrics(reg prometheus.Registerer, p *parts) (*memoryMetrics, error) {
	c := &memoryMetrics{
		reg: reg, parts: p.budgets, used: p.used(),
		budget: prometheus.NewDesc("statemesh_memory_budget_bytes", "Memory that a part of the instance may take.", []string{"part"}, nil),
		live:   prometheus.NewDesc("statemesh_memory_used_bytes", "Memory that a part of the instance takes, of those that count it.", []string{"part"}, nil),
	}
	if err := reg.Register(c); err != nil {
		return nil, fmt.Errorf("memory metrics: %w", err)
	}
	return c, nil
}

// Describe implements prometheus.Collector.
func (c *memoryMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- c.budget
	out <- c.live
}

// Collect implements prometheus.Collector.
func (c *memoryMetrics) Collect(out chan<- prometheus.Metric) {
	for _, p := range c.parts() {
		out <- prometheus.MustNewConstMetric(c.budget, prometheus.GaugeValue, float64(p.Bytes), p.Name)
		if used := c.used[p.Name]; used != nil {
			out <- prometheus.MustNewConstMetric(c.live, prometheus.GaugeValue, float64(used()), p.Name)
		}
	}
}

func (c *memoryMetrics) unregister() { c.reg.Unregister(c) }
