// Package sink reads committed changes out of topics (a table's changelog, or a topic that a stream is written to) and hands them to a
// [Target], an external database that keeps the offset beside the rows, in one transaction: after any kill exactly the committed
// changes are there, none twice, none lost. It never runs inside of the processing loop: a database that is slow or away delays
// nothing but itself.
//
// Readers of all instances share a sink's partitions as a consumer group, which spreads the work and proves nothing: what
// keeps two of them from writing one partition is the offset in the database, which each transaction moves from where it read it.
package sink
