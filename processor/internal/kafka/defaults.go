package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// WithDefaults returns c with every zero field replaced by what it means, for showing it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// KeyedProducer returns the options of an idempotent producer outside of any stream thread: records go where Kafka's
// default partitioner puts them.
func (c Config) KeyedProducer() ([]kgo.Opt, error) { return c.Producer(Thread{}) }
