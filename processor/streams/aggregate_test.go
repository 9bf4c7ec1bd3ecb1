package streams_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// sums adds up the numbers of each key.
func sums(b *streams.Builder, opts ...streams.Option) *streams.Table[string, int64] {
	add := func(_, v string, a int64) int64 { return a + number(v) }
	return streams.Aggregate(streams.GroupByKey(texts(b, "in")), "sums", serde.Int64(), func() int64 { return 0 }, add, opts...)
}

// TestCacheCompacts is T7/87 and 88: what a cache holds back is told as one change.
func TestCacheCompacts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  streamstest.Config
		opts []streams.Option
		want []string
	}{
		{"T7/87", streamstest.Config{}, []streams.Option{streams.CachingDisabled()}, []string{"A=1@1", "D=5@2", "A=21@3", "A=321@4"}},
		{"T7/88", streamstest.Config{CommitInterval: streamstest.Never}, nil, []string{"D=5@2", "A=321@4"}},
		{"T7/91", streamstest.Config{CommitInterval: streamstest.Never, CacheMaxBytes: -1}, nil, []string{"A=1@1", "D=5@2", "A=21@3", "A=321@4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := drive(t, c.cfg, func(b *streams.Builder) { streams.ToStream(sums(b, c.opts...)).To("out") })
			pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "A=1@1", "D=5@2", "A=20@3", "A=300@4")
			d.Commit()
			want(t, "out", read(d, serde.Int64())(), c.want...)
		})
	}
}

// TestOldValues is T7/87 and 88 with what a table behind is told as the old value: it takes that away again.
func TestOldValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  streamstest.Config
		opts []streams.Option
		want []string
	}{
		{"off", streamstest.Config{}, []streams.Option{streams.CachingDisabled()}, []string{"all=1@1", "all=6@2", "all=26@3", "all=326@4"}},
		{"on", streamstest.Config{CommitInterval: streamstest.Never}, nil, []string{"all=326@4"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := drive(t, c.cfg, func(b *streams.Builder) {
				all := streams.GroupTable(sums(b, c.opts...), func(_ string, n int64) (string, int64) { return "all", n })
				add := func(a, v int64) int64 { return a + v }
				subtract := func(a, v int64) int64 { return a - v }
				streams.ToStream(streams.ReduceTable(all, "total", add, subtract)).To("out")
			})
			pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "A=1@1", "D=5@2", "A=20@3", "A=300@4")
			d.Commit()
			want(t, "out", read(d, serde.Int64())(), c.want...)
		})
	}
}

func TestReduce(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		join := func(a, v string) string { return a + v }
		streams.ToStream(streams.Reduce(streams.GroupByKey(texts(b, "in")), "joined", join)).To("out")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	pipe(in, "a=x@5", "b=y@6", "a=z@3", "a@7", "=q@8")
	in.PipeValue("no key")
	want(t, "out", read(d, serde.String())(), "a=x@5", "b=y@6", "a=xz@5") // the time is the greatest
	if got := d.Dropped(); got["null value"] != 1 || got["null key"] != 1 || got["empty key"] != 1 || len(got) != 3 {
		t.Errorf("dropped %v", got)
	}
}

// TestAggregateToNil: an aggregate that becomes nil is deleted, and the next record begins anew.
func TestAggregateToNil(t *testing.T) {
	t.Parallel()
	add := func(_, v string, a *string) *string {
		if v == "clear" {
			return nil
		}
		s := *a + v
		return &s
	}
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		begin := func() *string { s := "-"; return &s }
		streams.ToStream(streams.Aggregate(streams.GroupByKey(texts(b, "in")), "s", serde.Nullable(serde.String()), begin, add)).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@1", "a=clear@2", "a=y@3")
	want(t, "out", read(d, serde.String())(), "a=-x@1", "a=null@2", "a=-y@3")
}

