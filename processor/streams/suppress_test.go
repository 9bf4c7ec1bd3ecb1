package streams_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// byValue counts the keys of each value over a table; its changes go to raw, those of Suppress to out.
func byValue(b *streams.Builder, s streams.Suppressed) {
	last := func(_, v string) string { return v }
	rows := streams.Reduce(streams.GroupByKey(texts(b, "in")), "rows", last, streams.CachingDisabled())
	counts := streams.CountTable(streams.GroupTable(rows, func(k, v string) (string, string) { return v, k }), "counts", streams.CachingDisabled())
	streams.ToStream(counts.Suppress(s, streams.Named("held"))).To("out")
	streams.ToStream(counts).To("raw")
}

// TestSuppress is T8/97 and what else SuppressScenarioTest has of time limits and bounds.
func TestSuppress(t *testing.T) {
	t.Parallel()
	type step struct{ in, out []string }
	begin := []string{"k1=v1@0", "k1=v2@1", "k2=v1@2"}
	const ever = 100 * 365 * 24 * time.Hour
	for _, c := range []struct {
		name string
		s    streams.Suppressed
		then []step
	}{
		{"T8/97", streams.UntilTimeLimit(0, streams.Buffer{}), []step{
			{begin, []string{"v1=1@0", "v1=0@1", "v2=1@1", "v1=1@2"}},
			{[]string{"x=x@3"}, []string{"x=1@3"}},
			{[]string{"x=y@4"}, []string{"x=0@4", "y=1@4"}},
		}},
		{"time limit", streams.UntilTimeLimit(2*ms, streams.Buffer{}), []step{
			{begin, []string{"v1=1@2"}},
			{[]string{"tick=tick@3"}, []string{"v2=1@1"}},
			{[]string{"tick=tock@4"}, nil}, // held back since 3
		}},
		{"records", streams.UntilTimeLimit(ever, streams.Buffer{MaxRecords: 1, WhenFull: streams.EmitEarly}), []step{
			{begin, []string{"v1=0@1", "v2=1@1"}},
			{[]string{"x=x@3"}, []string{"v1=1@2"}},
		}},
		{"bytes", streams.UntilTimeLimit(ever, streams.Buffer{MaxBytes: 40, WhenFull: streams.EmitEarly}), []step{
			{begin, []string{"v1=0@1", "v2=1@1"}},
			{[]string{"x=x@3"}, []string{"v1=1@2"}},
		}},
	} {
		for _, restart := range []string{"", " with restarts"} {
			t.Run(c.name+restart, func(t *testing.T) {
				t.Parallel()
				d := drive(t, streamstest.Config{}, func(b *streams.Builder) { byValue(b, c.s) })
				in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.Int64())
				raw := streamstest.NewOutput(d, "raw", serde.String(), serde.Int64())
				for i, s := range c.then {
					pipe(in, s.in...)
					want(t, "out", out(), s.out...)
					if i == 0 {
						want(t, "raw", raw.ReadStrings(), "v1=1@0", "v1=0@1", "v2=1@1", "v1=1@2")
					}
					if restart != "" {
						d.Restart()
					}
				}
			})
		}
	}
}

// TestSuppressShutsDown: a buffer that may not be told early ends the task when it is full.
func TestSuppressShutsDown(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		byValue(b, streams.UntilTimeLimit(time.Second, streams.Buffer{MaxRecords: 1}))
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	err := d.Try(func() { pipe(in, "k1=v1@0", "k1=v2@1") })
	if full, ok := errors.AsType[*streams.BufferFullError](err); !ok || full.Records != 2 || full.MaxRecords != 1 || full.Store != "held-store" {
		t.Errorf("error %v", err)
	}
}

