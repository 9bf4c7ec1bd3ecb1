package streams_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

const ms = time.Millisecond

// joined concatenates the values of each window, counted counts its records.
func (s scope) joined(w windowing, opts ...streams.Option) {
	add := func(a, v string) string { return a + v }
	streams.ToStream(streams.ReduceWindows(w.on(streams.GroupByKey(s.texts("in"))), s.kept("s"), add, opts...)).To(s.of("out"))
}

func (s scope) counted(w windowing, opts ...streams.Option) {
	streams.ToStream(streams.CountWindows(w.on(streams.GroupByKey(s.texts("in"))), s.kept("s"), opts...)).To(s.of("out"))
}

func counted(b *streams.Builder, w windowing, opts ...streams.Option) {
	scope{Builder: b}.counted(w, opts...)
}

// once is all records of a vector in one step.
func once(in string, want ...string) []step { return []step{{in, want}} }

// inStore is the rows of the store "s".
func inStore(rows ...string) map[string][]string { return map[string][]string{"s": rows} }

// grids are T4/46-48, and what an unlimited window takes.
func grids() (vectors []vector) {
	for _, c := range []struct {
		name string
		w    windowing
		in   string
		want []string
	}{
		{"T4/46", by(windows.Hopping(12*ms, 5*ms, 0)), "a=x@21", []string{"a[10,22]=1@21", "a[15,27]=1@21", "a[20,32]=1@21"}},
		{"T4/47", by(windows.Hopping(6*ms, 5*ms, 0)), "a=x@7", []string{"a[5,11]=1@7"}},
		{"T4/48", by(windows.Tumbling(12*ms, 0)), "a=x@21", []string{"a[12,24]=1@21"}},
		{"unlimited", by(windows.Unlimited{Start: 20}), "a=x@21", []string{"a[20,7884000000020]=1@21"}},
		{"before", by(windows.Unlimited{Start: 20}), "a=x@19", nil},
	} {
		vectors = append(vectors, vector{
			name: c.name, build: func(s scope) { s.counted(c.w) }, steps: once(c.in, c.want...), out: inWindows(c.w, number64), rows: inStore(c.want...),
		})
	}
	return vectors
}

func TestGrids(t *testing.T) {
	t.Parallel()
	driveAll(t, grids())
}

// slidings are T4/52-54: the last value of each window.
func slidings() (vectors []vector) {
	first := []string{"A=1@10", "A=2@10", "A=3@14", "A=4@15", "A=5@20", "A=6@22", "A=7@30"}
	for _, c := range []struct {
		name    string
		grace   time.Duration
		emit    streams.EmitStrategy
		records []string
		want    map[int64]string
	}{
		{"T4/52", 100 * ms, streams.OnWindowUpdate, first, map[int64]string{
			0: "12", 4: "123", 5: "1234", 10: "12345", 11: "345", 12: "3456", 15: "456", 16: "56", 20: "567", 21: "67", 23: "7",
		}},
		{"T4/53", 5 * ms, streams.OnWindowClose, first, map[int64]string{0: "12", 4: "123", 5: "1234", 10: "12345", 11: "345", 12: "3456"}},
		{"T4/54", 100 * ms, streams.OnWindowUpdate, []string{"A=1@10", "A=2@14", "A=3@15", "A=4@22", "A=5@26", "A=6@30"}, map[int64]string{
			0: "1", 4: "12", 5: "123", 11: "23", 12: "234", 15: "34", 16: "45", 20: "456", 23: "56", 27: "6",
		}},
	} {
		w := by(windows.Sliding{Difference: 10 * ms, Grace: c.grace}, c.emit)
		v := vector{
			name: c.name, build: func(s scope) { s.joined(w) }, out: inWindows(w, nil), once: c.emit == streams.OnWindowClose,
			last: make(map[string]string),
		}
		for _, r := range c.records {
			v.steps = append(v.steps, step{in: r}, step{in: "wait"}) // what is told on close is told at most once a second
		}
		for start, value := range c.want {
			v.last[fmt.Sprintf("A[%d,%d]", start, start+10)] = value
		}
		vectors = append(vectors, v)
		v.name += ", uncached"
		v.build = func(s scope) { s.joined(w, streams.CachingDisabled()) }
		vectors = append(vectors, v)
	}
	return vectors
}

func TestSliding(t *testing.T) {
	t.Parallel()
	driveAll(t, slidings())
}

