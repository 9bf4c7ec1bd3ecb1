package streams_test

import (
	"errors"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// byValue counts the keys of each value over a table.
func (s scope) byValue() *streams.Table[string, int64] {
	last := func(_, v string) string { return v }
	rows := streams.Reduce(streams.GroupByKey(s.texts("in")), s.kept("rows"), last, streams.CachingDisabled())
	groups := streams.GroupTable(rows, func(k, v string) (string, string) { return v, k })
	return streams.CountTable(groups, s.kept("counts"), streams.CachingDisabled())
}

// suppressed tells of the counts by value what Suppress lets go of.
func (s scope) suppressed(by streams.Suppressed) {
	streams.ToStream(s.byValue().Suppress(by, streams.Named(s.of("held")))).To(s.of("out"))
}

// suppressions are T8/97 and what else SuppressScenarioTest has of time limits and bounds.
func suppressions() []vector {
	const begin = "k1=v1@0 k1=v2@1 k2=v1@2"
	const ever = 100 * 365 * 24 * time.Hour
	counts := format{value: number64}
	of := func(by streams.Suppressed) func(s scope) {
		return func(s scope) { s.suppressed(by) }
	}
	return []vector{
		{name: "not suppressed", build: func(s scope) { streams.ToStream(s.byValue()).To(s.of("out")) }, out: counts, steps: []step{
			{begin, []string{"v1=1@0", "v1=0@1", "v2=1@1", "v1=1@2"}},
		}, rows: map[string][]string{"counts": {"v1=1@2", "v2=1@1"}}},
		{name: "T8/97", build: of(streams.UntilTimeLimit(0, streams.Buffer{})), out: counts, steps: []step{
			{begin, []string{"v1=1@0", "v1=0@1", "v2=1@1", "v1=1@2"}},
			{"x=x@3", []string{"x=1@3"}},
			{"x=y@4", []string{"x=0@4", "y=1@4"}},
		}, rows: map[string][]string{"counts": {"v1=1@2", "v2=1@1", "x=0@4", "y=1@4"}}},
		{name: "time limit", build: of(streams.UntilTimeLimit(2*ms, streams.Buffer{})), out: counts, steps: []step{
			{begin, []string{"v1=1@2"}},
			{"tick=tick@3", []string{"v2=1@1"}},
			{"tick=tock@4", nil}, // held back since 3
		}, rows: map[string][]string{"counts": {"tick=0@4", "tock=1@4", "v1=1@2", "v2=1@1"}}},
		{name: "records", build: of(streams.UntilTimeLimit(ever, streams.Buffer{MaxRecords: 1, WhenFull: streams.EmitEarly})), out: counts, steps: []step{
			{begin, []string{"v1=0@1", "v2=1@1"}},
			{"x=x@3", []string{"v1=1@2"}},
		}},
		{name: "bytes", build: of(streams.UntilTimeLimit(ever, streams.Buffer{MaxBytes: 40, WhenFull: streams.EmitEarly})), out: counts, steps: []step{
			{begin, []string{"v1=0@1", "v2=1@1"}},
			{"x=x@3", []string{"v1=1@2"}},
		}},
	}
}

func TestSuppress(t *testing.T) {
	t.Parallel()
	driveAll(t, withRestarts(suppressions()))
}

// TestSuppressShutsDown: a buffer that may not be told early ends the task when it is full.
func TestSuppressShutsDown(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		scope{Builder: b}.suppressed(streams.UntilTimeLimit(time.Second, streams.Buffer{MaxRecords: 1}))
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	err := d.Try(func() { pipe(in, "k1=v1@0", "k1=v2@1") })
	if full, ok := errors.AsType[*streams.BufferFullError](err); !ok || full.Records != 2 || full.MaxRecords != 1 || full.Store != "held-store" {
		t.Errorf("error %v", err)
	}
}

// finalResults are SuppressScenarioTest for windows of each kind: the value of each window once, when it is closed.
func finalResults() (vectors []vector) {
	for _, c := range []struct {
		name    string
		w       windowing
		records string
		want    []string
		drops   map[string]int
	}{
		{
			"time", by(windows.Tumbling(2*ms, ms)),
			"k1=v@0 k1=v@1 k1=v@2 k1=v@1 k1=v@0 k1=v@5 k1=v@0",
			[]string{"k1[0,2]=4@1", "k1[2,4]=1@2"},
			map[string]int{"late": 1},
		},
		{
			"large jump", by(windows.Tumbling(2*ms, 2*ms)),
			"k1=v@0 k1=v@1 k1=v@2 k1=v@0 k1=v@3 k1=v@0 k1=v@4 k1=v@0 k1=v@30",
			[]string{"k1[0,2]=4@1", "k1[2,4]=2@3", "k1[4,6]=1@4"},
			map[string]int{"late": 1},
		},
		{
			"sliding", by(windows.Sliding{Difference: 5 * ms, Grace: 15 * ms}),
			"k1=v@10 k1=v@11 k1=v@10 k1=v@13 k1=v@10 k1=v@24 k1=v@5 k1=v@7 k1=v@90",
			[]string{"k1[5,10]=5@10", "k1[6,11]=5@11", "k1[8,13]=5@13", "k1[11,16]=2@13", "k1[12,17]=1@13", "k1[19,24]=1@24"},
			nil,
		},
		{
			"session", bySessions(windows.Session{Gap: 5 * ms}),
			"k1=v@0 k1=v@5 k1=v@1 k2=v@11 k1=v@5 k1=v@30",
			[]string{"k1[0,5]=3@5", "k2[11,11]=1@11"},
			map[string]int{"late": 1},
		},
	} {
		for _, opts := range [][]streams.Option{nil, {streams.CachingDisabled()}} {
			name := "final: " + c.name
			if len(opts) > 0 {
				name += ", uncached"
			}
			vectors = append(vectors, vector{name: name, build: func(s scope) {
				table := streams.CountWindows(c.w.on(streams.GroupByKey(s.texts("in"))), s.kept("s"), opts...)
				final := table.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named(s.of("final")))
				streams.ToStream(final).To(s.of("out"))
			}, steps: once(c.records, c.want...), out: inWindows(c.w, number64), once: true, drops: c.drops})
		}
	}
	return vectors
}

