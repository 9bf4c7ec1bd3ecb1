// Bench prints the figures of this system, each beside its raw floor measured in the same run: what the same work costs
// with the libraries alone. Ratios are what count; the machines are shared and noisy.
//
//	make bench                     all, on a real Kafka if make kafka-fetch has fetched one, else on the trial broker
//	go run ./bench -only local     one part: local, get, store, growth, remote, count, restore, snapshot, instance, empty, memory,
//	                               failover, scale
//	go run ./bench -records 500000 fewer records
//
// The part "instance" starts this program once more, as an instance in a process of its own, whose memory and idle CPU are
// its alone. So does "empty": 500 tasks with nothing in them; and "memory": 200 tasks of four kinds of views under a limit of 512 MiB, read and written all the time, once from
// nothing and once restoring.
//
// CPU seconds are those of this process, user and system; brokers are processes of their own.
package main
