package membudget

import (
	"fmt"
	"slices"
	"strings"
)

// Part of the memory of an instance; a metric label.
type Part string

// The parts.
const (
	// Runtime is the program, its stacks, what all else leaves to the collector, and what is not counted elsewhere.
	Runtime Part = "runtime"
	// Memtables of the databases: three each, the logs they map, what is on its way into them, and the tables that are being
	// built of them.
	Memtables Part = "memtables"
	// BlockCache holds unpacked blocks. Without compression blocks lie in mapped files and need none.
	BlockCache Part = "block_cache"
	// IndexCache would hold the tables' indexes. They lie in mapped files, so it is always 0.
	IndexCache Part = "index_cache"
	// Recent is what is committed and not in the databases yet, and the hot keys of busy tasks.
	Recent Part = "recent"
	// Uncommitted is what was written since the last commit.
	Uncommitted Part = "uncommitted"
	// RecordCache is what is kept back from changelog and downstream.
	RecordCache Part = "record_cache"
	// Restore is what was fetched of changelogs and not applied yet.
	Restore Part = "restore"
	// RemoteCache holds answers of other instances.
	RemoteCache Part = "remote_cache"
	// Queries in flight.
	Queries Part = "queries"
	// Fetch is what the Kafka clients of the stream threads have fetched ahead.
	Fetch Part = "kafka_fetch"
	// Input is what they have handed out and no task has processed.
	Input Part = "input_buffers"
	// Produce is what waits for the brokers.
	Produce Part = "kafka_produce"
	// Sinks is what sinks have fetched of their topics, and the rows that they make of it.
	Sinks Part = "sinks"
)

const mib = 1 << 20

const (
	// program is what an instance takes before it does anything, its code included.
	program = 48 * mib
	// collected is by which part of itself the heap may outgrow what is alive: 1/4.
	collected = 4
	// mostMemtable is beyond what a memtable makes nothing faster that matters.
	mostMemtable = 8 * mib
	// tablesCost is what a database takes per byte of memtable, in tenths: three arenas of 1.3, three logs of 1, writes under
	// way 0.3, and 8 for tables being built. Those of a compaction are built side by side, and Badger keeps the memory of up
	// to eight, each of which grows to what a memtable makes, or to twice the size of tables of the lower levels.
	tablesCost = 152
	// databaseCost is what it takes beside.
	databaseCost = 8 * mib
	// recordShare is which part of a memtable a record may take: 15 in 100, as Badger has it.
	recordShare, recordOf = 15, 100
	// recordSlack covers what the engine adds to a record.
	recordSlack = 4096
	// LeastSink is what a sink works with, and mostSink what it has a use for: twice what its database takes of batches of the usual size by several
	// connections at a time.
	LeastSink = 4 * mib
	mostSink  = 32 * mib
	// mostRecord is the largest record that the engine takes whatever its memtable is.
	mostRecord = mib - recordSlack
)

// Request for a split.
type Request struct {
	// Limit is all there is, in bytes.
	Limit int64
	// Threads is how many stream threads there are, each with clients of its own.
	Threads int
	// Sinks is how many sinks there are, each with a client of its own.
	Sinks int
	// Databases is how many databases are open, each with memtables of its own.
	Databases int
	// RecordBytes is the largest record, key and value, that the databases must take.
	RecordBytes int64
	// Compressed says that blocks in the databases are.
	Compressed bool
	// Set holds parts whose size is given; the others are split anew.
	Set map[Part]int64
}

// Share is one part's.
type Share struct {
	Part  Part
	Bytes int64
	// Set: it was given.
	Set bool
}

// Split is a limit divided.
type Split struct {
	Limit int64
	// Shares of all parts, in the order of the constants above.
	Shares []Share
	// Spare is what no part has a use for.
	Spare int64
	// Mapped is the part of it that lies outside of the Go heap: code and mapped logs.
	Mapped int64
	// databases is how many there are.
	databases int64
}

// Of returns a part's share.
func (s Split) Of(p Part) int64 {
	for _, sh := range s.Shares {
		if sh.Part == p {
			return sh.Bytes
		}
	}
	return 0
}

// GoLimit is what remains for the Go runtime's own limit.
func (s Split) GoLimit() int64 { return max(s.Limit-s.Mapped, program) }

// GoLimitBeside is what remains for the Go runtime's limit of all that the split leaves to it, planned, and of limit, while so
// much of files is in memory as mapped says: tables are mapped as they are read, and nobody knows before how many. The system
// takes such pages back when it needs them, so they get no more than a quarter of what was planned: a limit below what is live
// would have the collector run all the time.
func GoLimitBeside(limit, planned, mapped int64) int64 {
	const lag = 32 // of the limit, for what comes until one looks again
	return min(planned, max(limit-limit/lag-mapped, planned/4*3))
}

// MemtableBytes is the size of one memtable: the inverse of [MemtablesFor].
func (s Split) MemtableBytes() int64 {
	return (max(s.Of(Memtables)/s.databases-databaseCost, 0)*10 + tablesCost - 1) / tablesCost
}

