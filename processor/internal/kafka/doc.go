// Package kafka turns one description of a Kafka cluster into the options of every client that statemesh opens.
//
// Each role has a function: [Config.Direct] sends raw requests (restore), [Config.Admin] describes and creates topics,
// [Config.Member] and [Config.Producer] are the two clients of a stream thread. Every option whose default matters is
// stated, so that a new version of the client library changes nothing unseen, and buffers are bounded, since the
// library's own defaults (50 MiB per broker fetched ahead, unlimited bytes to produce) exceed a memory budget.
//
// The package holds no client and starts nothing: who calls kgo.NewClient closes what it returns.
package kafka