// TestFinalResults is SuppressScenarioTest for windows of each kind: the value of each window once, when it is closed.
func TestFinalResults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		w       windowing
		records []string
		want    []string
		drops   map[string]int
	}{
		{
			"time", by(windows.Tumbling(2*ms, ms)),
			[]string{"k1=v@0", "k1=v@1", "k1=v@2", "k1=v@1", "k1=v@0", "k1=v@5", "k1=v@0"},
			[]string{"k1[0,2]=4@1", "k1[2,4]=1@2"},
			map[string]int{"late": 1},
		},
		{
			"large jump", by(windows.Tumbling(2*ms, 2*ms)),
			[]string{"k1=v@0", "k1=v@1", "k1=v@2", "k1=v@0", "k1=v@3", "k1=v@0", "k1=v@4", "k1=v@0", "k1=v@30"},
			[]string{"k1[0,2]=4@1", "k1[2,4]=2@3", "k1[4,6]=1@4"},
			map[string]int{"late": 1},
		},
		{
			"sliding", by(windows.Sliding{Difference: 5 * ms, Grace: 15 * ms}),
			[]string{"k1=v@10", "k1=v@11", "k1=v@10", "k1=v@13", "k1=v@10", "k1=v@24", "k1=v@5", "k1=v@7", "k1=v@90"},
			[]string{"k1[5,10]=5@10", "k1[6,11]=5@11", "k1[8,13]=5@13", "k1[11,16]=2@13", "k1[12,17]=1@13", "k1[19,24]=1@24"},
			nil,
		},
		{
			"session", bySessions(windows.Session{Gap: 5 * ms}),
			[]string{"k1=v@0", "k1=v@5", "k1=v@1", "k2=v@11", "k1=v@5", "k1=v@30"},
			[]string{"k1[0,5]=3@5", "k2[11,11]=1@11"},
			map[string]int{"late": 1},
		},
	} {
		for name, opts := range map[string][]streams.Option{"cached": nil, "uncached": {streams.CachingDisabled()}} {
			t.Run(c.name+" "+name, func(t *testing.T) {
				t.Parallel()
				d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
					table := streams.CountWindows(c.w.on(streams.GroupByKey(texts(b, "in"))), "s", opts...)
					final := table.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named("final"))
					streams.ToStream(final).To("out")
				})
				pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), c.records...)
				want(t, "out", readWindows(d, c.w, serde.Int64())(), c.want...)
				if got := d.Dropped(); !maps.Equal(got, c.drops) {
					t.Errorf("dropped %v, want %v", got, c.drops)
				}
			})
		}
	}
}

// TestSuppressHeaders: the headers of the last record of a key go on with it, also after a restart.
func TestSuppressHeaders(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		counts := streams.Count(streams.GroupByKey(texts(b, "in")), "s", streams.CachingDisabled())
		streams.ToStream(counts.Suppress(streams.UntilTimeLimit(10*ms, streams.Buffer{}), streams.Named("held"))).To("out")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	for i, text := range []string{"first", "last"} {
		r := streamstest.Record[string, string]{Key: "a", Value: "x", Timestamp: int64(i)}
		r.Headers = append(r.Headers, header("h", text), header("empty", ""))
		in.PipeRecord(r)
	}
	d.Restart()
	in.Pipe("b", "x", 20)
	r, ok := streamstest.NewOutput(d, "out", serde.String(), serde.Int64()).Read()
	h, _ := r.Header("h")
	if e, found := r.Header("empty"); !ok || r.String() != "a=2@1" || string(h) != "last" || !found || e == nil || len(e) > 0 {
		t.Errorf("have %v with %v", r, r.Headers)
	}
}

