package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/fakekafka"
)

const topic = "words"

// prepare starts a broker when none is given, and produces the words. done ends what it started.
func prepare(ctx context.Context, brokers, words []string) (_ []string, done func(), err error) {
	done = func() {}
	if len(brokers) == 0 {
		b, err := fakekafka.New(kfake.NumBrokers(1))
		if err != nil {
			return nil, nil, err
		}
		brokers, done = b.ListenAddrs(), b.Close
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		done()
		return nil, nil, err
	}
	defer cl.Close()
	records := make([]*kgo.Record, len(words))
	for i, w := range words {
		records[i] = &kgo.Record{Topic: topic, Value: []byte(w)}
	}
	if _, err = kadm.NewClient(cl).CreateTopic(ctx, 2, -1, nil, topic); err == nil {
		err = cl.ProduceSync(ctx, records...).FirstErr()
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return brokers, done, nil
}
