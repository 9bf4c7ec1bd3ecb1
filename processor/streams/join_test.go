package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// joinBench drives a topology with two inputs of text and one output, "out".
type joinBench struct {
	t           *testing.T
	d           *streamstest.Driver
	left, right *streamstest.Input[string, string]
	out         *streamstest.Output[string, string]
}

func newJoinBench(t *testing.T, cfg streamstest.Config, build func(b *streams.Builder)) *joinBench {
	t.Helper()
	b := streams.NewBuilder()
	build(b)
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := streamstest.NewT(t, topology, cfg)
	return &joinBench{
		t: t, d: d, left: streamstest.NewInput(d, "left", serde.String(), serde.String()),
		right: streamstest.NewInput(d, "right", serde.String(), serde.String()),
		out:   streamstest.NewOutput(d, "out", serde.String(), serde.String()),
	}
}

// step is a record "side key value time" of which value "-" is none, or "restart"; and what it is to bring.
type step struct {
	in   string
	want []string
}

// pipe writes the record of a step.
func (b *joinBench) pipe(in string) {
	b.t.Helper()
	if in == "restart" {
		b.d.Restart()
		return
	}
	var side, key, value string
	var at int64
	if _, err := fmt.Sscan(in, &side, &key, &value, &at); err != nil {
		b.t.Fatalf("%s: %v", in, err)
	}
	to := b.left
	if side == "R" {
		to = b.right
	}
	r := streamstest.Record[string, string]{Key: key, Value: value, NullValue: value == "-", NullKey: key == "-", Timestamp: at}
	if r.NullValue {
		r.Value = ""
	}
	to.PipeRecord(r)
}

func (b *joinBench) run(steps []step) {
	b.t.Helper()
	for i, s := range steps {
		b.pipe(s.in)
		var have []string
		for _, r := range b.out.ReadAll() {
			value := r.Value
			if r.NullValue {
				value = "-"
			}
			have = append(have, fmt.Sprintf("%s=%s@%d", r.Key, value, r.Timestamp))
		}
		if d := cmp.Diff(s.want, have); d != "" {
			b.t.Fatalf("step %d, %s (-want +got)\n%s", i, s.in, d)
		}
	}
}

func (b *joinBench) dropped(want map[string]int) {
	b.t.Helper()
	if d := cmp.Diff(want, b.d.Dropped()); d != "" {
		b.t.Errorf("dropped (-want +got)\n%s", d)
	}
}

func sources(b *streams.Builder) (l, r *streams.Stream[string, string]) {
	return streams.From(b, "left", serde.String(), serde.String()), streams.From(b, "right", serde.String(), serde.String())
}

func tables(b *streams.Builder, opts ...streams.Option) (l, r *streams.Table[string, string]) {
	return streams.TableFrom(b, "left", serde.String(), serde.String(), "", opts...),
		streams.TableFrom(b, "right", serde.String(), serde.String(), "", opts...)
}

func plus(_ string, l, r string) string { return l + "+" + r }

func text(m streams.Maybe[string]) string {
	if !m.OK {
		return "null"
	}
	return m.Value
}

func leftPlus(_ string, l string, r streams.Maybe[string]) string { return l + "+" + text(r) }

func outerPlus(_ string, l, r streams.Maybe[string]) string { return text(l) + "+" + text(r) }

// input is upstream's: the records that its documentation of joins shows the results of ("Joining", Kafka Streams DSL), one time unit
// apart.
var documented = []string{
	"L k - 1", "R k - 2", "L k A 3", "R k a 4", "L k B 5", "R k b 6", "L k - 7", "R k - 8", "L k C 9", "R k c 10", "R k - 11", "L k - 12",
	"R k - 13", "R k d 14", "L k D 15",
}

func documentedSteps(want map[int][]string) []step {
	steps := make([]step, len(documented))
	for i, in := range documented {
		steps[i] = step{in, want[i+1]}
	}
	return steps
}

