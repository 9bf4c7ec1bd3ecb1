// Package streamstest tests topologies without a broker, in virtual time.
//
//	d := streamstest.NewT(t, topology, streamstest.Config{})
//	clicks := streamstest.NewInput(d, "clicks", serde.String(), serde.String())
//	counts := streamstest.NewOutput(d, "counts", serde.String(), serde.Int64())
//
//	clicks.Pipe("ann", "/home", 1000)
//	r, ok := counts.Read()           // ann=1@1000
//
// What runs is what an instance runs: tasks, processors, stores with their layers and record caches, punctuations, flushes, and commits with
// their checkpoints. Only what lies beyond is not Kafka: topics, the group's offsets and transactions are in memory, and stores are
// in the engine in memory. One stream thread has all tasks. Nothing runs but in the calls of the driver, no clock is read and no goroutine
// started, so a test gives the same every time.
//
// # Time
//
// Stream time is that of the records. The wall clock stands still until [Driver.AdvanceWallClock] moves it.
//
// # Commits
//
// By default there is a commit after every record, so what a record makes is there to be read when Pipe returns. That also flushes the record
// caches after every record: to see what they hold back, set Config.CommitInterval, to [Never] for instance, and call [Driver.Commit].
//
// # Partitions
//
// Config.Partitions says how many a topic has. Each task of each partition runs, keys go to partitions by Kafka's default or as the topology
// says, and what is written to a repartition topic, or to a topic that the topology reads, is processed once it is committed.
//
// # Failures
//
// A record that fails, and that no handler takes, ends the application as it ends an instance: with everything before the record committed,
// and nothing of it. The test fails, or [Driver.Try] returns the *processor.TaskError.
package streamstest
