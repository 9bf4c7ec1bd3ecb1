package processor

import "fmt"

// DeserializationError is what a processor returns from Process for a record it cannot decode. The deserialization
// exception handler decides: fail the task (default, as upstream), continue (drop, counted by Reason), or send the
// original record to the dead letter queue.
type DeserializationError struct {
	// Reason is a short constant, a metric label: "invalid json", "missing column".
	Reason string
	Err    error
}

func (e *DeserializationError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

func (e *DeserializationError) Unwrap() error { return e.Err }

// ConfigError is one thing that is wrong with a [Config].
type ConfigError struct {
	// Field is the path of the field, such as "CommitInterval" or "Kafka.Brokers".
	Field  string
	Reason string
}

func (e *ConfigError) Error() string { return "config " + e.Field + ": " + e.Reason }