// TestJoinsAsDocumented: the results of every kind of join for the records of upstream's documentation.
func TestJoinsAsDocumented(t *testing.T) {
	t.Parallel()
	within := streams.Within(15 * time.Millisecond)
	for name, tt := range map[string]struct {
		build func(b *streams.Builder)
		want  map[int][]string
	}{
		"streams inner": {func(b *streams.Builder) {
			l, r := sources(b)
			streams.JoinStreams(l, r, within, plus).To("out")
		}, map[int][]string{
			4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=A+b@6", "k=B+b@6"}, 9: {"k=C+a@9", "k=C+b@9"}, 10: {"k=A+c@10", "k=B+c@10", "k=C+c@10"},
			14: {"k=A+d@14", "k=B+d@14", "k=C+d@14"}, 15: {"k=D+a@15", "k=D+b@15", "k=D+c@15", "k=D+d@15"},
		}},
		"stream with table": {func(b *streams.Builder) {
			l := streams.From(b, "left", serde.String(), serde.String())
			r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
			streams.JoinTable(l, r, plus).To("out")
		}, map[int][]string{5: {"k=B+a@5"}, 15: {"k=D+d@15"}}},
		"stream with table, left": {func(b *streams.Builder) {
			l := streams.From(b, "left", serde.String(), serde.String())
			r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
			streams.LeftJoinTable(l, r, leftPlus).To("out")
		}, map[int][]string{3: {"k=A+null@3"}, 5: {"k=B+a@5"}, 9: {"k=C+null@9"}, 15: {"k=D+d@15"}}},
		"tables inner": {func(b *streams.Builder) {
			l, r := tables(b)
			streams.ToStream(streams.JoinTables(l, r, plus)).To("out")
		}, map[int][]string{
			4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=-@7"}, 10: {"k=C+c@10"}, 11: {"k=-@11"}, 15: {"k=D+d@15"},
		}},
		"tables left": {func(b *streams.Builder) {
			l, r := tables(b)
			streams.ToStream(streams.LeftJoinTables(l, r, leftPlus)).To("out")
		}, map[int][]string{
			3: {"k=A+null@3"}, 4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=-@7"}, 9: {"k=C+null@9"}, 10: {"k=C+c@10"},
			11: {"k=C+null@11"}, 12: {"k=-@12"}, 15: {"k=D+d@15"},
		}},
		"tables outer": {func(b *streams.Builder) {
			l, r := tables(b)
			streams.ToStream(streams.OuterJoinTables(l, r, outerPlus)).To("out")
		}, map[int][]string{
			3: {"k=A+null@3"}, 4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=null+b@7"}, 8: {"k=-@8"}, 9: {"k=C+null@9"},
			10: {"k=C+c@10"}, 11: {"k=C+null@11"}, 12: {"k=-@12"}, 14: {"k=null+d@14"}, 15: {"k=D+d@15"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newJoinBench(t, streamstest.Config{}, tt.build).run(documentedSteps(tt.want))
		})
		t.Run(name+", restarted after each record", func(t *testing.T) {
			t.Parallel()
			var steps []step
			for _, s := range documentedSteps(tt.want) {
				steps = append(steps, s, step{in: "restart"})
			}
			newJoinBench(t, streamstest.Config{}, tt.build).run(steps)
		})
	}
}

// TestOuterJoinsOfStreams: results of records that meet none come when the window and the grace are over (KAFKA-10847), and none comes
// for one that has met another.
func TestOuterJoinsOfStreams(t *testing.T) {
	t.Parallel()
	within := streams.JoinWindows{Before: 10 * time.Millisecond, After: 10 * time.Millisecond, Grace: 5 * time.Millisecond}
	left := func(b *streams.Builder) {
		l, r := sources(b)
		streams.LeftJoinStreams(l, r, within, leftPlus, streams.As("j")).To("out")
	}
	outer := func(b *streams.Builder) {
		l, r := sources(b)
		streams.OuterJoinStreams(l, r, within, outerPlus, streams.As("j")).To("out")
	}
	for name, tt := range map[string]struct {
		build func(b *streams.Builder)
		steps []step
		drops map[string]int
	}{
		"left: nothing comes": {left, []step{
			{"L a A 0", nil},
			{"L b B 15", nil},
			{"restart", nil},
			{"L b C 16", []string{"a=A+null@0"}},
			{"R b x 31", []string{"b=B+null@15"}},
			{"R z z 32", []string{"b=C+null@16"}},
		}, nil},
		"left: two of one time": {left, []step{
			{"L a A 0", nil}, {"L a B 0", nil}, {"restart", nil}, {"R z z 16", []string{"a=A+null@0", "a=B+null@0"}}, {"R z z 99", nil},
		}, nil},
		"left: the right one comes late, within grace": {left, []step{
			{"L a A 0", nil}, {"L z Z 14", nil}, {"R a x 10", []string{"a=A+x@10"}}, {"restart", nil}, {"R y y 16", nil}, {"R y y 30", []string{"z=Z+null@14"}},
		}, nil},
		"left: out of order, still in time": {left, []step{
			{"L z Z 20", nil}, {"L a A 6", nil}, {"R a x 5", []string{"a=A+x@6"}}, {"L b B 5", nil}, {"R y y 21", []string{"b=B+null@5"}},
		}, nil},
		"left: too late to wait": {left, []step{
			{"R z z 30", nil}, {"L a A 3", []string{"a=A+null@3"}}, {"R y y 90", nil},
		}, nil},
		"left: no key, no value": {left, []step{
			{"L - A 1", []string{"=A+null@1"}}, {"L a - 2", nil}, {"R - x 3", nil}, {"R a - 4", nil},
		}, map[string]int{"null value": 2, "null key": 1}},
		"outer": {outer, []step{
			{"L a A 0", nil},
			{"R b x 1", nil},
			{"R a y 2", []string{"a=A+y@2"}},
			{"restart", nil},
			{"L z Z 40", []string{"b=null+x@1"}},
			{"R - q 41", []string{"=null+q@41"}},
			{"R c w 56", []string{"z=Z+null@40"}},
		}, nil},
		"outer: one side is over earlier": {func(b *streams.Builder) {
			l, r := sources(b)
			w := streams.JoinWindows{Before: 0, After: 20 * time.Millisecond}
			streams.OuterJoinStreams(l, r, w, outerPlus, streams.As("j")).To("out")
		}, []step{
			{"L a A 0", nil}, {"R b x 1", nil}, {"R c y 2", []string{"b=null+x@1"}}, {"restart", nil}, {"L d D 21", []string{"a=A+null@0", "c=null+y@2"}},
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newJoinBench(t, streamstest.Config{}, tt.build)
			b.run(tt.steps)
			if tt.drops == nil {
				tt.drops = map[string]int{}
			}
			b.dropped(tt.drops)
		})
	}
}

// TestJoinOfStreamsTooLate: a record that nobody can meet any more is not kept, and counted.
func TestJoinOfStreamsTooLate(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		l, r := sources(b)
		streams.JoinStreams(l, r, streams.Within(10*time.Millisecond), plus, streams.As("j")).To("out")
	})
	b.run([]step{
		{"L a A 100", nil}, {"L a B 80", nil}, {"L a C 81", nil}, {"R a x 80", []string{"a=C+x@81"}}, {"R a y 95", []string{"a=A+y@100"}},
	})
	if r := b.d.DroppedRecords(); len(r) != 1 || r[0].Record.Offset != 1 {
		t.Errorf("dropped %v, want the record at 80", r)
	}
}

