// Package truth runs real data through a broker, views without code, instances and their network API, and compares every row that a
// client reads with answers that SQLite computed from the same data: counts, statistics, latest values, tumbling and hopping windows,
// sessions. Clicks run
// on the embedded broker with every test; flights, which take a minute or two, and clicks on a real Kafka (build tag realkafka).
//
// The answers in testdata are those of examples/flights and examples/clicks, one line per row, gzip. Two of the set need joins and
// are not here.
package truth
