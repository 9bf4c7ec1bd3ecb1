package main

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// peerTopology is one of Main.java's, in the DSL.
type peerTopology struct {
	name, goal string
	build      func(b *streams.Builder, records *streams.Stream[string, []byte], out string)
}

func peerTopologies() []peerTopology {
	return []peerTopology{
		{"stateless", ">= 5", func(_ *streams.Builder, records *streams.Stream[string, []byte], out string) {
			even := records.Filter(func(_ string, v []byte) bool { return v[0]%2 == 0 })
			streams.MapValues(even, func(v []byte) []byte { return v[:len(v)/2] }).To(out)
		}},
		{"count", ">= 5", func(_ *streams.Builder, records *streams.Stream[string, []byte], _ string) {
			streams.Count(streams.GroupByKey(records), "counts")
		}},
		{"count-uncached", ">= 5", func(_ *streams.Builder, records *streams.Stream[string, []byte], _ string) {
			streams.Count(streams.GroupByKey(records), "counts", streams.CachingDisabled())
		}},
		{"windowed", ">= 5", func(_ *streams.Builder, records *streams.Stream[string, []byte], _ string) {
			streams.CountWindows(streams.WindowedBy(streams.GroupByKey(records), windows.Tumbling(time.Hour, 0)), "counts")
		}},
		{"join", ">= 4", func(b *streams.Builder, records *streams.Stream[string, []byte], out string) {
			right := streams.TableFrom(b, peersTable, serde.String(), serde.Bytes(), "right")
			streams.JoinTable(records, right, func(_ string, a, b []byte) []byte { return slices.Concat(a, b) }).To(out)
		}},
	}
}

// servePeer runs one of them until standard input ends.
func (b *bench) servePeer(ctx context.Context, app, topology, out, guarantee string, stdin io.Reader) error {
	builder := streams.NewBuilder()
	records := streams.From(builder, peersIn, serde.String(), serde.Bytes())
	for _, t := range peerTopologies() {
		if t.name == topology {
			t.build(builder, records, out)
		}
	}
	built, err := builder.Build()
	if err != nil {
		return err
	}
	return b.serveUntil(ctx, statemesh.Config{
		Processor: processor.Config{
			ApplicationID: app, Kafka: processor.KafkaConfig{Brokers: b.brokers}, Guarantee: processor.Guarantee(guarantee), NumStreamThreads: 1,
			CommitInterval: peerInterval(guarantee),
		},
		Topology: built, StateDir: b.dir, Listen: b.listen,
	}, stdin)
}
