package statemesh

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/membudget"
)

// TestMemoryReachesItsParts: each share is where the part will look for it, per thread and per database where that is how it
// counts; what is set stays; and the outcome divides to itself.
func TestMemoryReachesItsParts(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MemoryLimit = 512 << 20
	c.Processor.NumStreamThreads = 4
	c.RecentBytes = 50 << 20
	c.Processor.Kafka.FetchBytes = 3 << 20
	c.Engine.Compression = "zstd"
	m, d, err := c.memory(membudget.Default{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Source != "set" || m.Limit != 512<<20 || m.Go >= m.Limit || m.Go < m.Limit/2 {
		t.Errorf("%+v", m)
	}
	for part, have := range map[membudget.Part]int64{
		membudget.Recent: d.RecentBytes, membudget.Fetch: 4 * d.Processor.Kafka.FetchBytes,
		membudget.Uncommitted: d.Processor.UncommittedMaxBytes, membudget.RecordCache: d.Processor.CacheMaxBytes,
		membudget.Restore: d.Processor.RestoreMaxBytes, membudget.Input: d.Processor.InputBufferMaxBytes,
		membudget.RemoteCache: d.CacheBytes, membudget.Queries: d.Limits.Bytes, membudget.BlockCache: d.Engine.BlockCacheBytes,
	} {
		if want := m.Of(string(part)); have != want || have == 0 {
			t.Errorf("%s: %d, its share is %d", part, have, want)
		}
	}
	if have, share := 8*d.Processor.Kafka.ProduceBytes, m.Of("kafka_produce"); have > share || have < share-8 {
		t.Errorf("produce: %d of all threads with what records cost beside, its share is %d", have, share)
	}
	if have, share := membudget.MemtablesFor(d.Engine.MemtableBytes, 1), m.Of("memtables"); have > share+9 || have < share-9 {
		t.Errorf("memtables: %d, its share is %d", have, share)
	}
	if d.RecentBytes != 50<<20 || d.Processor.Kafka.FetchBytes != 3<<20 {
		t.Errorf("recent %d and fetch %d, both were set", d.RecentBytes, d.Processor.Kafka.FetchBytes)
	}
	if err := d.withDefaults().Validate(); err != nil {
		t.Errorf("what the split makes: %v", err)
	}
}

func TestMemoryOff(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MemoryLimit, c.CacheTTL, c.Processor.CacheMaxBytes, c.Processor.UncommittedMaxBytes = -1, -1, -1, -1
	m, d, err := c.memory(membudget.Default{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if m.Source != "none" || m.Go != 0 || m.Of("recent") != 256<<20 {
		t.Errorf("%+v", m)
	}
	if m.Of("remote_cache") != 0 || m.Of("record_cache") != 0 {
		t.Errorf("what is switched off has %d and %d", m.Of("remote_cache"), m.Of("record_cache"))
	}
	if d.Processor.CacheMaxBytes != -1 || d.Processor.UncommittedMaxBytes != -1 {
		t.Errorf("cache %d, uncommitted %d: both were switched off", d.Processor.CacheMaxBytes, d.Processor.UncommittedMaxBytes)
	}
}

// TestMemoryRefused: a limit that cannot work says what is needed, and that works.
func TestMemoryRefused(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MemoryLimit = 100 << 20
	err := c.Validate()
	small, ok := errors.AsType[*MemoryLimitError](err)
	if !ok {
		t.Fatalf("100 MiB: %v", err)
	}
	if f, ok := errors.AsType[*FieldError](err); !ok || f.Field != "MemoryLimit" || !strings.Contains(f.Reason, "need "+membudget.Text(small.Need)) {
		t.Errorf("%v", err)
	}
	c.MemoryLimit = small.Need
	if err := c.Validate(); err != nil {
		t.Errorf("with what is needed: %v", err)
	}
}

// TestMemoryDefaultOnSmallMachines: nobody has to set a limit on a machine that can carry an instance, and one that cannot
// refuses with what is needed.
func TestMemoryDefaultOnSmallMachines(t *testing.T) {
	t.Parallel()
	c := valid()
	c.Processor.NumStreamThreads = 2
	machine := func(total int64) membudget.Default {
		return membudget.Default{Limit: total / 4, Total: total, Source: membudget.Machine}
	}
	_, _, err := c.memory(machine(64 << 20))
	small, ok := errors.AsType[*MemoryLimitError](err)
	if !ok {
		t.Fatalf("a machine of 64 MiB: %v", err)
	}
	m, _, err := c.memory(machine(512 << 20))
	if err != nil {
		t.Fatalf("a machine of 512 MiB: %v", err)
	}
	if m.Limit != small.Need || m.Limit <= 128<<20 || m.Go >= m.Limit || m.Source != "machine" {
		t.Errorf("a machine of 512 MiB: %+v, needed is %d", m, small.Need)
	}
	if m, _, err := c.memory(machine(8 << 30)); err != nil || m.Limit != 2<<30 {
		t.Errorf("a machine of 8 GiB: %+v, %v", m, err)
	}
	c.MemoryLimit = 128 << 20
	if _, _, err := c.memory(machine(512 << 20)); err == nil {
		t.Error("a limit that was set was raised")
	}
}

func TestMemoryContradictions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no bound in a bound":  {func(c *Config) { c.MemoryLimit, c.Processor.UncommittedMaxBytes = 1<<30, -1 }, "UncommittedMaxBytes"},
		"parts above the sum":  {func(c *Config) { c.MemoryLimit, c.RecentBytes = 512<<20, 600<<20 }, "recent 600MiB as set"},
		"cache for nothing":    {func(c *Config) { c.Engine.BlockCacheBytes = 1 << 20 }, "Engine.BlockCacheBytes"},
		"unknown compression":  {func(c *Config) { c.Engine.Compression = "lzo" }, "Engine.Compression"},
		"too many databases":   {func(c *Config) { c.Engine.Databases = 10_000 }, "Engine.Databases"},
		"tiny memtables":       {func(c *Config) { c.Engine.MemtableBytes = 1000 }, "Engine.MemtableBytes"},
		"tiny recent":          {func(c *Config) { c.RecentBytes = 1000 }, "RecentBytes"},
		"negative query bytes": {func(c *Config) { c.Limits.Bytes = -1 }, "Limits.Bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := valid()
			c.change(&conf)
			if err := conf.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want an error that names %s", err, c.want)
			}
		})
	}
}