// Cost is what so many bytes of a part take of the limit: with what is left to the collector beside them.
func Cost(bytes int64) int64 { return bytes + bytes/collected }

// MemtablesFor is what the databases take whose memtables have a size.
func MemtablesFor(memtable int64, databases int) int64 {
	return (memtable*tablesCost/10 + databaseCost) * int64(databases)
}

// MemtableFor is the smallest memtable of a database that takes records of a size.
func MemtableFor(record int64) int64 {
	record = min(record, mostRecord)
	return max((record+recordSlack)*recordOf/recordShare+1, mib)
}

// TooSmallError refuses a limit.
type TooSmallError struct {
	Limit, Need int64
	// Least has what each part needs at least, or was given.
	Least []Share
}

func (e *TooSmallError) Error() string {
	var parts []string
	for _, s := range e.Least {
		if s.Bytes > 0 {
			given := ""
			if s.Set {
				given = " as set"
			}
			parts = append(parts, fmt.Sprintf("%s %s%s", s.Part, Text(s.Bytes), given))
		}
	}
	return fmt.Sprintf("memory limit: %s, need %s (%s)", Text(e.Limit), Text(e.Need), strings.Join(parts, ", "))
}

// need is what a part makes of memory: it works with least, takes more by weight, and has no use for more than most.
type need struct {
	part                Part
	least, weight, most int64
}

func needs(r Request) []need {
	t, d := int64(max(r.Threads, 1)), int64(max(r.Databases, 1))
	memtable := MemtableFor(r.RecordBytes)
	all := []need{
		{Memtables, MemtablesFor(memtable, int(d)), 4, MemtablesFor(max(memtable, mostMemtable), int(d))},
		{BlockCache, 0, 0, 0},
		{IndexCache, 0, 0, 0},
		{Recent, 8 * mib, 8, 256 * mib},
		{Uncommitted, 4 * mib, 3, 64 * mib},
		{RecordCache, mib, 1, 10 * mib},
		{Restore, 4 * mib, 3, 64 * mib},
		{RemoteCache, mib, 2, 32 * mib},
		{Queries, 8 * mib, 2, 64 * mib},
		{Fetch, 2 * mib * t, 3, 16 * mib * t},
		{Input, 4 * mib, 2, 64 * mib},
		{Produce, 4 * mib * t, 2, 32 * mib * t},
		{Sinks, LeastSink * int64(r.Sinks), 2, mostSink * int64(r.Sinks)},
	}
	if r.Compressed {
		all[1] = need{BlockCache, 4 * mib * d, 4, 64 * mib * d}
	}
	return all
}

// Divide splits a limit: each part gets what it needs at least or was given, and the rest by weight, none more than it has
// a use for. *TooSmallError when that does not fit.
func Divide(r Request) (Split, error) {
	all := needs(r)
	shares := make([]Share, len(all))
	var total int64
	for i, n := range all {
		shares[i] = Share{Part: n.part, Bytes: n.least}
		if given, ok := r.Set[n.part]; ok {
			shares[i] = Share{Part: n.part, Bytes: given, Set: true}
		}
		total += shares[i].Bytes
	}
	if need := program + total + total/collected; need > r.Limit {
		least := append([]Share{{Part: Runtime, Bytes: program + total/collected}}, shares...)
		return Split{}, &TooSmallError{Limit: r.Limit, Need: need, Least: least}
	}
	free := (r.Limit-program)/(collected+1)*collected - total
	fill(all, shares, &free)
	used := int64(0)
	for _, s := range shares {
		used += s.Bytes
	}
	runtime := program + used/collected
	s := Split{Limit: r.Limit, Shares: slices.Insert(shares, 0, Share{Part: Runtime, Bytes: runtime}), databases: int64(max(r.Databases, 1))}
	s.Spare = r.Limit - runtime - used
	const code, logs = 24 * mib, 3
	s.Mapped = code + logs*s.databases*s.MemtableBytes()
	return s, nil
}

// fill hands out what is free by weight until every part has what it has a use for.
func fill(all []need, shares []Share, free *int64) {
	for {
		var weights int64
		for i, n := range all {
			if !shares[i].Set && shares[i].Bytes < n.most {
				weights += n.weight
			}
		}
		if weights == 0 || *free < weights {
			return
		}
		unit := *free / weights
		for i, n := range all {
			if !shares[i].Set && shares[i].Bytes < n.most {
				more := min(unit*n.weight, n.most-shares[i].Bytes)
				shares[i].Bytes += more
				*free -= more
			}
		}
	}
}

// Text is a size as a person reads it.
func Text(bytes int64) string {
	switch {
	case bytes >= 10*mib || bytes%mib == 0 && bytes > 0:
		return fmt.Sprintf("%dMiB", (bytes+mib-1)/mib)
	case bytes >= 10<<10:
		return fmt.Sprintf("%dKiB", (bytes+1023)>>10)
	default:
		return fmt.Sprintf("%d bytes", bytes)
	}
}
