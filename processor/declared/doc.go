// Package declared builds topologies that are declared in a file, without code: streams and tables of topics, columns computed by
// expressions (package expr), filters, joins, windows, aggregates, and topics written to. It is a thin layer over package streams:
// names of nodes, stores and internal topics, times, lateness and null are that package's.
//
// A [Topology] is a list of relations in any order. Each is read from a topic, or made of another relation. [Validate] says all
// that is wrong, each thing with its place in the file; [Build] makes the topology of one that is right. [Describe] says what
// each relation holds, for documents and for what writes it to a database.
//
// A Topology is plain data, and never changed by this package. What is built is as safe for concurrent use as any
// [processor.Topology].
package declared
