// Package fakekafka is where franz-go's kfake starts: a Kafka inside the process for trials, examples and tests. It mends what every
// user of kfake would run into. It is neither durable in a crash nor a judge of fencing and compaction: see internal/kafkatest for a
// real broker.
package fakekafka
