package streams_test

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// started runs what a test builds.
func started(t *testing.T, b *streams.Builder, cfg streamstest.Config) *streamstest.Driver {
	t.Helper()
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return streamstest.NewT(t, topology, cfg)
}

// pipeAll writes records "key=value@time" to a topic; "key@time" is a tombstone.
func pipeAll(t *testing.T, d *streamstest.Driver, topic string, records ...string) {
	t.Helper()
	in := streamstest.NewInput(d, topic, serde.String(), serde.String())
	for _, r := range records {
		text, at, _ := strings.Cut(r, "@")
		var ts int64
		if _, err := fmt.Sscan(at, &ts); err != nil {
			t.Fatal(err)
		}
		if k, v, ok := strings.Cut(text, "="); ok {
			in.Pipe(k, v, ts)
		} else {
			in.PipeTombstone(k, ts)
		}
	}
}

func textsOf(d *streamstest.Driver, topic string) []string {
	return streamstest.NewOutput(d, topic, serde.String(), serde.String()).ReadStrings()
}

func wantTexts(t *testing.T, d *streamstest.Driver, topic string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, textsOf(d, topic)); d != "" {
		t.Errorf("%s (-want +got)\n%s", topic, d)
	}
}

// TestStateless: what each operator makes of records with and without a value. Strings have no null, so tombstones stay what they are where the
// key stays, and are dropped where a function would have to make a key of them.
func TestStateless(t *testing.T) {
	t.Parallel()
	type stream = *streams.Stream[string, string]
	short := func(_, v string) bool { return len(v) < 3 }
	for name, c := range map[string]struct {
		apply   func(s stream) stream
		want    []string
		dropped int
	}{
		"filter":     {func(s stream) stream { return s.Filter(short) }, []string{"a=x@1", "b=null@2"}, 0},
		"filter not": {func(s stream) stream { return s.FilterNot(short) }, []string{"b=null@2", "c=x y z@3"}, 0},
		"map": {func(s stream) stream {
			return streams.Map(s, func(k, v string) (string, string) { return v, k })
		}, []string{"x=a@1", "x y z=c@3"}, 1},
		"map values":          {func(s stream) stream { return streams.MapValues(s, strings.ToUpper) }, []string{"a=X@1", "b=null@2", "c=X Y Z@3"}, 0},
		"map values with key": {func(s stream) stream { return streams.MapValuesWithKey(s, func(k, v string) string { return k + v }) }, []string{"a=ax@1", "b=null@2", "c=cx y z@3"}, 0},
		"select key":          {func(s stream) stream { return streams.SelectKey(s, func(_, v string) string { return v[:1] }) }, []string{"x=x@1", "x=x y z@3"}, 1},
		"flat map": {func(s stream) stream {
			return streams.FlatMap(s, func(k, v string) iter.Seq2[string, string] {
				if k == "a" {
					return nil
				}
				return maps.All(map[string]string{v: k})
			})
		}, []string{"x y z=c@3"}, 1},
		"flat map values": {func(s stream) stream { return streams.FlatMapValues(s, strings.FieldsSeq) }, []string{"a=x@1", "b=null@2", "c=x@3", "c=y@3", "c=z@3"}, 0},
		"flat map values with key": {func(s stream) stream {
			return streams.FlatMapValuesWithKey(s, func(k, v string) iter.Seq[string] { return slices.Values([]string{k, v}) })
		}, []string{"a=a@1", "a=x@1", "b=null@2", "c=c@3", "c=x y z@3"}, 0},
		"merge":       {func(s stream) stream { return s.Filter(short).Merge(s.FilterNot(always)) }, []string{"a=x@1", "b=null@2", "b=null@2"}, 0},
		"repartition": {func(s stream) stream { return s.Repartition(streams.Named("r"), streams.Partitions(2)) }, []string{"a=x@1", "b=null@2", "c=x y z@3"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := streams.NewBuilder()
			c.apply(lines(b)).To("out")
			d := started(t, b, streamstest.Config{})
			pipeAll(t, d, "lines", "a=x@1", "b@2", "c=x y z@3")
			wantTexts(t, d, "out", c.want...)
			if n := d.Dropped()["null value"]; n != c.dropped {
				t.Errorf("%d dropped, want %d: %v", n, c.dropped, d.Dropped())
			}
		})
	}
}

