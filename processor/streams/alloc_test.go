package streams_test

import (
	"iter"
	"testing"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// through forwards what it gets.
type through struct {
	ctx *streams.Context[int64, int64]
}

func (p *through) Init(ctx *streams.Context[int64, int64]) error { p.ctx = ctx; return nil }

func (p *through) Process(r *streams.Record[int64, int64]) error { return p.ctx.Forward(*r) }

func (p *through) Close() error { return nil }

// many makes n records of each, for operators to be measured without what brings a record to them.
func many(b *streams.Builder, n int64) *streams.Stream[int64, int64] {
	upTo := func(yield func(int64) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
	s := streams.From(b, "in", serde.Int64(), serde.Int64())
	return streams.FlatMapValues(s, func(int64) iter.Seq[int64] { return upTo })
}

// stateless is a chain of the operators that are most used, with a processor of one's own at its end.
func stateless(s *streams.Stream[int64, int64]) {
	s = streams.MapValues(s, func(v int64) int64 { return v + 1 }).Filter(func(_, v int64) bool { return v%2 == 0 })
	s = streams.Map(s, func(k, v int64) (int64, int64) { return v, k }).Peek(func(int64, int64) {})
	s = streams.Process(s.Merge(s.FilterNot(func(k, _ int64) bool { return k > 0 })), func() streams.Processor[int64, int64, int64, int64] {
		return &through{}
	})
	s.ForEach(func(int64, int64) {})
}

// TestStatelessAllocatesNothing: a record on its way through operators costs no memory.
func TestStatelessAllocatesNothing(t *testing.T) {
	const n = 10_000
	b := streams.NewBuilder()
	stateless(many(b, n))
	d := started(t, b, streamstest.Config{})
	in := streamstest.NewInput(d, "in", serde.Int64(), serde.Int64())
	if got := testing.AllocsPerRun(5, func() { in.Pipe(1, 1, 1) }) / n; got > 0.05 {
		t.Errorf("%g allocations a record, want those of the record that was piped, and of a commit", got)
	}
}

func BenchmarkStateless(b *testing.B) {
	const n = 10_000
	builder := streams.NewBuilder()
	stateless(many(builder, n))
	topology, err := builder.Build()
	if err != nil {
		b.Fatal(err)
	}
	d := streamstest.NewT(b, topology, streamstest.Config{})
	in := streamstest.NewInput(d, "in", serde.Int64(), serde.Int64())
	b.ReportAllocs()
	for b.Loop() {
		in.Pipe(1, 1, 1)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/record")
}
