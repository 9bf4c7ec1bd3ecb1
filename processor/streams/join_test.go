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
		}},
		{name: "stream with table", build: withTable(func(l *streams.Stream[string, string], r *streams.Table[string, string]) *streams.Stream[string, string] {
			return streams.JoinTable(l, r, plus)
		})},
		{name: "stream with table, left", build: withTable(func(l *streams.Stream[string, string], r *streams.Table[string, string]) *streams.Stream[string, string] {
			return streams.LeftJoinTable(l, r, leftPlus)
		})},
	}
	type table = *streams.Table[string, string]
	for _, c := range []struct {
		name string
		join func(l, r table, opts ...streams.Option) table
	}{
		{"tables inner", func(l, r table, opts ...streams.Option) table { return streams.JoinTables(l, r, plus, opts...) }},
		{"tables left", func(l, r table, opts ...streams.Option) table { return streams.LeftJoinTables(l, r, leftPlus, opts...) }},
		{"tables outer", func(l, r table, opts ...streams.Option) table {
			return streams.OuterJoinTables(l, r, outerPlus, opts...)
		}},
	} {
		join := func(s scope, opts ...streams.Option) {
			l, r := s.tables()
			streams.ToStream(c.join(l, r, opts...)).To(s.of("out"))
		}
		vectors = append(vectors,
			vector{name: c.name, build: func(s scope) { join(s) }},
			vector{
				name: c.name + withStore, build: func(s scope) { join(s, streams.As(s.kept("joined"))) }, rows: map[string][]string{"joined": {"k=D+d@15"}},
			})
	}
	return tabled(vectors)
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
	one := func(s scope) {
		l, r := s.sources()
		w := streams.JoinWindows{Before: 0, After: 20 * time.Millisecond}
		streams.OuterJoinStreams(l, r, w, outerPlus, streams.As(s.kept("j"))).To(s.of("out"))
	}
	return tabled([]vector{
		{name: "left: nothing comes", build: left},
		{name: "left: two of one time", build: left},
		{name: "left: the right one comes late, within grace", build: left},
		{name: "left: out of order, still in time", build: left},
		{name: "left: too late to wait", build: left},
		{name: "left: no key, no value", build: left},
		{name: "outer", build: outer},
		{name: "outer: one side is over earlier", build: one},
	})
}

func TestOuterJoinsOfStreams(t *testing.T) {
	t.Parallel()
	driveAll(t, outerJoinsOfStreams())
}

// lateJoin: a record that nobody can meet any more is not kept, and counted.
func lateJoin() vector {
	return tabled([]vector{{name: "late", build: func(s scope) {
		l, r := s.sources()
		streams.JoinStreams(l, r, streams.Within(10*time.Millisecond), plus, streams.As(s.kept("j"))).To(s.of("out"))
	}}})[0]
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