// TestPeekForEach: each is called once for a record, in order, and not for one without a value.
func TestPeekForEach(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	var seen []string
	see := func(who string) func(k, v string) { return func(k, v string) { seen = append(seen, who+k+v) } }
	lines(b).Peek(see("peek ")).ForEach(see("each "))
	d := started(t, b, streamstest.Config{})
	pipeAll(t, d, "lines", "a=1@1", "b@2", "c=3@3")
	if d := cmp.Diff([]string{"peek a1", "each a1", "peek c3", "each c3"}, seen); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestSplit: a record goes to the first branch that takes it, else to the default branch, without one nowhere.
func TestSplit(t *testing.T) {
	t.Parallel()
	for _, withDefault := range []bool{true, false} {
		b := streams.NewBuilder()
		split := lines(b).Split(streams.Named("by-"))
		split.Branch(func(_, v string) bool { return v < "c" }, streams.Named("small")).To("small")
		split.Branch(func(_, v string) bool { return v < "f" }).To("middle")
		var rest []string
		if withDefault {
			split.Default().To("rest")
			rest = []string{"4=z@4", "5=null@5"}
		}
		d := started(t, b, streamstest.Config{})
		pipeAll(t, d, "lines", "1=a@1", "2=d@2", "3=b@3", "4=z@4", "5@5")
		wantTexts(t, d, "small", "1=a@1", "3=b@3")
		wantTexts(t, d, "middle", "2=d@2")
		if withDefault {
			wantTexts(t, d, "rest", rest...)
		}
		if _, ok := split.Streams()["by-small"]; !ok {
			t.Errorf("no branch by-small: %v", split.Streams())
		}
	}
}

// TestMergeWrites: a merged stream is written as the first is, whatever the second's bytes were.
func TestMergeWrites(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	quoted := streams.From(b, "quoted", serde.String(), serde.JSON[string]())
	lines(b).Merge(quoted).To("out")
	d := started(t, b, streamstest.Config{})
	streamstest.NewInput(d, "quoted", serde.String(), serde.JSON[string]()).Pipe("a", "x", 1)
	pipeAll(t, d, "lines", "b=y@2")
	wantTexts(t, d, "out", "a=x@1", "b=y@2")
}

// TestTopicReadTwiceRuns: both readers get every record, once.
func TestTopicReadTwiceRuns(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	streams.MapValues(lines(b), strings.ToUpper).To("upper")
	lines(b).To("same")
	d := started(t, b, streamstest.Config{})
	pipeAll(t, d, "lines", "a=x@1")
	wantTexts(t, d, "upper", "a=X@1")
	wantTexts(t, d, "same", "a=x@1")
}

// TestTimeOf: the time of a record is that of its value, which orders the topics of a task; each value is decoded once, tombstones keep their
// time, and a time before 1970 drops the record.
func TestTimeOf(t *testing.T) {
	t.Parallel()
	decoded := 0
	times := serde.Of("seconds", func(at time.Time) ([]byte, error) { return at.AppendText(nil) }, func(b []byte) (at time.Time, err error) {
		decoded++
		return at, at.UnmarshalText(b)
	})
	b := streams.NewBuilder()
	s := streams.FromTopics(b, []string{"one", "two"}, serde.String(), times, streams.TimeOf(func(at time.Time) time.Time { return at }))
	streams.MapValues(s, func(at time.Time) string { return at.Format("05") }).To("out")
	d := started(t, b, streamstest.Config{CommitInterval: streamstest.Never, MaxTaskIdle: time.Hour})
	one := streamstest.NewInput(d, "one", serde.String(), times)
	two := streamstest.NewInput(d, "two", serde.String(), times)
	at := func(second int64) time.Time { return time.Unix(second, 0).UTC() }
	one.Pipe("a", at(5), 0)
	two.Pipe("b", at(3), 0) // before a
	one.Pipe("c", at(7), 0)
	two.Pipe("d", at(6), 0)
	two.Pipe("e", at(-1), 0)
	two.PipeTombstone("f", 6500)
	d.AdvanceWallClock(2 * time.Hour)
	d.Commit()
	wantTexts(t, d, "out", "b=03@3000", "a=05@5000", "d=06@6000", "f=null@6500", "c=07@7000")
	if decoded != 5 {
		t.Errorf("%d values decoded, want each of 5 once", decoded)
	}
	if d := cmp.Diff(map[string]int{"negative timestamp": 1}, d.Dropped()); d != "" {
		t.Errorf("dropped (-want +got)\n%s", d)
	}
}

// TestTimeOfUndecodable: it is an error of deserialization when the time is asked, as it is when a record is processed.
func TestTimeOfUndecodable(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	s := streams.From(b, "lines", serde.String(), serde.JSON[time.Time](), streams.TimeOf(func(at time.Time) time.Time { return at }))
	s.To("out")
	d := started(t, b, streamstest.Config{DeserializationHandler: processor.Continue})
	pipeAll(t, d, "lines", "a=x@1")
	if d := cmp.Diff(map[string]int{"undecodable value": 1}, d.Dropped()); d != "" {
		t.Errorf("dropped (-want +got)\n%s", d)
	}
}

// TestToTopicOf: each record goes to its topic, by the bytes of that one's serdes.
func TestToTopicOf(t *testing.T) {
	t.Parallel()
	plain := serde.String()
	bound := serde.Bind(plain, func(topic string, _ serde.Part) serde.Serde[string] {
		return serde.Of("bound", func(s string) ([]byte, error) { return []byte(topic + ":" + s), nil }, plain.Decode)
	})
	b := streams.NewBuilder()
	lines(b).WithValues(bound).ToTopicOf(func(r *streams.Record[string, string]) string { return "to-" + r.Value },
		streams.PartitionBy(func(_ string, _ *processor.Record, n int32) int32 { return n - 1 }))
	if got := describe(t, b); !strings.Contains(got, "Sink: KSTREAM-SINK-0000000001 (extractor class: TopicExtractor)") {
		t.Errorf("described as\n%s", got)
	}
	d := started(t, b, streamstest.Config{Partitions: map[string]int32{"to-x": 3}})
	pipeAll(t, d, "lines", "a=x@1", "b=y@2", "c=x@3")
	wantTexts(t, d, "to-x", "a=to-x:x@1", "c=to-x:x@3")
	wantTexts(t, d, "to-y", "b=to-y:y@2")
	for _, r := range streamstest.NewOutput(d, "to-x", plain, plain).ReadAll() {
		if r.Partition != 2 {
			t.Errorf("%s is in partition %d, want 2", r, r.Partition)
		}
	}
}
