package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (b *bench) create(ctx context.Context, topic string, partitions int32, configs map[string]*string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, configs, topic)
	if err != nil {
		return err
	}
	return resp.Err
}

// load fills a topic with n records, the i-th with the key that pick chooses, in one go and not transactional.
func (b *bench) load(ctx context.Context, topic string, n int, record func(i int) *kgo.Record) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	var failed error
	for i := range n {
		r := record(i)
		r.Topic = topic
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return failed
}

// input is the Kafka Streams baseline's: keys of 16 bytes, uniform, values of 100.
func (b *bench) input(int) *kgo.Record {
	return &kgo.Record{Key: key(rand.IntN(b.keys)), Value: value(0)}
}

// counted is a changelog record of a count: 8 bytes.
func counted(k, n int) *kgo.Record {
	return &kgo.Record{Key: key(k), Value: binary.BigEndian.AppendUint64(nil, uint64(n))}
}

// drain reads n records of a topic with franz-go alone and does nothing with them: the floor of everything that reads.
func (b *bench) drain(ctx context.Context, topic string, n int) (cpu time.Duration, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	from := used()
	for seen := 0; seen < n; {
		fetches := cl.PollRecords(ctx, 10_000)
		if err := fetches.Err0(); err != nil {
			return 0, fmt.Errorf("drain %s after %d of %d: %w", topic, seen, n, err)
		}
		seen += fetches.NumRecords()
	}
	_, cpu = used().since(from)
	return cpu, nil
}

// keyed is the i-th record of a table: each key once.
func keyed(i int) *kgo.Record { return &kgo.Record{Key: key(i), Value: value(i)} }
