// Package trialbroker runs a small Kafka-compatible broker inside the process, for a first run and for tests without a
// Kafka. It is franz-go's kfake with limits and defaults set, one node on one address, in memory or with a data
// directory. It is not a Kafka: it replicates nothing, fences producers more softly, compacts in its own way and keeps
// everything in one goroutine. Nothing but the trial commands of the binary and tests may use it.
package trialbroker
