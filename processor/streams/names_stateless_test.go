package streams_test

import (
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/serde"
)

func describe(t *testing.T, b *streams.Builder) string {
	t.Helper()
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	return built.Describe()
}

func lines(b *streams.Builder, opts ...streams.Option) *streams.Stream[string, string] {
	return streams.From(b, "lines", serde.String(), serde.String(), opts...)
}

func always(string, string) bool { return true }

// TestStatelessNames: each operator uses up as many positions as upstream's does, named or not.
func TestStatelessNames(t *testing.T) {
	t.Parallel()
	type stream = *streams.Stream[string, string]
	same := func(k, v string) (string, string) { return k, v }
	ops := []struct {
		prefix string
		apply  func(s stream, opts ...streams.Option) stream
		// named and unnamed are how many positions it uses up.
		named, unnamed int
	}{
		{"KSTREAM-FILTER-", func(s stream, o ...streams.Option) stream { return s.Filter(always, o...) }, 1, 1},
		{"KSTREAM-FILTER-", func(s stream, o ...streams.Option) stream { return s.FilterNot(always, o...) }, 1, 1},
		{"KSTREAM-PEEK-", func(s stream, o ...streams.Option) stream { return s.Peek(func(string, string) {}, o...) }, 1, 1},
		{"KSTREAM-MERGE-", func(s stream, o ...streams.Option) stream { return s.Merge(s, o...) }, 1, 1},
		{"KSTREAM-MAP-", func(s stream, o ...streams.Option) stream { return streams.Map(s, same, o...) }, 1, 1},
		{"KSTREAM-KEY-SELECT-", func(s stream, o ...streams.Option) stream {
			return streams.SelectKey(s, func(_, v string) string { return v }, o...)
		}, 1, 1},
		{"KSTREAM-MAPVALUES-", func(s stream, o ...streams.Option) stream { return streams.MapValues(s, strings.ToUpper, o...) }, 1, 1},
		{"KSTREAM-MAPVALUES-", func(s stream, o ...streams.Option) stream {
			return streams.MapValuesWithKey(s, func(k, v string) string { return k + v }, o...)
		}, 1, 1},
		{"KSTREAM-FLATMAP-", func(s stream, o ...streams.Option) stream {
			return streams.FlatMap(s, func(string, string) iter.Seq2[string, string] { return nil }, o...)
		}, 1, 1},
		{"KSTREAM-FLATMAPVALUES-", func(s stream, o ...streams.Option) stream {
			return streams.FlatMapValues(s, strings.FieldsSeq, o...)
		}, 1, 1},
		{"KSTREAM-FLATMAPVALUES-", func(s stream, o ...streams.Option) stream {
			return streams.FlatMapValuesWithKey(s, func(_, v string) iter.Seq[string] { return strings.FieldsSeq(v) }, o...)
		}, 1, 1},
		{"KSTREAM-REPARTITION-", func(s stream, o ...streams.Option) stream { return s.Repartition(o...) }, 3, 4},
	}
	for _, op := range ops {
		for _, named := range []bool{false, true} {
			b := streams.NewBuilder()
			var opts []streams.Option
			want, next := op.prefix+"0000000001", 1+op.unnamed
			if named {
				opts, want, next = []streams.Option{streams.Named("mine")}, "mine", 1+op.named
			}
			op.apply(lines(b), opts...).ForEach(func(string, string) {})
			got := describe(t, b)
			if !strings.Contains(got, ": "+want+" ") && !strings.Contains(got, "-"+want+"-repartition)") {
				t.Errorf("%s, named %v: no node or topic is called %s:\n%s", op.prefix, named, want, got)
			}
			if end := "KSTREAM-FOREACH-000000000" + string(rune('0'+next)); !strings.Contains(got, end) {
				t.Errorf("%s, named %v: no %s behind it:\n%s", op.prefix, named, end, got)
			}
		}
	}
}