// TestGroupedTable: rows leave their old group and enter the new one; one that stays is told once (KIP-904).
func TestGroupedTable(t *testing.T) {
	t.Parallel()
	last := func(_, v string) string { return v }
	var changes [][]byte
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		rows := streams.Reduce(streams.GroupByKey(texts(b, "in")), "rows", last)
		groups := streams.GroupTable(rows, func(k, v string) (string, string) { return v[:1], k + v }, streams.Named("groups"))
		joined := streams.AggregateTable(groups, "joined", serde.String(), func() string { return "" },
			func(_, v, a string) string { return a + "+" + v }, func(_, v, a string) string { return a + "-" + v })
		streams.ToStream(joined).To("out")
		streams.ToStream(streams.CountTable(groups, "sizes")).To("sizes")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	pipe(in, "a=x@1", "b=x@2", "a=x2@3", "a=y@4")
	want(t, "out", read(d, serde.String())(), "x=+ax@1", "x=+ax+bx@2", "x=+ax+bx-ax+ax2@3", "x=+ax+bx-ax+ax2-ax2@4", "y=+ay@4")
	sizes := streamstest.NewOutput(d, "sizes", serde.String(), serde.Int64())
	want(t, "sizes", sizes.ReadStrings(), "x=1@1", "x=2@2", "x=2@3", "x=1@4", "y=1@4")
	for _, r := range streamstest.NewOutput(d, "streamstest-groups-repartition", serde.Bytes(), serde.Bytes()).ReadAll() {
		changes = append(changes, r.Value)
	}
	want(t, "changes", quoted(changes), `"ax\x01"`, `"bx\x01"`, `"\x06ax2ax\x02"`, `"ax2\x00"`, `"ay\x01"`)
}

func quoted(all [][]byte) (q []string) {
	for _, b := range all {
		q = append(q, strconv.Quote(string(b)))
	}
	return q
}

func TestCogroup(t *testing.T) {
	t.Parallel()
	begin := func() string { return "" }
	first := func(_, v, a string) string { return a + v }
	second := func(_ string, v int64, a string) string { return a + strconv.FormatInt(v, 10) }
	group := func(b *streams.Builder) *streams.Cogrouped[string, string] {
		numbers := streams.From(b, "numbers", serde.String(), serde.Int64())
		c := streams.Cogroup(streams.GroupByKey(texts(b, "in")), first)
		return streams.CogroupWith(c, streams.GroupByKey(numbers), second)
	}
	for name, build := range map[string]func(b *streams.Builder, opts ...streams.Option){
		"plain": func(b *streams.Builder, opts ...streams.Option) {
			streams.ToStream(streams.AggregateCogrouped(group(b), "s", serde.String(), begin, opts...)).To("out")
		},
		"windows": func(b *streams.Builder, opts ...streams.Option) {
			w := streams.AggregateCogroupedWindows(group(b), windows.Tumbling(100*time.Millisecond, 0), "s", serde.String(), begin, opts...)
			streams.SelectKey(streams.ToStream(w), func(k serde.Windowed[string], _ string) string { return k.Key }).To("out")
		},
		"sessions": func(b *streams.Builder, opts ...streams.Option) {
			merge := func(_, a, b string) string { return a + b }
			w := streams.AggregateCogroupedSessions(group(b), windows.Session{Gap: 100 * time.Millisecond}, "s", serde.String(), begin, merge, opts...)
			values := streams.ToStream(w).Filter(func(_ serde.Windowed[string], v string) bool { return v != "" })
			streams.SelectKey(values, func(k serde.Windowed[string], _ string) string { return k.Key }).To("out")
		},
	} {
		for _, opts := range [][]streams.Option{nil, {streams.CachingDisabled()}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := drive(t, streamstest.Config{}, func(b *streams.Builder) { build(b, opts...) })
				pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@1")
				streamstest.NewInput(d, "numbers", serde.String(), serde.Int64()).Pipe("a", 7, 2)
				pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "b=y@3", "a=z@4")
				var last []string
				for _, r := range streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadAll() {
					if !r.NullValue {
						last = append(last, r.String())
					}
				}
				want(t, "out", last, "a=x@1", "a=x7@2", "b=y@3", "a=x7z@4")
			})
		}
	}
}
