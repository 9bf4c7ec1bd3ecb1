package accumulate

import (
	"fmt"
	"testing"
	"time"
)

// cases are states as they are found in a store.
var cases = []struct {
	name    string
	f       Function
	records int
}{
	{"count", Function{Kind: "count"}, 1000},
	{"sum", Function{Kind: "sum", Type: "int"}, 1000},
	{"min", Function{Kind: "min", Type: "int"}, 1000},
	{"max", Function{Kind: "max", Type: "string"}, 1000},
	{"avg", Function{Kind: "avg", Type: "int"}, 1000},
	{"first", Function{Kind: "first", Type: "int"}, 1000},
	{"latest", Function{Kind: "latest", Type: "int"}, 1000},
	{"top_k=10", Function{Kind: "top_k", Type: "string", K: 10}, 1000},
	{"distinct=10", Function{Kind: "distinct", Type: "int"}, 10},
	{"distinct=1000", Function{Kind: "distinct", Type: "int"}, 1000},
	{"distinct=100000", Function{Kind: "distinct", Type: "int"}, 100_000},
	{"quantile=10", Function{Kind: "quantile", Type: "int", Q: 0.5}, 10},
	{"quantile=1000", Function{Kind: "quantile", Type: "int", Q: 0.5}, 1000},
	{"quantile=100000", Function{Kind: "quantile", Type: "int", Q: 0.5}, 100_000},
}

// values of a type, made before anything is measured.
func values(kind string) []Input {
	in := make([]Input, 1024)
	for i := range in {
		n := int64(i)*7919%10007 + 1
		in[i] = Input{Value: n, By: n}
		if kind == "string" {
			in[i].Value = fmt.Sprintf("value-%d", n)
		}
	}
	return in
}

// filled returns a state of so many records, with different values.
func filled(tb testing.TB, f Function, records int) *State {
	tb.Helper()
	f.Name = "x"
	s := plan(tb, f).New()
	for i := range int64(records) {
		in := Input{Value: i, By: i}
		if f.Type == "string" {
			in.Value = fmt.Sprintf("value-%d", i%10)
		}
		if err := s.Add(time.UnixMilli(i), []Input{in}); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func BenchmarkAdd(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s, in, at := filled(b, c.f, c.records), values(c.f.Type), time.UnixMilli(5)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if err := s.Add(at, in[i&1023:][:1]); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

func BenchmarkAppendState(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := filled(b, c.f, c.records)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				buf = s.plan.AppendState(buf[:0], s)
			}
			b.ReportMetric(float64(len(buf)), "bytes")
		})
	}
}

func BenchmarkDecodeState(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := filled(b, c.f, c.records)
			buf := s.plan.AppendState(nil, s)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.plan.DecodeState(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendResult(b *testing.B) {
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			s := filled(b, c.f, c.records)
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = s.plan.AppendResult(buf[:0], s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRecord is what a record costs that finds its state in a store: reading it, adding, writing state and result.
func BenchmarkRecord(b *testing.B) {
	functions := []Function{
		{Name: "n", Kind: "count"}, {Name: "sum", Kind: "sum", Type: "int"}, {Name: "min", Kind: "min", Type: "int"}, {Name: "max", Kind: "max", Type: "double"},
	}
	p := plan(b, functions...)
	in := []Input{{}, {Value: int64(5)}, {Value: int64(7)}, {Value: 2.5}}
	b.Run("state", func(b *testing.B) {
		s := p.New()
		stored := p.AppendState(nil, s)
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = record1(b, s, s.Decode, stored, in, out)
			stored = p.AppendState(stored[:0], s)
		}
	})
	b.Run("result", func(b *testing.B) {
		s := p.New()
		stored, err := p.AppendResult(nil, s)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			stored = record1(b, s, s.DecodeResult, stored, in, stored)
		}
	})
}

func record1(b *testing.B, s *State, read func([]byte) error, stored []byte, in []Input, out []byte) []byte {
	b.Helper()
	if err := read(stored); err != nil {
		b.Fatal(err)
	}
	if err := s.Add(time.UnixMilli(1), in); err != nil {
		b.Fatal(err)
	}
	out, err := s.plan.AppendResult(out[:0], s)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// TestAllocations: a record costs no allocation for count, sum, min and max, read from its state and written back.
func TestAllocations(t *testing.T) {
	p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "sum", Kind: "sum", Type: "int"}, Function{Name: "min", Kind: "min", Type: "double"},
		Function{Name: "max", Kind: "max", Type: "timestamp"})
	in := []Input{{}, {Value: int64(5)}, {Value: 7.5}, {Value: time.Unix(1, 0)}}
	s := p.New()
	stored, out := make([]byte, 0, 100), make([]byte, 0, 100)
	stored = p.AppendState(stored, s)
	n := testing.AllocsPerRun(100, func() {
		err := s.Decode(stored)
		if err == nil {
			err = s.Add(time.UnixMilli(1), in)
		}
		if err != nil {
			t.Fatal(err)
		}
		stored = p.AppendState(stored[:0], s)
		if out, err = p.AppendResult(out[:0], s); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%g allocations per record", n)
	}
}