// TestSuppressRefused: what cannot be is told by Build.
func TestSuppressRefused(t *testing.T) {
	t.Parallel()
	windowed := func(b *streams.Builder) *streams.Table[serde.Windowed[string], int64] {
		return streams.CountWindows(by(windows.Tumbling(ms, 0)).on(streams.GroupByKey(texts(b, "in"))), "s")
	}
	for name, build := range map[string]func(b *streams.Builder){
		"no windows": func(b *streams.Builder) {
			streams.Count(streams.GroupByKey(texts(b, "in")), "s").Suppress(streams.UntilWindowCloses(streams.Buffer{}))
		},
		"early": func(b *streams.Builder) {
			windowed(b).Suppress(streams.UntilWindowCloses(streams.Buffer{MaxRecords: 1, WhenFull: streams.EmitEarly}))
		},
		"limit": func(b *streams.Builder) {
			windowed(b).Suppress(streams.UntilTimeLimit(time.Microsecond, streams.Buffer{}))
		},
		"buffer": func(b *streams.Builder) {
			windowed(b).Suppress(streams.UntilTimeLimit(0, streams.Buffer{MaxBytes: -1}))
		},
	} {
		b := streams.NewBuilder()
		build(b)
		if _, err := b.Build(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestSuppressBeforeJoin is SuppressScenarioTest's shouldWorkBeforeJoinRight and shouldWorkBeforeJoinLeft: a join sees what was told last, not
// what is held back.
func TestSuppressBeforeJoin(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"right", "left"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
				plain := streams.TableFrom(b, "plain", serde.String(), serde.String(), "")
				held := streams.TableFrom(b, "held", serde.String(), serde.String(), "").
					Suppress(streams.UntilTimeLimit(10*ms, streams.Buffer{}), streams.Named("suppress"))
				text := func(m streams.Maybe[string]) string {
					if !m.OK {
						return "null"
					}
					return m.Value
				}
				join := func(_ string, l, r streams.Maybe[string]) string { return "(" + text(l) + "," + text(r) + ")" }
				if side == "right" {
					streams.ToStream(streams.OuterJoinTables(plain, held, join)).To("out")
				} else {
					streams.ToStream(streams.OuterJoinTables(held, plain, join)).To("out")
				}
			})
			pair := func(plain, held string) string {
				if side == "right" {
					return "(" + plain + "," + held + ")"
				}
				return "(" + held + "," + plain + ")"
			}
			held := streamstest.NewInput(d, "held", serde.String(), serde.String())
			plain := streamstest.NewInput(d, "plain", serde.String(), serde.String())
			out := read(d, serde.String())
			pipe(held, "B=1@0", "A=1@0")
			want(t, "buffered", out())
			pipe(held, "tick=tick@10")
			want(t, "flushed", out(), "A="+pair("null", "1")+"@0", "B="+pair("null", "1")+"@0")
			pipe(held, "A=2@11")
			want(t, "buffered", out())
			pipe(plain, "A=a@12")
			want(t, "with what was told", out(), "A="+pair("a", "1")+"@12")
			pipe(plain, "B=b@12")
			want(t, "with what is not held back", out(), "B="+pair("b", "1")+"@12")
			pipe(plain, "A=b@13")
			want(t, "with what was told", out(), "A="+pair("b", "1")+"@13")
			pipe(held, "tick=tick1@21")
			want(t, "flushed", out(), "tick="+pair("null", "tick1")+"@21", "A="+pair("b", "2")+"@13")
		})
	}
}

// TestSuppressBeforeGrouping is shouldWorkBeforeGroupBy of SuppressScenarioTest, and more: rows leave the group that they were told to be in.
func TestSuppressBeforeGrouping(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		rows := streams.TableFrom(b, "in", serde.String(), serde.String(), "").
			Suppress(streams.UntilTimeLimit(10*ms, streams.Buffer{}), streams.Named("suppress"))
		groups := streams.GroupTable(rows, func(k, v string) (string, string) { return v, k })
		streams.ToStream(streams.CountTable(groups, "counts")).To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.Int64())
	pipe(in, "A=a@0", "tick=t@10")
	want(t, "first", out(), "a=1@0")
	pipe(in, "A=b@11", "A=c@12", "tick=t@21")
	want(t, "second", out(), "t=1@21", "a=0@12", "c=1@12")
}
