package streams_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// twoCounts groups one stream twice behind an operator that changes keys, once behind a filter.
func twoCounts(b *streams.Builder) {
	byValue := streams.SelectKey(lines(b), func(_, v string) string { return v })
	all := streams.Count(streams.GroupByKey(byValue), "all")
	long := streams.Count(streams.GroupByKey(byValue.Filter(func(_, v string) bool { return len(v) > 1 })), "long")
	streams.ToStream(all).To("all-counts")
	streams.ToStream(long).To("long-counts")
}

// TestMergeRepartitions: one topic in the place of two, by the name of the first, with what lay between behind it; the same results.
func TestMergeRepartitions(t *testing.T) {
	t.Parallel()
	results := func(b *streams.Builder) (all, long []string) {
		d := started(t, b, streamstest.Config{Partitions: map[string]int32{"lines": 3}})
		pipeAll(t, d, "lines", "1=a@1", "2=bb@2", "3=a@3", "4=bb@4", "5=bb@5", "6@6")
		read := func(topic string) []string {
			return streamstest.NewOutput(d, topic, serde.String(), serde.Int64()).ReadStrings()
		}
		return read("all-counts"), read("long-counts")
	}
	apart, together := streams.NewBuilder(), streams.NewBuilder().MergeRepartitions()
	twoCounts(apart)
	twoCounts(together)
	if got := describe(t, apart); !strings.Contains(got, "app-all-repartition") || !strings.Contains(got, "app-long-repartition") {
		t.Errorf("by default there are two topics:\n%s", got)
	}
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-KEY-SELECT-0000000001
    Processor: KSTREAM-KEY-SELECT-0000000001 (stores: [])
      --> all-repartition-sink
      <-- KSTREAM-SOURCE-0000000000
    Sink: all-repartition-sink (topic: app-all-repartition)
      <-- KSTREAM-KEY-SELECT-0000000001

   Sub-topology: 1
    Source: all-repartition-source (topics: [app-all-repartition])
      --> KSTREAM-AGGREGATE-0000000002, KSTREAM-FILTER-0000000006
    Processor: KSTREAM-AGGREGATE-0000000002 (stores: [all])
      --> KTABLE-TOSTREAM-0000000011
      <-- all-repartition-source
    Processor: KSTREAM-FILTER-0000000006 (stores: [])
      --> KSTREAM-AGGREGATE-0000000007
      <-- all-repartition-source
    Processor: KSTREAM-AGGREGATE-0000000007 (stores: [long])
      --> KTABLE-TOSTREAM-0000000013
      <-- KSTREAM-FILTER-0000000006
    Processor: KTABLE-TOSTREAM-0000000011 (stores: [])
      --> KSTREAM-SINK-0000000012
      <-- KSTREAM-AGGREGATE-0000000002
    Sink: KSTREAM-SINK-0000000012 (topic: all-counts)
      <-- KTABLE-TOSTREAM-0000000011
    Processor: KTABLE-TOSTREAM-0000000013 (stores: [])
      --> KSTREAM-SINK-0000000014
      <-- KSTREAM-AGGREGATE-0000000007
    Sink: KSTREAM-SINK-0000000014 (topic: long-counts)
      <-- KTABLE-TOSTREAM-0000000013

`
	for range 2 { // building changes nothing
		if d := cmp.Diff(want, describe(t, together)); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
	all, long := results(apart)
	allTogether, longTogether := results(together)
	if len(all) != 5 || len(long) != 3 {
		t.Errorf("counts %v and %v", all, long)
	}
	if d := cmp.Diff([][]string{all, long}, [][]string{allTogether, longTogether}); d != "" {
		t.Errorf("results (-apart +together)\n%s", d)
	}
}

// TestMergeRepartitionsFirstBehindFilter: the topic of the first goes before what lay before it.
func TestMergeRepartitionsFirstBehindFilter(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder().MergeRepartitions()
	s := streams.SelectKey(lines(b), func(_, v string) string { return v })
	streams.Count(streams.GroupByKey(s.Filter(always)), "filtered")
	streams.Count(streams.GroupByKey(s.Peek(func(string, string) {}).Filter(always)), "peeked")
	streams.Count(streams.GroupByKey(s), "direct")
	got := describe(t, b)
	for _, want := range []string{
		"KSTREAM-KEY-SELECT-0000000001 (stores: [])\n      --> filtered-repartition-sink\n",
		"Source: filtered-repartition-source (topics: [app-filtered-repartition])\n      --> KSTREAM-AGGREGATE-0000000013, KSTREAM-FILTER-0000000002, KSTREAM-PEEK-0000000007\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "Sink: "); n != 1 {
		t.Errorf("%d sinks:\n%s", n, got)
	}
}

// TestNotMerged: a topic that was asked for stays, so does one behind another value, behind another merge of streams, and a single one.
func TestNotMerged(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder().MergeRepartitions()
	s := streams.SelectKey(lines(b), func(_, v string) string { return v })
	streams.Count(streams.GroupByKey(s.Repartition(streams.Named("asked"))), "a")
	streams.Count(streams.GroupByKey(streams.MapValues(s, strings.ToUpper)), "b")
	streams.Count(streams.GroupByKey(s.Merge(streams.From(b, "other", serde.String(), serde.String()))), "c")
	streams.Count(streams.GroupByKey(s.Filter(always, streams.Named("last"))), "d")
	got := describe(t, b)
	for _, want := range []string{"app-asked-repartition", "app-b-repartition", "app-c-repartition", "app-d-repartition", "last (stores: [])\n      --> d-repartition-sink"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
}
