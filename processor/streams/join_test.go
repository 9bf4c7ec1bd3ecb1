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

func (s scope) sources() (l, r *streams.Stream[string, string]) {
	return s.texts("left"), s.texts("right")
}

func (s scope) tables(opts ...streams.Option) (l, r *streams.Table[string, string]) {
	return s.table("left", "", opts...), s.table("right", "", opts...)
}

func sources(b *streams.Builder) (l, r *streams.Stream[string, string]) {
	return scope{Builder: b}.sources()
}

func tables(b *streams.Builder) (l, r *streams.Table[string, string]) {
	return scope{Builder: b}.tables()
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

// documentedJoins are every kind of join, with the results that upstream documents; joins of tables once more with a store of their own.
func documentedJoins() []vector {
	within := streams.Within(15 * time.Millisecond)
	withTable := func(join func(l *streams.Stream[string, string], r *streams.Table[string, string]) *streams.Stream[string, string]) func(s scope) {
		return func(s scope) { join(s.texts("left"), s.table("right", "")).To(s.of("out")) }
	}
	vectors := []vector{
		{name: "streams inner", build: func(s scope) {
			l, r := s.sources()
			streams.JoinStreams(l, r, within, plus, streams.As(s.kept("j"))).To(s.of("out"))
		}, steps: documentedSteps(map[int][]string{
			4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=A+b@6", "k=B+b@6"}, 9: {"k=C+a@9", "k=C+b@9"}, 10: {"k=A+c@10", "k=B+c@10", "k=C+c@10"},
			14: {"k=A+d@14", "k=B+d@14", "k=C+d@14"}, 15: {"k=D+a@15", "k=D+b@15", "k=D+c@15", "k=D+d@15"},
		}), drops: map[string]int{"null value": 7}},
		{name: "stream with table", build: withTable(func(l *streams.Stream[string, string], r *streams.Table[string, string]) *streams.Stream[string, string] {
			return streams.JoinTable(l, r, plus)
		}), steps: documentedSteps(map[int][]string{5: {"k=B+a@5"}, 15: {"k=D+d@15"}}), drops: map[string]int{"null value": 3}},
		{name: "stream with table, left", build: withTable(func(l *streams.Stream[string, string], r *streams.Table[string, string]) *streams.Stream[string, string] {
			return streams.LeftJoinTable(l, r, leftPlus)
		}), steps: documentedSteps(map[int][]string{
			3: {"k=A+null@3"}, 5: {"k=B+a@5"}, 9: {"k=C+null@9"}, 15: {"k=D+d@15"},
		}), drops: map[string]int{"null value": 3}},
	}
	type table = *streams.Table[string, string]
	for _, c := range []struct {
		name string
		join func(l, r table, opts ...streams.Option) table
		want map[int][]string
	}{
		{"tables inner", func(l, r table, opts ...streams.Option) table { return streams.JoinTables(l, r, plus, opts...) }, map[int][]string{
			4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=-@7"}, 10: {"k=C+c@10"}, 11: {"k=-@11"}, 15: {"k=D+d@15"},
		}},
		{"tables left", func(l, r table, opts ...streams.Option) table { return streams.LeftJoinTables(l, r, leftPlus, opts...) }, map[int][]string{
			3: {"k=A+null@3"}, 4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=-@7"}, 9: {"k=C+null@9"}, 10: {"k=C+c@10"},
			11: {"k=C+null@11"}, 12: {"k=-@12"}, 15: {"k=D+d@15"},
		}},
		{"tables outer", func(l, r table, opts ...streams.Option) table {
			return streams.OuterJoinTables(l, r, outerPlus, opts...)
		}, map[int][]string{
			3: {"k=A+null@3"}, 4: {"k=A+a@4"}, 5: {"k=B+a@5"}, 6: {"k=B+b@6"}, 7: {"k=null+b@7"}, 8: {"k=-@8"}, 9: {"k=C+null@9"},
			10: {"k=C+c@10"}, 11: {"k=C+null@11"}, 12: {"k=-@12"}, 14: {"k=null+d@14"}, 15: {"k=D+d@15"},
		}},
	} {
		join := func(s scope, opts ...streams.Option) {
			l, r := s.tables()
			streams.ToStream(c.join(l, r, opts...)).To(s.of("out"))
		}
		vectors = append(vectors,
			vector{name: c.name, build: func(s scope) { join(s) }, steps: documentedSteps(c.want)},
			vector{
				name: c.name + ", with a store", build: func(s scope) { join(s, streams.As(s.kept("joined"))) }, steps: documentedSteps(c.want),
				rows: map[string][]string{"joined": {"k=D+d@15"}},
			})
	}
	return vectors
}

// TestJoinsAsDocumented: the results of every kind of join for the records of upstream's documentation.
func TestJoinsAsDocumented(t *testing.T) {
	t.Parallel()
	driveAll(t, withRestarts(documentedJoins()))
}

// outerJoinsOfStreams: results of records that meet none come when the window and the grace are over (KAFKA-10847), and none comes for one
// that has met another.
func outerJoinsOfStreams() []vector {
	within := streams.JoinWindows{Before: 10 * time.Millisecond, After: 10 * time.Millisecond, Grace: 5 * time.Millisecond}
	left := func(s scope) {
		l, r := s.sources()
		streams.LeftJoinStreams(l, r, within, leftPlus, streams.As(s.kept("j"))).To(s.of("out"))
	}
	outer := func(s scope) {
		l, r := s.sources()
		streams.OuterJoinStreams(l, r, within, outerPlus, streams.As(s.kept("j"))).To(s.of("out"))
	}
	return []vector{
		{name: "left: nothing comes", build: left, steps: []step{
			{"L a A 0", nil},
			{"L b B 15", nil},
			{"restart", nil},
			{"L b C 16", []string{"a=A+null@0"}},
			{"R b x 31", []string{"b=B+null@15"}},
			{"R z z 32", []string{"b=C+null@16"}},
		}},
		{name: "left: two of one time", build: left, steps: []step{
			{"L a A 0", nil}, {"L a B 0", nil}, {"restart", nil}, {"R z z 16", []string{"a=A+null@0", "a=B+null@0"}}, {"R z z 99", nil},
		}},
		{name: "left: the right one comes late, within grace", build: left, steps: []step{
			{"L a A 0", nil}, {"L z Z 14", nil}, {"R a x 10", []string{"a=A+x@10"}}, {"restart", nil}, {"R y y 16", nil}, {"R y y 30", []string{"z=Z+null@14"}},
		}},
		{name: "left: out of order, still in time", build: left, steps: []step{
			{"L z Z 20", nil}, {"L a A 6", nil}, {"R a x 5", []string{"a=A+x@6"}}, {"L b B 5", nil}, {"R y y 21", []string{"b=B+null@5"}},
		}},
		{name: "left: too late to wait", build: left, steps: []step{
			{"R z z 30", nil}, {"L a A 3", []string{"a=A+null@3"}}, {"R y y 90", nil},
		}},
		{name: "left: no key, no value", build: left, steps: []step{
			{"L - A 1", []string{"=A+null@1"}}, {"L a - 2", nil}, {"R - x 3", nil}, {"R a - 4", nil},
		}, drops: map[string]int{"null value": 2, "null key": 1}},
		{name: "outer", build: outer, steps: []step{
			{"L a A 0", nil},
			{"R b x 1", nil},
			{"R a y 2", []string{"a=A+y@2"}},
			{"restart", nil},
			{"L z Z 40", []string{"b=null+x@1"}},
			{"R - q 41", []string{"=null+q@41"}},
			{"R c w 56", []string{"z=Z+null@40"}},
		}},
		{name: "outer: one side is over earlier", build: func(s scope) {
			l, r := s.sources()
			w := streams.JoinWindows{Before: 0, After: 20 * time.Millisecond}
			streams.OuterJoinStreams(l, r, w, outerPlus, streams.As(s.kept("j"))).To(s.of("out"))
		}, steps: []step{
			{"L a A 0", nil}, {"R b x 1", nil}, {"R c y 2", []string{"b=null+x@1"}}, {"restart", nil}, {"L d D 21", []string{"a=A+null@0", "c=null+y@2"}},
		}},
	}
}

func TestOuterJoinsOfStreams(t *testing.T) {
	t.Parallel()
	driveAll(t, outerJoinsOfStreams())
}

// lateJoin: a record that nobody can meet any more is not kept, and counted.
func lateJoin() vector {
	return vector{name: "late", build: func(s scope) {
		l, r := s.sources()
		streams.JoinStreams(l, r, streams.Within(10*time.Millisecond), plus, streams.As(s.kept("j"))).To(s.of("out"))
	}, steps: []step{
		{"L a A 100", nil}, {"L a B 80", nil}, {"L a C 81", nil}, {"R a x 80", []string{"a=C+x@81"}}, {"R a y 95", []string{"a=A+y@100"}},
	}, drops: map[string]int{"late": 1}}
}

func TestJoinOfStreamsTooLate(t *testing.T) {
	t.Parallel()
	d := lateJoin().drive(t, streamstest.Config{})
	if r := d.DroppedRecords(); len(r) != 1 || r[0].Record.Offset != 1 {
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
