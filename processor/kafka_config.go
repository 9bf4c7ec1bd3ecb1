package processor

import "github.com/statemesh/statemesh/processor/internal/kafka"

// KafkaSASL authenticates at the brokers; see KafkaConfig.SASL.
type KafkaSASL = kafka.SASL

// KafkaTLSFiles names the PEM files that KafkaConfig.TLS is made of; see its method Load.
type KafkaTLSFiles = kafka.TLSFiles

// WithDefaults returns c with every zero field replaced by what it means. [New] does the same; this is for showing it.
func (c Config) WithDefaults() Config {
	c = c.withDefaults()
	c.Kafka = c.Kafka.WithDefaults()
	return c
}
