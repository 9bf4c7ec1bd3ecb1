package statemesh

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/statemesh/statemesh/internal/membudget"
	"github.com/statemesh/statemesh/store/layered"
)

// Engine lays out the databases. All stores of an instance share them, with their memtables and tables, so none of this can be
// chosen for one store; what can is whether it is kept in memory instead. Zero fields mean the defaults.
type Engine struct {
	// Databases (store.databases) is among how many databases new copies are spread. Default 1, at most GOMAXPROCS: each has
	// memory of its own, and more write faster only where one cannot keep up.
	Databases int
	// MemtableBytes (store.memtable.bytes) is the size of a memtable of a database, of which there are up to three. Default: by
	// MemoryLimit, at most 8 MiB, and what the largest record needs, of which a memtable takes 15 %. A record that is larger is
	// refused at put.
	MemtableBytes int64
	// Compression (store.compression) of what is on disk: none (default), snappy or zstd.
	Compression string
	// BlockCacheBytes (store.block.cache.bytes) holds unpacked blocks of each database. Default: by MemoryLimit, at most 64 MiB,
	// with Compression; without it blocks lie in mapped files, and a cache is refused.
	BlockCacheBytes int64
	// BlockBytes (store.block.bytes) is the size of a block. Default 4 KiB.
	BlockBytes int
	// BloomFalsePositive (store.bloom.false.positive) is how often a table is searched for a key that it does not have. Default 0.01.
	BloomFalsePositive float64
	// Levels (store.levels) of tables. Default 7. Fewer than a state directory has are refused when it is opened.
	Levels int
}

func (e Engine) options() layered.EngineOptions {
	return layered.EngineOptions{
		Compression: e.Compression, BlockCacheBytes: e.BlockCacheBytes, BlockBytes: e.BlockBytes,
		BloomFalsePositive: e.BloomFalsePositive, Levels: e.Levels,
	}
}

// Memory is a limit divided; see Config.MemoryLimit.
type Memory struct {
	// Limit in bytes, and what it comes from: "set", "control group", "machine" (a share of Total), "unknown", or "none".
	Limit  int64  `json:"limit"`
	Source string `json:"source"`
	Total  int64  `json:"total,omitempty"`
	// Go is what the Go runtime is told; the rest is code and mapped files.
	Go    int64        `json:"go_limit"`
	Parts []MemoryPart `json:"parts"`
	// Spare is what no part has a use for.
	Spare int64 `json:"spare"`
}

// MemoryPart is one part's share.
type MemoryPart struct {
	// Name as in the label of the metrics.
	Name  string `json:"part"`
	Bytes int64  `json:"bytes"`
	// Set: its size was given.
	Set bool `json:"set"`
}

// MemoryLimitError refuses a memory limit that cannot work, with what is needed.
type MemoryLimitError = membudget.TooSmallError

// Of returns a part's share, 0 of one that is not there.
func (m Memory) Of(name string) int64 {
	for _, p := range m.Parts {
		if p.Name == name {
			return p.Bytes
		}
	}
	return 0
}

// Memory divides the memory limit as the instance will, on this machine. *[MemoryLimitError] when it cannot work.
func (c Config) Memory() (Memory, error) {
	m, _, err := c.memory(machineLimit())
	return m, err
}

// unlimited is the limit of who wants none: more than all parts have a use for.
const unlimited = 1 << 40

func machineLimit() membudget.Default { return membudget.DefaultLimit(os.DirFS("/")) }

// memory divides the limit, and returns c with every part's share in its place.
func (c Config) memory(def membudget.Default) (Memory, Config, error) {
	p := &c.Processor
	started := cmp.Or(max(p.NumStreamThreads, 0), runtime.GOMAXPROCS(0))
	threads := max(started, p.MaxStreamThreads)
	databases := c.databases()
	m := Memory{Limit: c.MemoryLimit, Source: "set"}
	switch {
	case c.MemoryLimit == 0:
		m.Limit, m.Source, m.Total = def.Limit, string(def.Source), def.Total
	case c.MemoryLimit < 0:
		m.Limit, m.Source = unlimited, "none"
	}
	req := c.memoryRequest(m.Limit, threads)
	split, err := membudget.Divide(req)
	if small, ok := errors.AsType[*MemoryLimitError](err); ok && c.MemoryLimit == 0 {
		m.Limit = def.For(small.Need)
		req.Limit = m.Limit
		split, err = membudget.Divide(req)
	}
	if err != nil {
		return Memory{}, c, err
	}
	for _, s := range split.Shares {
		m.Parts = append(m.Parts, MemoryPart{Name: string(s.Part), Bytes: s.Bytes, Set: s.Set})
	}
	m.Go, m.Spare = split.GoLimit(), split.Spare
	if c.MemoryLimit < 0 {
		m.Limit, m.Go, m.Spare = 0, 0, 0
	}
	part := func(field *int64, p membudget.Part, by int64) {
		if *field == 0 {
			*field = split.Of(p) / by
		}
	}
	part(&c.RecentBytes, membudget.Recent, 1)
	part(&c.CacheBytes, membudget.RemoteCache, 1)
	part(&c.SinkBytes, membudget.Sinks, 1)
	part(&c.Limits.Bytes, membudget.Queries, 1)
	part(&c.Engine.BlockCacheBytes, membudget.BlockCache, int64(databases))
	part(&p.UncommittedMaxBytes, membudget.Uncommitted, 1)
	part(&p.CacheMaxBytes, membudget.RecordCache, 1)
	part(&p.RestoreMaxBytes, membudget.Restore, 1)
	part(&p.InputBufferMaxBytes, membudget.Input, 1)
	part(&p.Kafka.FetchBytes, membudget.Fetch, int64(threads))
	part(&p.Kafka.ProduceBytes, membudget.Produce, produceCost*int64(threads))
	if c.MemoryLimit >= 0 && p.MaxStreamThreads == 0 {
		p.MaxStreamThreads = affordable(threads, m.Spare, p.Kafka.FetchBytes, p.Kafka.ProduceBytes)
	}
	if c.Engine.MemtableBytes == 0 {
		c.Engine.MemtableBytes = split.MemtableBytes()
	}
	return m, c, nil
}

