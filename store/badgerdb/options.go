package badgerdb

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/statemesh/statemesh/store/engine"
)

// Options of a database.
type Options struct {
	// Dir is the database's own directory; it is created. Required. The caller has locked what is above it.
	Dir string
	// MemTableBytes is the size of a memtable, of which there are up to 3. Default 8 MiB.
	MemTableBytes int64
	Tuning        Tuning
	// MinFreeBytes of disk space must remain for a move to begin. Default 128 MiB.
	MinFreeBytes int64
	// DropWait is how long readers may keep a dropped key space from being reclaimed. Default 10s.
	DropWait time.Duration
	// CloseWait bounds Close: Badger retries some failures for ever. Default 30s.
	CloseWait time.Duration
	Logger    *slog.Logger
	Listener  Listener

	// sweepRows is up to how many rows are deleted one by one.
	sweepRows int
	// hook is called after each step that a crash may follow; tests crash there.
	hook func(step) error
}

// Listener hears what an operator should count. Nil funcs are not called; they must not block.
type Listener struct {
	// Undone fires when the leftovers of a move were undone.
	Undone func(keys int)
	// Compacted fires when everything was compacted because so many rows had been deleted.
	Compacted func(deleted int64)
	// Quarantined fires when a corrupt directory was moved aside, with its new name.
	Quarantined func(dir string)
}

// Limits says which records a database with these options takes.
func (o Options) Limits() engine.Limits {
	o = o.withDefaults()
	return engine.Limits{
		KeyBytes:    maxKey - prefixBytes - 16,
		RecordBytes: min(o.MemTableBytes*batchPart/100, maxInline) - batchSlack,
		Setting:     "MemTableBytes",
	}
}

func (o Options) withDefaults() Options {
	o.MemTableBytes = cmp.Or(o.MemTableBytes, 8<<20)
	o.MinFreeBytes = cmp.Or(o.MinFreeBytes, 128<<20)
	o.DropWait = cmp.Or(o.DropWait, 10*time.Second)
	o.CloseWait = cmp.Or(o.CloseWait, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Listener.Undone == nil {
		o.Listener.Undone = func(int) {}
	}
	if o.Listener.Compacted == nil {
		o.Listener.Compacted = func(int64) {}
	}
	if o.Listener.Quarantined == nil {
		o.Listener.Quarantined = func(string) {}
	}
	o.sweepRows = cmp.Or(o.sweepRows, maxSweepRows)
	if o.hook == nil {
		o.hook = func(step) error { return nil }
	}
	return o
}

// Badger's own limits.
const (
	// batchPart is the part of a memtable that one transaction may fill, in percent.
	batchPart = 15
	// maxInline is above every value that may be stored inline.
	maxInline = 1 << 20
	maxKey    = 65000
	// mostBaseTable is the size of the tables of the first levels, unless a memtable is small: what a table is built in is twice
	// as large, and has to be in proportion to the memtables whatever their size.
	mostBaseTable = 2 << 20
	// batchSlack covers what Badger adds to a record in a transaction, keys of ours included.
	batchSlack = 4 << 10
)

// badger translates the options. Values stay inline, so there is nothing in the value log that could be lost apart from
// its key or resurrected by its collection. Without encryption the indexes of tables lie in the mapped files and need no cache.
func (o Options) badger(log *logger) badger.Options {
	return o.Tuning.apply(badger.DefaultOptions(o.Dir)).
		WithLogger(log).
		WithMemTableSize(o.MemTableBytes).
		WithNumMemtables(2).
		WithBaseTableSize(min(o.MemTableBytes/4, mostBaseTable)).
		WithValueThreshold(min(o.MemTableBytes*batchPart/100, maxInline)).
		WithValueLogFileSize(2 << 20).
		WithIndexCacheSize(0).
		WithNumCompactors(2).
		WithNumGoroutines(1).
		WithNumVersionsToKeep(1).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithCompactL0OnClose(false).
		// Every block is checked when a table is opened: a flipped bit is found before it answers anything.
		WithChecksumVerificationMode(options.OnTableRead)
}
