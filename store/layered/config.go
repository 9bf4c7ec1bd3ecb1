package layered

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
)

// Config of an instance's stores.
type Config struct {
	// Dir is the application's state directory (<state.dir>/<application.id>), locked while open. Required, but for InMemory.
	Dir string
	// InMemory keeps every store in the engine in memory, as if it were declared so: nothing is on a disk, and nothing outlives the
	// Stores. For tests of what uses them.
	InMemory bool
	// MoveBytes is how many bytes of recent commits a task may hold before they move to the engine, whatever their age.
	// Default 32 MiB, some 150,000 small keys: while a task's hot keys fit, they are read and written in memory and move
	// once in MoveInterval. RecentBytes lowers it when all tasks together hold much.
	MoveBytes int64
	// MoveInterval is how long a recent commit may wait before it moves. Default 5s: a restart after a crash replays at
	// most this much of the changelog, and deduplicating over many commits is what makes moves cheap.
	MoveInterval time.Duration
	// RecentBytes bounds the recent commits of all open tasks together. Default 256 MiB. While they take half of it, each
	// task may have an equal part of that half; at all of it writers wait for the engine.
	RecentBytes int64
	// MaxRecordBytes bounds key and value together of a record in a logged store. Default 1,000,000: a broker takes
	// 1,048,588 bytes unless told otherwise (message.max.bytes) and a batch has a header. A store's max.message.bytes in
	// ChangelogConfig takes its place.
	MaxRecordBytes int64
	// Databases is among how many databases new copies are spread. Default 1, at most GOMAXPROCS: each has memory and
	// goroutines of its own. Copies stay where they were begun.
	Databases int
	// MemTableBytes is the size of a memtable of a database, of which there are up to 3 each in memory. Default 8 MiB.
	// A record may have at most about a tenth of it.
	MemTableBytes int64
	// Engine is how the databases lay out what they write, for all stores in them.
	Engine EngineOptions
	// Between, if it is not nil, puts something between the stores and a database that was opened: a slow or a full disk, in tests.
	Between func(engine.Engine) engine.Engine
	// MinFreeBytes of disk space must remain, or the databases take no more moves. Default 128 MiB: the databases map
	// their files, and a process that writes to a mapped page for which there is no space is killed.
	MinFreeBytes int64
	// DropWait is how long the reclaiming of a dropped copy waits for its readers. Default 10s.
	DropWait time.Duration
	// IteratorMaxAge is how long a query may keep a snapshot, or an iterator of one, open; then it is closed, its reads end
	// with store.ErrOpenTooLong, and who opened it is logged. Default 5m; it may take a fifth longer. Negative: no limit.
	// What is open keeps versions in memory and on disk that nobody else needs.
	IteratorMaxAge time.Duration
	// Registerer takes the metrics; nil for none.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// EngineOptions are those of the databases.
type EngineOptions = badgerdb.Tuning

// EngineFieldError is one thing that is wrong with them.
type EngineFieldError = badgerdb.FieldError

func (c Config) withDefaults() Config {
	c.MoveBytes = cmp.Or(c.MoveBytes, 32<<20)
	c.MoveInterval = cmp.Or(c.MoveInterval, 5*time.Second)
	c.RecentBytes = cmp.Or(c.RecentBytes, 256<<20)
	c.MaxRecordBytes = cmp.Or(c.MaxRecordBytes, 1_000_000)
	c.Databases = cmp.Or(c.Databases, 1)
	c.MemTableBytes = cmp.Or(c.MemTableBytes, 8<<20)
	c.MinFreeBytes = cmp.Or(c.MinFreeBytes, 128<<20)
	c.DropWait = cmp.Or(c.DropWait, 10*time.Second)
	c.IteratorMaxAge = cmp.Or(c.IteratorMaxAge, 5*time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Between == nil {
		c.Between = func(e engine.Engine) engine.Engine { return e }
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" && !c.InMemory {
		errs = append(errs, errors.New("state directory: not set"))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MoveBytes", c.MoveBytes},
		{"MoveInterval", int64(c.MoveInterval)},
		{"RecentBytes", c.RecentBytes},
		{"MaxRecordBytes", c.MaxRecordBytes},
		{"MemTableBytes", c.MemTableBytes},
		{"MinFreeBytes", c.MinFreeBytes},
		{"DropWait", int64(c.DropWait)},
		{"Databases", int64(c.Databases)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", f.name, f.value))
		}
	}
	if procs := runtime.GOMAXPROCS(0); c.Databases > procs {
		errs = append(errs, fmt.Errorf("number of databases: %d is above GOMAXPROCS, %d", c.Databases, procs))
	}
	errs = append(errs, c.Engine.Validate())
	return errors.Join(errs...)
}
