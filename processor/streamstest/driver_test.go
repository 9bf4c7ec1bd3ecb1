package streamstest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// node is a processor made of functions.
type node struct {
	ctx     *processor.Context
	init    func(*processor.Context) error
	process func(*processor.Context, *processor.Record) error
}

func (n *node) Init(ctx *processor.Context) error {
	n.ctx = ctx
	if n.init == nil {
		return nil
	}
	return n.init(ctx)
}

func (n *node) Process(r *processor.Record) error {
	if n.process == nil {
		return n.ctx.Forward(*r)
	}
	return n.process(n.ctx, r)
}

func (n *node) Close() error { return nil }

func supply(n node) processor.Supplier {
	return func() processor.Processor { c := n; return &c }
}

// count adds one to the key's number in a store and forwards it.
func count(name store.Name) node {
	return node{process: func(ctx *processor.Context, r *processor.Record) error {
		kv, err := ctx.Store(name)
		if err != nil {
			return err
		}
		n := int64(1)
		switch v, err := kv.Get(r.Key); {
		case err == nil:
			n += int64(binary.BigEndian.Uint64(v.Data))
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		out := binary.BigEndian.AppendUint64(nil, uint64(n))
		if err := kv.Put(r.Key, store.Value{Data: out, Timestamp: r.Timestamp}); err != nil {
			return err
		}
		return ctx.Forward(processor.Record{Key: r.Key, Value: out, Timestamp: r.Timestamp})
	}}
}

func split(ctx *processor.Context, r *processor.Record) error {
	for word := range strings.FieldsSeq(string(r.Value)) {
		if err := ctx.Forward(processor.Record{Key: []byte(word), Value: r.Value, Timestamp: r.Timestamp}); err != nil {
			return err
		}
	}
	return nil
}

// words counts the words of lines, behind a repartition.
func words() *processor.Topology {
	return processor.NewTopology().
		AddSource("lines", processor.SourceOptions{}, "lines").
		AddProcessor("split", supply(node{process: split}), "lines").
		AddRepartition("words", processor.RepartitionOptions{}, "split").
		AddProcessor("count", supply(count("counts")), "words").
		AddStateStore(store.Spec{Name: "counts", Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("sink", processor.SinkOptions{}, "out", "count")
}

func want(t *testing.T, what string, have, want []string) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("%s: %q, want %q", what, have, want)
	}
}

func TestWordCount(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, words(), streamstest.Config{})
	lines := streamstest.NewInput(d, "lines", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.Int64())
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())

	lines.PipeValue("to be or not to be")
	want(t, "out", out.ReadStrings(), []string{
		"to=1@946684800000", "be=1@946684800000", "or=1@946684800000", "not=1@946684800000", "to=2@946684800000", "be=2@946684800000",
	})
	if n, ok := counts.Get("be"); n != 2 || !ok {
		t.Errorf("be: %d, %t", n, ok)
	}
	if _, ok := counts.Get("question"); ok {
		t.Error("a word that was not said is found")
	}
	if have, expect := streamstest.Map(counts), (map[string]int64{"to": 2, "be": 2, "or": 1, "not": 1}); !maps.Equal(have, expect) {
		t.Errorf("counts %v, want %v", have, expect)
	}
	if _, ok := out.Read(); ok || out.Len() != 0 {
		t.Error("there is more to read")
	}
	words := streamstest.NewOutput(d, "streamstest-words-repartition", serde.String(), serde.String())
	if words.Len() != 6 {
		t.Errorf("%d words repartitioned, want 6", words.Len())
	}
}