// TestSelfJoin: over one store the results, and their order, are those of two.
func TestSelfJoin(t *testing.T) {
	t.Parallel()
	var outputs [2][]string
	for i := range outputs {
		b := streams.NewBuilder()
		if i == 1 {
			b.SingleStoreSelfJoin()
		}
		s := streams.From(b, "left", serde.String(), serde.String())
		w := streams.JoinWindows{Before: 3 * time.Millisecond, After: 7 * time.Millisecond, Grace: time.Millisecond}
		streams.JoinStreams(s, s, w, plus, streams.As("self")).To("out")
		topology, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		d := streamstest.NewT(t, topology, streamstest.Config{})
		if text := d.Describe(); strings.Contains(text, "self-other-join") != (i == 0) {
			t.Errorf("described as\n%s", text)
		}
		in := streamstest.NewInput(d, "left", serde.String(), serde.String())
		for n, at := range []int64{5, 5, 9, 2, 12, 7, 30, 21, 19, 18, 25} {
			in.Pipe("k", fmt.Sprint(n), at)
		}
		outputs[i] = streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings()
	}
	if d := cmp.Diff(outputs[0], outputs[1]); d != "" || len(outputs[0]) < 20 {
		t.Errorf("%d results (-two stores +one)\n%s", len(outputs[0]), d)
	}
}
