// Package badgerdb is the engine on disk: one Badger database that holds the key spaces of many tasks.
//
// Timestamps are this package's own (Badger's managed mode). D is the timestamp of the newest durable record; reads
// start at D and never see anything newer. A move is
//
//  1. its data, at one timestamp above every other,
//  2. all of that durable: every memtable's log and the directory,
//  3. the record, which makes it true, in one transaction,
//  4. the record durable; D moves.
//
// Whatever is newer than D when a database is opened, or after a move that failed, is undone before anything else is
// written. DESIGN.md has the table of kill points.
package badgerdb