// sessions are T5/63-67.
func sessions() (vectors []vector) {
	for _, c := range []struct {
		name  string
		gap   time.Duration
		steps []step
		rows  []string
	}{
		{"T5/63", 10 * ms, once("a=x@0 a=x@11", "a[0,0]=1@0", "a[11,11]=1@11"), []string{"a=1", "a[11,11]=1"}},
		{"T5/64", 10 * ms, once(
			"a=x@0 a=x@11 a=x@5", "a[0,0]=1@0", "a[11,11]=1@11", "a[0,0]=-@0", "a[11,11]=-@11", "a[0,11]=3@11",
		), []string{"a[0,11]=3"}},
		{"T5/65", 5 * time.Minute, once("a=x@0 a=x@100", "a[0,0]=1@0", "a[0,0]=-@0", "a[0,100]=2@100"), []string{"a[0,100]=2"}},
		{"T5/66", 10 * ms, once("a=x@0 a=x@5", "a[0,0]=1@0", "a[0,0]=-@0", "a[0,5]=2@5"), []string{"a[0,5]=2"}},
		{"T5/67", 10 * ms, once("a=x@7 a=x@7", "a[7,7]=1@7", "a[7,7]=2@7"), []string{"a[7,7]=2"}},
		{"inside", 10 * ms, once(
			"a=x@0 a=x@9 a=x@4", "a[0,0]=1@0", "a[0,0]=-@0", "a[0,9]=2@9", "a[0,9]=-@9", "a[0,9]=3@9",
		), []string{"a[0,9]=3"}},
		{"gap", 10 * ms, once( // a record exactly a gap later is of the session
			"a=x@0 b=x@10 a=x@10", "a[0,0]=1@0", "b[10,10]=1@10", "a[0,0]=-@0", "a[0,10]=2@10",
		), []string{"a[0,10]=2", "b[10,10]=1"}},
	} {
		w := bySessions(windows.Session{Gap: c.gap})
		vectors = append(vectors, vector{name: c.name, build: func(s scope) {
			s.counted(w, streams.CachingDisabled(), streams.Retention(3*c.gap)) // as upstream's test has it
		}, steps: c.steps, out: inWindows(w, number64), rows: inStore(c.rows...)})
	}
	return vectors
}

func TestSessions(t *testing.T) {
	t.Parallel()
	driveAll(t, sessions())
}

// keeper puts a session into a store: its value says which, "start-end".
type keeper struct {
	declared *streams.Store[*streams.Session[string, string]]
	kept     *streams.Session[string, string]
}

func (p *keeper) Init(ctx *streams.Context[string, string]) (err error) {
	p.kept, err = p.declared.Open(ctx)
	return err
}

func (p *keeper) Process(r *streams.Record[string, string]) error {
	var start, end int64
	if _, err := fmt.Sscanf(r.Value, "%d-%d", &start, &end); err != nil {
		return err
	}
	return p.kept.Put(r.Key, start, end, "x")
}

func (p *keeper) Close() error { return nil }

// sessionFinds are T5/55-59: what is found in a store of sessions.
func sessionFinds() (vectors []vector) {
	of := func(earliestEnd, latestStart int64) store.SessionScan {
		return store.SessionScan{Key: []byte("a"), EarliestEnd: earliestEnd, LatestEnd: math.MaxInt64, LatestStart: latestStart}
	}
	byEnd := func(earliest, latest int64) store.SessionScan {
		return store.SessionScan{EarliestEnd: earliest, LatestEnd: latest, LatestStart: math.MaxInt64}
	}
	for _, c := range []struct {
		name, in string
		finds    []find
	}{
		{"T5/55-56", "a=10-10@10 a=500-1000@1000 a=1500-2000@2000 a=2500-3000@3000", []find{
			{of(0, 1000), []string{"a[10,10]=x", "a[500,1000]=x"}},
			{of(400, 600), []string{"a[500,1000]=x"}},
		}},
		{"T5/57", "a=0-100@100 a=101-200@200 a=201-300@300 a=301-400@400 a=401-500@500", []find{
			{of(150, 300), []string{"a[101,200]=x", "a[201,300]=x"}},
		}},
		{"T5/58-59", "a=0-0@0 b=10-20@20 c=30-40@40", []find{
			{byEnd(0, 20), []string{"a=x", "b[10,20]=x"}},
			{byEnd(0, 19), []string{"a=x"}},
			{byEnd(1, 20), []string{"b[10,20]=x"}},
			{byEnd(19, 41), []string{"b[10,20]=x", "c[30,40]=x"}},
			{byEnd(0, 40), []string{"a=x", "b[10,20]=x", "c[30,40]=x"}},
		}},
	} {
		vectors = append(vectors, vector{name: c.name, build: func(s scope) {
			kept := streams.SessionStore(s.kept("s"), time.Minute, serde.String(), serde.String())
			streams.Process(s.texts("in"), func() streams.Processor[string, string, string, string] {
				return &keeper{declared: kept}
			}, streams.Uses(kept)).To(s.of("out"))
		}, steps: once(c.in), finds: map[string][]find{"s": c.finds}})
	}
	return vectors
}

