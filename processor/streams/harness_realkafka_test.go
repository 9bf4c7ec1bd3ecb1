//go:build realkafka

package streams_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
)

// realKafka is a broker and the topics of one application on it.
type realKafka struct {
	t       *testing.T
	brokers []string
	client  *kgo.Client
	app     string
	// inputs are all topics that the application reads, those between its tasks among them.
	inputs, outputs []string
	reader          *kgo.Client
	read            map[string]map[int32]int64 // where the reader is in the outputs
}

// runKafka starts a broker that deletes nothing, however old a record says to be: neither by its check of retention, nor by its cleaner,
// which does the same for changelogs that are also compacted.
func runKafka(t *testing.T) []string {
	t.Helper()
	const day = "86400000"
	return kafkatest.Run(t, map[string]string{"log.initial.task.delay.ms": day, "log.cleaner.backoff.ms": day}).Brokers()
}

// newRealKafka creates the topics that a topology has from outside.
func newRealKafka(t *testing.T, brokers []string, app string, topology *processor.Topology, partitions int32) *realKafka {
	t.Helper()
	built, err := topology.Build(app)
	if err != nil {
		t.Fatal(err)
	}
	k := &realKafka{
		t: t, brokers: brokers, app: app, read: make(map[string]map[int32]int64),
		inputs: slices.Concat(built.SourceTopics(), built.RepartitionTopics()), outputs: built.SinkTopics(),
	}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.client.Close)
	admin := kadm.NewClient(k.client)
	keep := map[string]*string{"retention.ms": new("-1")} // a table is restored from a topic that loses nothing
	made, err := admin.CreateTopics(t.Context(), partitions, 1, keep, slices.Concat(built.SourceTopics(), built.GlobalTopics(), k.outputs)...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	from := make(map[string]map[int32]kgo.Offset)
	for _, topic := range k.outputs {
		from[topic], k.read[topic] = make(map[int32]kgo.Offset), make(map[int32]int64)
		for p := range partitions {
			from[topic][p] = kgo.NewOffset().AtStart()
		}
	}
	k.reader, err = kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.reader.Close)
	return k
}

func (k *realKafka) produce(records ...*kgo.Record) {
	k.t.Helper()
	if err := k.client.ProduceSync(k.t.Context(), records...).FirstErr(); err != nil {
		k.t.Fatal(err)
	}
}

// settle returns when everything that the application reads is committed. Committed offsets are asked for before the ends: what a commit
// has written between tasks is in the log by then.
func (k *realKafka) settle(within time.Duration) {
	k.t.Helper()
	k.eventually(within, func() error {
		admin := kadm.NewClient(k.client)
		committed, err := admin.FetchOffsets(k.t.Context(), k.app)
		if err == nil {
			err = committed.Error()
		}
		if err != nil {
			return err
		}
		return k.ends(k.inputs, func(topic string, partition int32) int64 {
			o, _ := committed.Lookup(topic, partition)
			return o.At
		})
	})
}

// ends compares where something is in topics with their ends.
func (k *realKafka) ends(topics []string, at func(topic string, partition int32) int64) error {
	ends, err := kadm.NewClient(k.client).ListEndOffsets(k.t.Context(), topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	ends.Each(func(end kadm.ListedOffset) {
		if have := at(end.Topic, end.Partition); have < end.Offset && err == nil {
			err = fmt.Errorf("%s-%d: %d of %d", end.Topic, end.Partition, have, end.Offset)
		}
	})
	return err
}

// committed returns what is new in the outputs and committed, by topic; it waits until no transaction is open there.
func (k *realKafka) committed(within time.Duration) map[string][]*kgo.Record {
	k.t.Helper()
	news := make(map[string][]*kgo.Record)
	k.eventually(within, func() error {
		err := k.ends(k.outputs, func(topic string, partition int32) int64 { return k.read[topic][partition] })
		if err == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(k.t.Context(), 200*time.Millisecond)
		defer cancel()
		k.reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			k.read[r.Topic][r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				news[r.Topic] = append(news[r.Topic], r)
			}
		})
		return err
	})
	return news
}

// eventually asks until ok.
func (k *realKafka) eventually(within time.Duration, ok func() error) {
	k.t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			k.t.Fatalf("not within %s: %v", within, err)
		}
		pause(5 * time.Millisecond)
	}
}

func pause(d time.Duration) { <-time.NewTimer(d).C }

// running is an instance in this process.
type running struct {
	*statemesh.Instance

	stop func()
}

// start runs an instance until it serves; it ends with the test, or before.
func (k *realKafka) start(cfg statemesh.Config) *running {
	k.t.Helper()
	in, err := statemesh.New(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(k.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	r := &running{Instance: in}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			k.t.Errorf("instance: %v", err)
		}
	}
	k.t.Cleanup(r.stop)
	if err := in.WaitState(k.t.Context(), statemesh.Serving); err != nil {
		k.t.Fatal(err)
	}
	return r
}

// topologyOf is what build makes.
func topologyOf(t *testing.T, build func(b *streams.Builder)) *processor.Topology {
	t.Helper()
	b := streams.NewBuilder()
	build(b)
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return topology
}
