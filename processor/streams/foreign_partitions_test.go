package streams_test

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// TestForeignJoinPartitionBy: foreign keys are looked for where the right table's topic has them (KIP-775), by nothing but their bytes.
func TestForeignJoinPartitionBy(t *testing.T) {
	t.Parallel()
	byFirst := func(_ string, r *processor.Record, partitions int32) int32 {
		if len(r.Value) > 0 || len(r.Headers) > 0 {
			t.Errorf("the partitioner was given %+v, want a key alone", r)
		}
		return int32(r.Key[0]-'a') % partitions
	}
	b := newJoinBench(t, streamstest.Config{Partitions: map[string]int32{"left": 2, "right": 3}}, func(b *streams.Builder) {
		l, r := tables(b)
		streams.ToStream(streams.JoinForeign(l, r, foreignKey, plus, streams.PartitionBy(byFirst))).To("out")
	})
	for p, key := range []string{"a", "b", "c"} {
		b.right.To(int32(p)).Pipe(key, key+"!", 1)
		b.left.Pipe("of "+key, key+":x", 2)
	}
	have := streamstest.ReadMap(b.out)
	for _, key := range []string{"a", "b", "c"} {
		if want := key + ":x+" + key + "!"; have["of "+key] != want {
			t.Errorf("of %s: %q, want %q", key, have["of "+key], want)
		}
	}
}

// TestForeignJoinOfWindows: a foreign key with a window is looked for where all windows of its key are.
func TestForeignJoinOfWindows(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{Partitions: map[string]int32{"left": 2, "clicks": 7}}, func(b *streams.Builder) {
		l, _ := tables(b)
		perKey := streams.GroupByKey(texts(b, "clicks"))
		r := streams.CountWindows(streams.WindowedBy(perKey, windows.Tumbling(10*time.Millisecond, 0)), "counts")
		window := func(_, v string) (serde.Windowed[string], bool) { return serde.Windowed[string]{Key: v, End: 10}, true }
		join := func(_, v string, n int64) string { return v + " " + string(rune('0'+n)) }
		streams.ToStream(streams.JoinForeign(l, r, window, join)).To("out")
	})
	clicks, l := streamstest.NewInput(d, "clicks", serde.String(), serde.String()), streamstest.NewInput(d, "left", serde.String(), serde.String())
	pipe(clicks, "a=x@1", "b=x@2", "c=x@3", "d=x@4")
	pipe(l, "1=a@5", "2=b@5", "3=c@5", "4=d@5")
	have := streamstest.ReadMap(streamstest.NewOutput(d, "out", serde.String(), serde.String()))
	for key, want := range map[string]string{"1": "a 1", "2": "b 1", "3": "c 1", "4": "d 1"} {
		if have[key] != want {
			t.Errorf("%s: %q, want %q", key, have[key], want)
		}
	}
}
