package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Member returns the options of a stream thread's consumer when its producer is a client of its own: [Config.Thread]
// without a transactional id, and with control records kept, so that the offset after a transaction's end is known.
// The records are lent: whoever is done with one calls its Recycle, and keeps nothing of it.
func (c Config) Member(t Thread) ([]kgo.Opt, error) {
	t.TransactionalID = ""
	opts, err := c.Thread(t)
	if err != nil {
		return nil, err
	}
	return append(opts,
		kgo.KeepControlRecords(),
		kgo.WithHooks(newSizer(c.withDefaults().FetchBytes)),
		kgo.WithPools(new(recycler)),
	), nil
}

// Producer returns the options of a stream thread's producer when it is a client of its own. A producer that must be
// given up (an unknown outcome, a fence) is then replaced without leaving the group. Group, Balancer and Topics of t are
// not used.
func (c Config) Producer(t Thread) ([]kgo.Opt, error) {
	c, t = c.withDefaults(), t.withDefaults()
	compression, err := codec(c.Compression)
	if err := errors.Join(c.Validate(), err); err != nil {
		return nil, err
	}
	opts := append(c.Opts(), c.produce(t, compression)...)
	if t.TransactionalID != "" {
		opts = append(opts, kgo.TransactionalID(t.TransactionalID), kgo.TransactionTimeout(t.TransactionTimeout))
	}
	return opts, nil
}

// KeyedProducer returns the options of an idempotent producer outside of any stream thread: records go where Kafka's
// default partitioner puts them.
func (c Config) KeyedProducer() ([]kgo.Opt, error) { return c.Producer(Thread{}) }
