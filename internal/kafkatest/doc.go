// Package kafkatest starts a real Kafka for tests, from the jars that `make kafka-fetch` puts into .kafka/libs: one KRaft
// node, or a cluster of several that are brokers and controllers at once, on loopback ports of its own, in a directory of
// its own. A node can be stopped, killed, paused and started again on the same directory, which is what tests of recovery
// need.
//
// Tests that use it bear RealKafka in their names and the build tag realkafka; `make test-kafka` runs them. The package
// itself needs no tag and starts nothing by itself.
package kafkatest