const (
	// produceCost: what a record to be produced costs beside its bytes is bounded by the same number once more.
	produceCost = 2
	// rowOverhead is what stores add to keys and values on their way to the engine.
	rowOverhead = 1 << 10
)

func (c Config) databases() int { return cmp.Or(max(c.Engine.Databases, 0), 1) }

// memoryRequest asks for a limit to be divided for so many threads.
func (c Config) memoryRequest(limit int64, threads int) membudget.Request {
	databases := c.databases()
	return membudget.Request{
		Limit: limit, Threads: threads, Sinks: len(c.Sinks), Databases: databases, RecordBytes: recordLimit(c.Processor.Kafka) + rowOverhead,
		Compressed: c.Engine.options().Compressed(), Set: c.given(threads, databases),
	}
}

// given are the parts whose size is set. What is switched off takes nothing.
func (c Config) given(threads, databases int) map[membudget.Part]int64 {
	set := make(map[membudget.Part]int64)
	part := func(p membudget.Part, bytes, by int64) {
		if bytes != 0 {
			set[p] = max(bytes, 0) * by
		}
	}
	p := c.Processor
	t := int64(threads)
	part(membudget.Recent, c.RecentBytes, 1)
	part(membudget.Queries, c.Limits.Bytes, 1)
	part(membudget.RecordCache, p.CacheMaxBytes, 1)
	part(membudget.Restore, p.RestoreMaxBytes, 1)
	part(membudget.Input, p.InputBufferMaxBytes, 1)
	part(membudget.Fetch, p.Kafka.FetchBytes, t)
	part(membudget.Produce, p.Kafka.ProduceBytes, produceCost*t)
	part(membudget.BlockCache, c.Engine.BlockCacheBytes, int64(databases))
	if c.Engine.MemtableBytes > 0 {
		set[membudget.Memtables] = membudget.MemtablesFor(c.Engine.MemtableBytes, databases)
	}
	part(membudget.RemoteCache, c.CacheBytes, 1)
	part(membudget.Sinks, c.SinkBytes, 1)
	if c.CacheTTL < 0 {
		set[membudget.RemoteCache] = 0
	}
	if p.UncommittedMaxBytes > 0 {
		set[membudget.Uncommitted] = p.UncommittedMaxBytes
	}
	return set
}

// validateMemory reports what is wrong with the memory of a configuration as it was given.
func (c Config) validateMemory() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	def := machineLimit()
	if _, _, err := c.memory(def); err != nil {
		reason := strings.TrimPrefix(err.Error(), "memory limit: ")
		if c.MemoryLimit == 0 {
			reason += fmt.Sprintf("; it is not set, so this is a share of the %s's %s", def.Source, membudget.Text(def.Total))
		}
		errs = append(errs, &FieldError{Field: "MemoryLimit", Reason: reason, Err: err})
	}
	if c.MemoryLimit > 0 && c.Processor.UncommittedMaxBytes < 0 {
		bad("Processor.UncommittedMaxBytes", "no bound contradicts MemoryLimit %d", c.MemoryLimit)
	}
	if procs := runtime.GOMAXPROCS(0); c.Engine.Databases < 0 || c.Engine.Databases > procs {
		bad("Engine.Databases", "%d: 1 to GOMAXPROCS, %d", c.Engine.Databases, procs)
	}
	const least = 256 << 10
	if b := c.Engine.MemtableBytes; b != 0 && (b < least || b > 1<<30) {
		bad("Engine.MemtableBytes", "%d: 256 KiB to 1 GiB", b)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{{"RecentBytes", c.RecentBytes}, {"Limits.Bytes", c.Limits.Bytes}} {
		if f.value != 0 && f.value < 1<<20 {
			bad(f.name, "%d: at least 1 MiB", f.value)
		}
	}
	switch least := membudget.LeastSink * int64(len(c.Sinks)); {
	case c.SinkBytes != 0 && len(c.Sinks) == 0:
		bad("SinkBytes", "there are no sinks")
	case c.SinkBytes != 0 && c.SinkBytes < least:
		bad("SinkBytes", "%d: at least %s, for %d sinks", c.SinkBytes, membudget.Text(least), len(c.Sinks))
	}
	if err := c.Engine.options().Validate(); err != nil {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				if f, ok := errors.AsType[*layered.EngineFieldError](e); ok {
					bad("Engine."+f.Field, "%s", f.Reason)
				}
			}
		}
	}
	return errors.Join(errs...)
}