// TestPartitions: every task of each partition runs, and a key meets its own through the repartition topic.
func TestPartitions(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, words(), streamstest.Config{Partitions: map[string]int32{"lines": 2, "out": 3}})
	if tasks := fmt.Sprint(d.Tasks()); tasks != "[0_0 0_1 1_0 1_1]" {
		t.Fatalf("tasks %s", tasks)
	}
	lines := streamstest.NewInput(d, "lines", serde.String(), serde.String())
	lines.To(0).Pipe("x", "a b c d e f", 1)
	lines.To(1).Pipe("y", "a b c d e f", 2)
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	var rows []string
	for _, r := range counts.Rows() {
		rows = append(rows, r.String())
		if n, ok := counts.Get(r.Key); !ok || n != 2 {
			t.Errorf("%s: %d, %t in the partition of the key", r.Key, n, ok)
		}
	}
	want(t, "rows", rows, []string{"a=2@2", "b=2@2", "c=2@2", "d=2@2", "e=2@2", "f=2@2"})
	if in := len(counts.In(0).Rows()); in == 0 || in == 6 {
		t.Errorf("%d of 6 keys in partition 0", in)
	}
	if err := d.Try(func() { lines.To(2).Pipe("z", "a", 3) }); err == nil {
		t.Error("a partition that there is not was written")
	}
	// Outputs come in their order over all partitions, and where Kafka's default puts them.
	out := streamstest.NewOutput(d, "out", serde.String(), serde.Int64()).ReadAll()
	used := make(map[int32]bool)
	for _, r := range out {
		used[r.Partition] = true
	}
	if len(out) != 12 || len(used) < 2 {
		t.Errorf("%d records in partitions %v", len(out), used)
	}
}

// TestPunctuations: stream time moves with records, wall clock with the driver; missed intervals are not repeated (semantics 6).
func TestPunctuations(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{init: func(ctx *processor.Context) error {
			for typ, name := range map[processor.PunctuationType]string{processor.StreamTime: "stream", processor.WallClockTime: "wall"} {
				_, err := ctx.Schedule(10*time.Second, typ, func(at int64) error {
					return ctx.Forward(processor.Record{Key: []byte(name), Value: fmt.Append(nil, at), Timestamp: at})
				})
				if err != nil {
					return err
				}
			}
			return nil
		}, process: func(*processor.Context, *processor.Record) error { return nil }}), "in").
		AddSink("out", processor.SinkOptions{}, "out", "p")
	d := streamstest.NewT(t, topology, streamstest.Config{Start: time.UnixMilli(1_000_000)})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	in.Pipe("a", "", 5_000)
	want(t, "first record", out.ReadStrings(), []string{"stream=5000@5000"})
	in.Pipe("a", "", 9_999)
	d.AdvanceWallClock(9_999 * time.Millisecond)
	want(t, "nothing due", out.ReadStrings(), nil)
	d.AdvanceWallClock(time.Millisecond)
	want(t, "wall clock", out.ReadStrings(), []string{"wall=1010000@1010000"})
	d.AdvanceWallClock(time.Minute)
	want(t, "missed intervals", out.ReadStrings(), []string{"wall=1070000@1070000"})
	in.Pipe("a", "", 100_000)
	want(t, "stream time", out.ReadStrings(), []string{"stream=100000@100000"})
	if at := d.StreamTime(d.Tasks()[0]); at != 100_000 {
		t.Errorf("stream time %d", at)
	}
	if now := d.Now().UnixMilli(); now != 1_070_000 {
		t.Errorf("wall clock %d", now)
	}
	if err := d.Try(func() { d.AdvanceWallClock(-1) }); err == nil {
		t.Error("time went back")
	}
}

// sum adds the values of a key and tells, through the cache if there is one, what became of it: "new (old)".
func sum(caching bool) *processor.Topology {
	return processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("sum", supply(node{
			init: func(ctx *processor.Context) error {
				return ctx.OnFlush("sums", func(f store.Flushed) error {
					text := fmt.Sprintf("%s (old %s)", f.New.Data, f.Old.Data)
					return ctx.Forward(processor.Record{Key: f.Key, Value: []byte(text), Timestamp: f.New.Timestamp})
				})
			},
			process: func(ctx *processor.Context, r *processor.Record) error {
				kv, err := ctx.Store("sums")
				if err != nil {
					return err
				}
				var have, add int
				if v, err := kv.Get(r.Key); err == nil {
					_, _ = fmt.Sscan(string(v.Data), &have)
				} else if !errors.Is(err, store.ErrNotFound) {
					return err
				}
				if _, err := fmt.Sscan(string(r.Value), &add); err != nil {
					return &processor.DeserializationError{Reason: "no number", Err: err}
				}
				return kv.Put(r.Key, store.Value{Data: fmt.Append(nil, have+add), Timestamp: r.Timestamp})
			},
		}), "in").
		AddStateStore(store.Spec{Name: "sums", Kind: store.KindTimestampedKeyValue, Caching: caching}, "sum").
		AddSink("out", processor.SinkOptions{}, "out", "sum")
}

