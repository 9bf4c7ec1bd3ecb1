// Package processor turns records into state: topologies, stream threads, tasks, changelogs, restore, commits and the
// assignment of tasks to instances. It is the only home of Kafka.
package processor
