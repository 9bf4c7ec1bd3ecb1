package statemesh_test

import (
	"fmt"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// dedup lets the first record of each key through, and tells once a minute how many keys it has seen.
type dedup struct {
	ctx  *processor.Context
	seen store.KeyValue
}

func (d *dedup) Init(ctx *processor.Context) (err error) {
	d.ctx = ctx
	if d.seen, err = ctx.Store("seen"); err != nil {
		return err
	}
	_, err = ctx.Schedule(time.Minute, processor.WallClockTime, func(now int64) error {
		n, err := d.seen.ApproximateCount()
		if err != nil {
			return err
		}
		return ctx.ForwardTo("counts", processor.Record{Key: []byte("seen"), Value: fmt.Append(nil, n), Timestamp: now})
	})
	return err
}

func (d *dedup) Process(r *processor.Record) error {
	_, was, err := d.seen.PutIfAbsent(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
	if err != nil || was {
		return err
	}
	return d.ctx.ForwardTo("firsts", *r)
}

func (d *dedup) Close() error { return nil }

// A topology with a processor of one's own, a store that can be asked, and two topics that are written.
func ExampleNew_topology() {
	topology := processor.NewTopology().
		AddSource("events", processor.SourceOptions{}, "events").
		AddProcessor("dedup", func() processor.Processor { return &dedup{} }, "events").
		AddStateStore(store.Spec{Name: "seen", Kind: store.KindTimestampedKeyValue}, "dedup").
		AddSink("firsts", processor.SinkOptions{}, "first-events", "dedup").
		AddSink("counts", processor.SinkOptions{}, "event-counts", "dedup")

	_, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{ApplicationID: "dedup", Kafka: processor.KafkaConfig{Brokers: []string{"127.0.0.1:9092"}}},
		Topology:  topology,
		StateDir:  "/var/lib/dedup",
	})
	fmt.Println(err)
	// Output: <nil>
}
