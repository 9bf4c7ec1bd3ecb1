// Command clickstream is a case study: user behaviour on a web site, declared in mesh.yaml without code. It brings its own broker and
// the requests of a real day, runs two instances, asks each of them for every table, and compares the answers with a plain pass over
// the requests. It ends with an error if one differs.
//
//	go run ./examples/clickstream
//	go run ./examples/clickstream -brokers localhost:9092 -keep
//	go run ./examples/clickstream -postgres postgres://localhost/postgres
package main
