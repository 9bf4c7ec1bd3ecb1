package streams_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// TestWordCountNames: operators, stores and internal topics have the names that upstream gives them by position.
func TestWordCountNames(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	lines := streams.From(b, "lines", serde.Bytes(), serde.String())
	words := streams.MapValues(lines, func(line string) string { return line })
	counts := streams.Count(streams.GroupBy(words, func(_ []byte, w string) string { return w }), "counts-store")
	streams.ToStream(counts).To("counts")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-MAPVALUES-0000000001
    Processor: KSTREAM-MAPVALUES-0000000001 (stores: [])
      --> KSTREAM-KEY-SELECT-0000000002
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-KEY-SELECT-0000000002 (stores: [])
      --> counts-store-repartition-sink
      <-- KSTREAM-MAPVALUES-0000000001
    Sink: counts-store-repartition-sink (topic: app-counts-store-repartition)
      <-- KSTREAM-KEY-SELECT-0000000002

   Sub-topology: 1
    Source: counts-store-repartition-source (topics: [app-counts-store-repartition])
      --> KSTREAM-AGGREGATE-0000000003
    Processor: KSTREAM-AGGREGATE-0000000003 (stores: [counts-store])
      --> KTABLE-TOSTREAM-0000000007
      <-- counts-store-repartition-source
    Processor: KTABLE-TOSTREAM-0000000007 (stores: [])
      --> KSTREAM-SINK-0000000008
      <-- KSTREAM-AGGREGATE-0000000003
    Sink: KSTREAM-SINK-0000000008 (topic: counts)
      <-- KTABLE-TOSTREAM-0000000007

`
	if d := cmp.Diff(want, built.Describe()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestAggregationNames: positions are used up as upstream does, which has other nodes: SuppressScenarioTest's topology, and one of windows.
func TestAggregationNames(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	rows := streams.TableFrom(b, "input", serde.String(), serde.String(), "")
	counts := streams.CountTable(streams.GroupTable(rows, func(k, v string) (string, string) { return v, k }), "")
	streams.ToStream(counts.Suppress(streams.UntilTimeLimit(0, streams.Buffer{}))).To("held")
	words := streams.From(b, "words", serde.String(), serde.String())
	w := streams.WindowedBy(streams.GroupByKey(words), windows.Tumbling(time.Second, 0))
	perSecond := streams.CountWindows(w, "")
	streams.ToStream(perSecond.Suppress(streams.UntilWindowCloses(streams.Buffer{}))).To("final")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000001 (topics: [input])
      --> KTABLE-SOURCE-0000000002
    Processor: KTABLE-SOURCE-0000000002 (stores: [input-STATE-STORE-0000000000])
      --> KTABLE-SELECT-0000000003
      <-- KSTREAM-SOURCE-0000000001
    Processor: KTABLE-SELECT-0000000003 (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KTABLE-SOURCE-0000000002
    Sink: KSTREAM-SINK-0000000005 (topic: app-KTABLE-AGGREGATE-STATE-STORE-0000000004-repartition)
      <-- KTABLE-SELECT-0000000003

   Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000006 (topics: [app-KTABLE-AGGREGATE-STATE-STORE-0000000004-repartition])
      --> KTABLE-AGGREGATE-0000000007
    Processor: KTABLE-AGGREGATE-0000000007 (stores: [KTABLE-AGGREGATE-STATE-STORE-0000000004])
      --> KTABLE-SUPPRESS-0000000008
      <-- KSTREAM-SOURCE-0000000006
    Processor: KTABLE-SUPPRESS-0000000008 (stores: [KTABLE-SUPPRESS-STATE-STORE-0000000009])
      --> KTABLE-TOSTREAM-0000000010
      <-- KTABLE-AGGREGATE-0000000007
    Processor: KTABLE-TOSTREAM-0000000010 (stores: [])
      --> KSTREAM-SINK-0000000011
      <-- KTABLE-SUPPRESS-0000000008
    Sink: KSTREAM-SINK-0000000011 (topic: held)
      <-- KTABLE-TOSTREAM-0000000010

   Sub-topology: 2
    Source: KSTREAM-SOURCE-0000000012 (topics: [words])
      --> KSTREAM-AGGREGATE-0000000014
    Processor: KSTREAM-AGGREGATE-0000000014 (stores: [KSTREAM-AGGREGATE-STATE-STORE-0000000013])
      --> KTABLE-SUPPRESS-0000000015
      <-- KSTREAM-SOURCE-0000000012
    Processor: KTABLE-SUPPRESS-0000000015 (stores: [KTABLE-SUPPRESS-0000000015-store])
      --> KTABLE-TOSTREAM-0000000016
      <-- KSTREAM-AGGREGATE-0000000014
    Processor: KTABLE-TOSTREAM-0000000016 (stores: [])
      --> KSTREAM-SINK-0000000017
      <-- KTABLE-SUPPRESS-0000000015
    Sink: KSTREAM-SINK-0000000017 (topic: final)
      <-- KTABLE-TOSTREAM-0000000016

`
	if d := cmp.Diff(want, built.Describe()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if n := len(b.Warnings()); n != 5 { // of each store, that of the source table among them, since the grouping needs it
		t.Errorf("warnings %v", b.Warnings())
	}
}
