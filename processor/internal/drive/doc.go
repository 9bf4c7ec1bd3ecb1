// Package drive is a Kafka that is no broker: topics in memory, with one producer and its transactions, for the driver that tests of
// topologies use. It belongs to one goroutine.
package drive
