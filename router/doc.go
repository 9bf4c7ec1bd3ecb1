// Package router decides who answers. It is pure: snapshots of the published metadata, Kafka's default partitioner, and
// a decision that is a function of its arguments. No clock, no network, no goroutine. The remote cache, which needs a
// clock, is the package below it.
package router
