// Package changes reads the committed records of a topic for somebody who keeps the offsets himself, such as a database that has them
// beside its rows.
//
// [Run] joins a consumer group, which spreads the topic's partitions over those who run it, and commits nothing to it. For each partition
// that it is given it asks the [Handler] where to read on ([Handler.Begin]), and hands it batches from there, one after the other
// ([Handler.Apply]). What Apply returns is where to read on: the end of the batch, or wherever the offset stands that the handler found, when
// somebody else has moved it.
//
// Reads are READ_COMMITTED. An offset that the log does not have, a topic that was made anew, a log that was cut: none is passed over. The
// partition is begun again, with what the brokers say of the log now ([Log]), and the handler decides; what no look at the log can
// cure is an error of Run.
package changes