// TestCaches is T7/87 and T7/88.
func TestCaches(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		caching   bool
		interval  time.Duration
		uncommitt []string
		want      []string
	}{
		{"T7/87 off", false, streamstest.Never, nil, []string{"A=1 (old )@0", "D=5 (old )@1", "A=21 (old 1)@2", "A=321 (old 21)@3"}},
		{"T7/88 on, one flush", true, streamstest.Never, nil, []string{"D=5 (old )@1", "A=321 (old )@3"}},
		{"on, a commit after every record", true, 0, nil, []string{"A=1 (old )@0", "D=5 (old )@1", "A=21 (old 1)@2", "A=321 (old 21)@3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := streamstest.NewT(t, sum(tc.caching), streamstest.Config{CommitInterval: tc.interval})
			in := streamstest.NewInput(d, "in", serde.String(), serde.String()).Clock(0, time.Millisecond)
			out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
			sums := streamstest.NewKeyValue(d, "sums", serde.String(), serde.String())
			for _, r := range [][2]string{{"A", "1"}, {"D", "5"}, {"A", "20"}, {"A", "300"}} {
				in.PipeNext(r[0], r[1])
			}
			if v, ok := sums.Uncommitted().Get("A"); v != "321" || !ok {
				t.Errorf("uncommitted: %q, %t", v, ok)
			}
			if tc.interval > 0 {
				if out.Len() != 0 || d.Commits() != 0 {
					t.Errorf("%d records and %d commits before the commit", out.Len(), d.Commits())
				}
				if v, ok := sums.Get("A"); ok {
					t.Errorf("committed before the commit: %q", v)
				}
			}
			d.Commit()
			want(t, "out", out.ReadStrings(), tc.want)
			if v, ok := sums.Get("A"); v != "321" || !ok {
				t.Errorf("committed: %q, %t", v, ok)
			}
		})
	}
}

// TestCommitInterval: by the wall clock of the driver, since the oldest uncommitted work; a processor may ask for one before.
func TestCommitInterval(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{process: func(ctx *processor.Context, r *processor.Record) error {
			if string(r.Value) == "now" {
				ctx.RequestCommit()
			}
			return ctx.Forward(*r)
		}}), "in").AddSink("out", processor.SinkOptions{}, "out", "p")
	d := streamstest.NewT(t, topology, streamstest.Config{CommitInterval: time.Second})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	in.Pipe("a", "", 1)
	d.AdvanceWallClock(999 * time.Millisecond)
	in.Pipe("b", "", 2)
	want(t, "before", out.ReadStrings(), nil)
	d.AdvanceWallClock(time.Millisecond)
	want(t, "after", out.ReadStrings(), []string{"a=@1", "b=@2"})
	d.AdvanceWallClock(time.Hour)
	in.Pipe("c", "", 3)
	want(t, "the interval begins with the record", out.ReadStrings(), nil)
	in.Pipe("d", "now", 4)
	want(t, "requested", out.ReadStrings(), []string{"c=@3", "d=now@4"})
	if n := d.Commits(); n != 2 {
		t.Errorf("%d commits, want 2", n)
	}
	if at := d.Committed()[store.TopicPartition{Topic: "in"}]; at != 4 {
		t.Errorf("committed offset %d, want 4", at)
	}
}

// TestAtLeastOnce: what a sink writes is there before the commit.
func TestAtLeastOnce(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, words(), streamstest.Config{CommitInterval: streamstest.Never, Guarantee: processor.AtLeastOnce})
	in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.Int64())
	in.Pipe("", "a a", 1)
	want(t, "out", out.ReadStrings(), []string{"a=1@1", "a=2@1"})
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	if _, ok := counts.Get("a"); ok {
		t.Error("the state is committed")
	}
	d.Restart() // a kill: the state is rolled back, what was repartitioned is not, and comes once more
	want(t, "done again", out.ReadStrings(), []string{"a=1@1", "a=2@1", "a=3@1", "a=4@1"})
}