func TestFindSessions(t *testing.T) {
	t.Parallel()
	driveAll(t, sessionFinds())
}

// lateRecords: a record is dropped and counted once, whatever number of its windows is closed (KStreamWindowAggregateTest,
// KStreamSlidingWindowAggregateTest, KStreamSessionWindowAggregateProcessorTest; QS-08 is the line of sessions).
func lateRecords() []vector {
	tumbling, hopping := by(windows.Tumbling(10*ms, 5*ms)), by(windows.Hopping(10*ms, 5*ms, 0))
	sliding, session := by(windows.Sliding{Difference: 10 * ms}), bySessions(windows.Session{Gap: 5 * ms, Grace: 2 * ms})
	uncached := func(w windowing) func(s scope) {
		return func(s scope) { s.counted(w, streams.CachingDisabled()) }
	}
	return []vector{
		{name: "late: tumbling", build: uncached(tumbling), out: inWindows(tumbling, number64), steps: once(
			"a=x@3 b=x@14 a=x@4 b=x@15 a=x@5",
			"a[0,10]=1@3", "b[10,20]=1@14", "a[0,10]=2@4", "b[10,20]=2@15",
		), drops: map[string]int{"late": 1}, rows: inStore("a[0,10]=2@4", "b[10,20]=2@15")},
		{name: "late: hopping", build: uncached(hopping), out: inWindows(hopping, number64), steps: once(
			"a=x@11 a=x@7 a=x@3 b=x@16 a=x@7",
			"a[5,15]=1@11", "a[10,20]=1@11", "a[5,15]=2@11", "b[10,20]=1@16", "b[15,25]=1@16",
		), drops: map[string]int{"late": 2, "late for some of its windows": 1}, rows: inStore("a[10,20]=1@11", "b[10,20]=1@16", "b[15,25]=1@16")},
		{name: "late: sliding", build: func(s scope) { s.joined(sliding, streams.CachingDisabled()) }, out: inWindows(sliding, nil), steps: once(
			"a=x@20 a=y@10 a=z@9",
			// The window that ends at 10 is closed at 20; that which begins behind it is not, and neither is its own.
			"a[10,20]=x@20", "a[10,20]=xy@20", "a[11,21]=x@20",
		), drops: map[string]int{"late": 1}},
		{name: "late: session", build: uncached(session), out: inWindows(session, number64), steps: once(
			"a=x@0 b=x@7 a=x@0 b=x@8 a=x@0 a=x@1",
			"a[0,0]=1@0", "b[7,7]=1@7", "a[0,0]=2@0", "b[7,7]=-@7", "b[7,8]=2@8", "a[1,1]=1@1",
		), drops: map[string]int{"late": 1}, rows: inStore("a[1,1]=1", "b[7,8]=2")},
	}
}

func TestLate(t *testing.T) {
	t.Parallel()
	driveAll(t, lateRecords())
}

// TestLateBehindACache: what a record cache lets go of is judged by the time of what came with it, not by that of the task, which depends on
// when there is a commit.
func TestLateBehindACache(t *testing.T) {
	t.Parallel()
	tens := windows.Tumbling(10*ms, 0)
	d := drive(t, streamstest.Config{CommitInterval: streamstest.Never}, func(b *streams.Builder) {
		counts := streams.ToStream(streams.Count(streams.GroupByKey(texts(b, "in")), "counts"))
		w := streams.WindowedBy(streams.GroupByKey(counts), tens)
		streams.ToStream(streams.CountWindows(w, "s")).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@5", "b=x@25")
	d.Commit()
	want(t, "out", readWindows(d, by(tens), serde.Int64())(), "a[0,10]=1@5", "b[20,30]=1@25")
	if got := d.Dropped(); len(got) > 0 {
		t.Errorf("dropped %v", got)
	}
}

// TestEmitOnClose: each window is told once, at most every second; what would be forgotten is told before. A restart forgets nothing.
func TestEmitOnClose(t *testing.T) {
	t.Parallel()
	w := by(windows.Tumbling(10*ms, 0), streams.OnWindowClose)
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) { counted(b, w) })
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), readWindows(d, w, serde.Int64())
	pipe(in, "a=x@5", "a=x@6", "b=x@10")
	want(t, "the first", out(), "a[0,10]=2@6")
	pipe(in, "b=x@20")
	want(t, "within a second", out())
	d.Restart()
	pipe(in, "b=x@21")
	want(t, "after a restart", out(), "b[10,20]=1@10")
	pipe(in, "b=x@1000")
	want(t, "before the store forgets it", out(), "b[20,30]=2@21")
	d.AdvanceWallClock(time.Second)
	pipe(in, "c=x@2000")
	want(t, "a second later", out(), "b[1000,1010]=1@1000")
}