// TestMemoryMetrics: every part has its budget, those that count say what they use, and nothing stays behind.
func TestMemoryMetrics(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MemoryLimit = 512 << 20
	m, err := c.Memory()
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	metrics := &memoryMetrics{
		reg: reg, parts: func() []MemoryPart { return m.Parts }, used: map[string]func() int64{"recent": func() int64 { return 42 }},
		budget: prometheus.NewDesc("budget", "b", []string{"part"}, nil), live: prometheus.NewDesc("used", "u", []string{"part"}, nil),
	}
	reg.MustRegister(metrics)
	families, err := reg.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	if n := len(families[0].GetMetric()); n != len(m.Parts) {
		t.Errorf("%d budgets of %d parts", n, len(m.Parts))
	}
	if live := families[1].GetMetric(); len(live) != 1 || live[0].GetGauge().GetValue() != 42 {
		t.Errorf("in use: %v", live)
	}
	metrics.unregister()
	if families, err := reg.Gather(); err != nil || len(families) != 0 {
		t.Errorf("%d families stay, %v", len(families), err)
	}
}

// What of files is in memory comes out of the Go runtime's limit while the instance runs, and the limit is taken back at its end.
// Not in parallel: the limit is the process's.
func TestGoLimitGivesWay(t *testing.T) {
	if membudget.MappedResident(os.DirFS("/")) == 0 || os.Getenv("GOMEMLIMIT") != "" {
		t.Skip("what is mapped is not known here, or the limit is somebody else's")
	}
	const limit, none = 1 << 30, int64(math.MaxInt64)
	before := debug.SetMemoryLimit(-1)
	if before != none {
		t.Fatalf("the process has a limit of %d already", before)
	}
	i := &Instance{log: slog.New(slog.DiscardHandler), memory: Memory{Limit: limit, Go: limit}}
	adapt, restore := i.limitMemory(t.Context())
	defer debug.SetMemoryLimit(before)
	if have := debug.SetMemoryLimit(-1); have != limit {
		t.Fatalf("%d at first, want %d", have, limit)
	}
	adapt()
	if have := debug.SetMemoryLimit(-1); have >= limit || have < limit/4*3 {
		t.Errorf("%d beside mapped files, want less than %d and at least three quarters", have, limit)
	}
	restore()
	if have := debug.SetMemoryLimit(-1); have != none {
		t.Errorf("%d after the end, want none", have)
	}

	_, restore = i.limitMemory(t.Context())
	debug.SetMemoryLimit(limit / 2) // somebody else's
	restore()
	if have := debug.SetMemoryLimit(-1); have != limit/2 {
		t.Errorf("%d after the end, want what another has set", have)
	}
}

// TestMemoryOfThreads: a limit is divided for as many stream threads as there may be; without that number there may be as many as what
// is to spare pays for, and who wants one more learns with which limit.
func TestMemoryOfThreads(t *testing.T) {
	t.Parallel()
	c := valid()
	c.MemoryLimit, c.Processor.NumStreamThreads, c.Processor.MaxStreamThreads = 512<<20, 1, 4
	m, d, err := c.memory(membudget.Default{})
	if err != nil {
		t.Fatal(err)
	}
	if have, share := 4*d.Processor.Kafka.FetchBytes, m.Of("kafka_fetch"); have > share || have < share-4 || d.Processor.MaxStreamThreads != 4 {
		t.Errorf("%d of four threads, the share is %d; at most %d threads", have, m.Of("kafka_fetch"), d.Processor.MaxStreamThreads)
	}
	c.Processor.MaxStreamThreads = 0
	if _, d, err = c.memory(membudget.Default{}); err != nil || d.Processor.MaxStreamThreads != 1 {
		t.Errorf("nothing is to spare: at most %d threads, %v", d.Processor.MaxStreamThreads, err)
	}
	c.MemoryLimit = 4 << 30
	m, d, err = c.memory(membudget.Default{})
	if err != nil {
		t.Fatal(err)
	}
	k := d.Processor.Kafka
	n := int64(d.Processor.MaxStreamThreads - 1)
	if each := membudget.Cost(k.FetchBytes + produceCost*k.ProduceBytes); n < 1 || n*each > m.Spare || (n+1)*each <= m.Spare {
		t.Errorf("%d more threads of %d bytes each, %d are to spare", n, each, m.Spare)
	}
	c.MemoryLimit = -1
	if _, d, err = c.memory(membudget.Default{}); err != nil || d.Processor.MaxStreamThreads != 0 {
		t.Errorf("without a limit: at most %d threads, %v", d.Processor.MaxStreamThreads, err)
	}

	c.MemoryLimit, c.Processor.MaxStreamThreads = 512<<20, 3
	i, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	need := i.needFor(60)
	c.Processor.MaxStreamThreads, c.MemoryLimit = 60, need
	if _, _, err := c.memory(membudget.Default{}); err != nil {
		t.Errorf("with what 60 threads need: %v", err)
	}
	c.MemoryLimit--
	if _, _, err := c.memory(membudget.Default{}); err == nil {
		t.Error("less is enough")
	}
}
