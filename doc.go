// Package statemesh is one instance of an application that turns Kafka topics into state and answers queries for any
// key of it, also of keys that other instances own.
//
//	node, err := statemesh.New(statemesh.Config{ ... })
//	...
//	err = node.Run(ctx)   // until ctx ends; leaves the group and closes the stores before it returns
//
// New starts nothing. Run owns every goroutine and the order in which they stop: first the reads end, then the
// group is left, then the stores are closed. Any number of goroutines may wait for a state with WaitState and read with
// Get, GetMany and Scan while Run runs.
package statemesh