// sessionsOnClose: only the session that is left in the end is told. What is closed is joined no more: it was told.
func sessionsOnClose() vector {
	w := bySessions(windows.Session{Gap: 10 * ms, Grace: 20 * ms}, streams.OnWindowClose)
	return vector{name: "sessions on close", build: func(s scope) { s.counted(w) }, out: inWindows(w, number64), steps: []step{
		{"a=x@5 a=x@20 a=x@12 b=x@30 a=x@30 a=x@60", nil},
		{"b=x@61", []string{"a[5,30]=4@30", "b[30,30]=1@30"}},
		{"a=x@52 a=x@44 a=x@39", nil}, // within the gap behind what was told
		{"wait", nil},
		{"c=x@100", []string{"a[39,60]=4@60", "b[61,61]=1@61"}},
	}, once: true}
}

func TestEmitSessionsOnClose(t *testing.T) {
	t.Parallel()
	sessionsOnClose().drive(t, streamstest.Config{})
}

// TestRetention: at least as long as records may change a window.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		w   windowing
		opt time.Duration
		ok  bool
	}{
		"default":        {by(windows.Tumbling(10*ms, 5*ms)), 0, true},
		"least":          {by(windows.Tumbling(10*ms, 5*ms)), 15 * ms, true},
		"too short":      {by(windows.Tumbling(10*ms, 5*ms)), 14 * ms, false},
		"sliding":        {by(windows.Sliding{Difference: 10 * ms, Grace: 5 * ms}), 24 * ms, false},
		"session":        {bySessions(windows.Session{Gap: 10 * ms, Grace: 5 * ms}), 14 * ms, false},
		"unlimited":      {by(windows.Unlimited{}), time.Hour, false},
		"no windows":     {by(windows.Tumbling(0, 0)), 0, false},
		"advance":        {by(windows.Hopping(ms, 2*ms, 0)), 0, false},
		"negative start": {by(windows.Unlimited{Start: -1}), 0, false},
	} {
		b := streams.NewBuilder()
		var opts []streams.Option
		if c.opt != 0 {
			opts = append(opts, streams.Retention(c.opt))
		}
		counted(b, c.w, opts...)
		topology, err := b.Build()
		if err == nil {
			_, err = topology.Build("app")
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWindowedKeysStayTogether: all windows of a key are in the key's partition, in topics of others and in those between tasks.
func TestWindowedKeysStayTogether(t *testing.T) {
	t.Parallel()
	const n = 7
	d := drive(t, streamstest.Config{Partitions: map[string]int32{"in": n, "out": n}}, func(b *streams.Builder) {
		table := streams.CountWindows(by(windows.Tumbling(10*ms, 0)).on(streams.GroupByKey(texts(b, "in"))), "s")
		streams.ToStream(table).Repartition(streams.Named("again")).To("out")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	for i := range int64(50) {
		in.Pipe("key"+strconv.FormatInt(i%5, 10), "x", i*10)
	}
	of := make(map[string]int32)
	for _, topic := range []string{"streamstest-again-repartition", "out"} {
		records := streamstest.NewOutput(d, topic, serde.TimeWindowed(serde.String(), 10*ms), serde.Int64()).ReadAll()
		if len(records) != 50 {
			t.Errorf("%s: %d records", topic, len(records))
		}
		for _, r := range records {
			if p, ok := of[r.Key.Key]; ok && p != r.Partition {
				t.Errorf("%s: key %s in partitions %d and %d", topic, r.Key.Key, p, r.Partition)
			}
			of[r.Key.Key] = r.Partition
		}
	}
	if ps := slices.Compact(slices.Sorted(maps.Values(of))); len(ps) < 2 {
		t.Errorf("all in %v", ps)
	}
}

// TestWindowStore: the store can be asked under its name, with the ends of its windows exclusive.
func TestWindowStore(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		counted(b, by(windows.Sliding{Difference: 10 * ms, Grace: time.Second}))
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@15")
	var rows []string
	for _, r := range streamstest.NewWindow(d, "s", serde.String(), serde.Int64()).Rows() {
		rows = append(rows, r.String())
	}
	want(t, "rows", rows, "a[5,16]=1@15")
}