// TestSplitNames: branches are called after the split and their number, or their name, and use up a position each.
func TestSplitNames(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	split := lines(b).Split()
	split.Branch(always).To("a")
	split.Branch(always, streams.Named("-mine")).To("b")
	split.Default().To("c")
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-BRANCH-0000000001
    Processor: KSTREAM-BRANCH-0000000001 (stores: [])
      --> KSTREAM-BRANCH-0000000001-mine, KSTREAM-BRANCH-00000000010, KSTREAM-BRANCH-00000000011
      <-- KSTREAM-SOURCE-0000000000
    Processor: KSTREAM-BRANCH-00000000011 (stores: [])
      --> KSTREAM-SINK-0000000003
      <-- KSTREAM-BRANCH-0000000001
    Sink: KSTREAM-SINK-0000000003 (topic: a)
      <-- KSTREAM-BRANCH-00000000011
    Processor: KSTREAM-BRANCH-0000000001-mine (stores: [])
      --> KSTREAM-SINK-0000000005
      <-- KSTREAM-BRANCH-0000000001
    Sink: KSTREAM-SINK-0000000005 (topic: b)
      <-- KSTREAM-BRANCH-0000000001-mine
    Processor: KSTREAM-BRANCH-00000000010 (stores: [])
      --> KSTREAM-SINK-0000000007
      <-- KSTREAM-BRANCH-0000000001
    Sink: KSTREAM-SINK-0000000007 (topic: c)
      <-- KSTREAM-BRANCH-00000000010

`
	if d := cmp.Diff(want, describe(t, b)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	got := make([]string, 0, 3)
	for name := range split.Streams() {
		got = append(got, name)
	}
	slices.Sort(got)
	names := []string{"KSTREAM-BRANCH-0000000001-mine", "KSTREAM-BRANCH-00000000010", "KSTREAM-BRANCH-00000000011"}
	if d := cmp.Diff(names, got); d != "" {
		t.Errorf("Streams (-want +got)\n%s", d)
	}
}

// TestTopicReadTwice: there is one source, named by the first, and the position of the second is used up.
func TestTopicReadTwice(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	lines(b).To("a")
	lines(b).To("b")
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [lines])
      --> KSTREAM-SINK-0000000001, KSTREAM-SINK-0000000003
    Sink: KSTREAM-SINK-0000000001 (topic: a)
      <-- KSTREAM-SOURCE-0000000000
    Sink: KSTREAM-SINK-0000000003 (topic: b)
      <-- KSTREAM-SOURCE-0000000000

`
	if d := cmp.Diff(want, describe(t, b)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestSourceErrors: what two readers of a topic do not agree on is named, with the topic.
func TestSourceErrors(t *testing.T) {
	t.Parallel()
	text := serde.String()
	at := func(string) time.Time { return time.Time{} }
	for name, c := range map[string]struct {
		second func(b *streams.Builder)
		want   string
	}{
		"types": {func(b *streams.Builder) { streams.From(b, "lines", text, serde.Int64()) }, "one source gives all their records one type"},
		"overlap": {func(b *streams.Builder) {
			streams.FromTopics(b, []string{"lines", "more"}, text, text)
		}, "overlap with [lines] of KSTREAM-SOURCE-0000000000"},
		"reset": {func(b *streams.Builder) { lines(b, streams.OffsetReset(processor.ResetLatest)) }, "offset reset latest, but default"},
		"times": {func(b *streams.Builder) { lines(b, streams.TimeOf(at)) }, "say there where their times are"},
		"serdes": {func(b *streams.Builder) {
			streams.From(b, "lines", text, serde.Of("other", func(s string) ([]byte, error) { return []byte(s), nil },
				func(b []byte) (string, error) { return string(b), nil }))
		}, "by other serdes"},
		"type of the time": {func(b *streams.Builder) {
			streams.From(b, "other", text, serde.Int64(), streams.TimeOf(at))
		}, "TimeOf has a func(string) time.Time, want a func(int64) time.Time"},
		"two times": {func(b *streams.Builder) {
			streams.From(b, "other", text, text, streams.TimeOf(at), streams.Timestamps(processor.FailOnInvalidTimestamp))
		}, "TimeOf or Timestamps, not both"},
		"another builder": {func(b *streams.Builder) {
			streams.From(b, "other", text, text).Merge(lines(streams.NewBuilder()))
		}, "of another builder"},
		"two defaults": {func(b *streams.Builder) {
			split := streams.From(b, "other", text, text).Split()
			split.Default()
			split.Default(streams.Named("x"))
		}, "has a default branch already"},
		"an option of others": {func(b *streams.Builder) {
			lines(b).Peek(func(string, string) {}, streams.Partitions(3))
		}, `takes no option "Partitions"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streams.NewBuilder()
			lines(b)
			c.second(b)
			_, err := b.Build()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