func TestFinalResults(t *testing.T) {
	t.Parallel()
	driveAll(t, finalResults())
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
		"versions": func(b *streams.Builder) {
			streams.TableFrom(b, "in", serde.String(), serde.String(), "s", streams.History(time.Second)).Suppress(streams.UntilTimeLimit(0, streams.Buffer{}))
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

// suppressedBefore is SuppressScenarioTest's shouldWorkBeforeJoinRight and shouldWorkBeforeJoinLeft: a join sees what was told last, not what
// is held back; and its shouldWorkBeforeGroupBy, and more: rows leave the group that they were told to be in.
func suppressedBefore() []vector {
	held := func(s scope, topic string) *streams.Table[string, string] {
		return s.table(topic, "").Suppress(streams.UntilTimeLimit(10*ms, streams.Buffer{}), streams.Named(s.of("suppress")))
	}
	join := func(_ string, l, r streams.Maybe[string]) string { return "(" + text(l) + "," + text(r) + ")" }
	return []vector{
		{name: "right of a join", build: func(s scope) {
			streams.ToStream(streams.OuterJoinTables(s.table("left", ""), held(s, "right"), join)).To(s.of("out"))
		}, steps: []step{
			{"R B 1 0", nil},
			{"R A 1 0", nil},
			{"R tick tick 10", []string{"A=(null,1)@0", "B=(null,1)@0"}},
			{"R A 2 11", nil},
			{"L A a 12", []string{"A=(a,1)@12"}}, // with what was told
			{"L B b 12", []string{"B=(b,1)@12"}}, // with what is not held back
			{"L A b 13", []string{"A=(b,1)@13"}},
			{"R tick tick1 21", []string{"tick=(null,tick1)@21", "A=(b,2)@13"}},
		}},
		{name: "left of a join", build: func(s scope) {
			streams.ToStream(streams.OuterJoinTables(held(s, "left"), s.table("right", ""), join)).To(s.of("out"))
		}, steps: []step{
			{"L B 1 0", nil},
			{"L A 1 0", nil},
			{"L tick tick 10", []string{"A=(1,null)@0", "B=(1,null)@0"}},
			{"L A 2 11", nil},
			{"R A a 12", []string{"A=(1,a)@12"}},
			{"R B b 12", []string{"B=(1,b)@12"}},
			{"R A b 13", []string{"A=(1,b)@13"}},
			{"L tick tick1 21", []string{"tick=(tick1,null)@21", "A=(2,b)@13"}},
		}},
		{name: "before grouping", build: func(s scope) {
			groups := streams.GroupTable(held(s, "in"), func(k, v string) (string, string) { return v, k })
			streams.ToStream(streams.CountTable(groups, s.kept("counts"))).To(s.of("out"))
		}, steps: []step{
			{"A=a@0 tick=t@10", []string{"a=1@0"}},
			{"A=b@11 A=c@12 tick=t@21", []string{"t=1@21", "a=0@12", "c=1@12"}},
		}, out: format{value: number64}, rows: map[string][]string{"counts": {"a=0@12", "c=1@12", "t=1@21"}}},
	}
}

func TestSuppressBefore(t *testing.T) {
	t.Parallel()
	driveAll(t, suppressedBefore())
}
