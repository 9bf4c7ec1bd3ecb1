package processor

import "github.com/statemesh/statemesh/processor/internal/kafka"

// KafkaSASL authenticates at the brokers; see KafkaConfig.SASL.
type KafkaSASL = kafka.SASL

// KafkaTLSFiles names the PEM files that KafkaConfig.TLS is made of; see its method Load.
type KafkaTLSFiles = kafka.TLSFiles
