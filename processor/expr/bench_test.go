package expr

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/statemesh/statemesh/processor"
)

// What the benchmarks read: three columns, and rows with the few origins and many delays of real ones.
var (
	benchLayout = Layout{Format: CSV, KeyFormat: "string", Columns: []Column{
		{Name: "carrier", Type: String}, {Name: "origin", Type: String}, {Name: "delay", Type: Double, Optional: true},
	}}
	benchRows = func() (rows [][]byte) {
		for i := range 256 {
			rows = append(rows, []byte([]string{"UA", "AA", "DL"}[i%3]+","+[]string{"EWR", "JFK", "LGA"}[i%7%3]+","+strconv.Itoa(i-20)+".5"))
		}
		return rows
	}()
)

// sink keeps results alive.
var sink struct {
	bool   bool
	double float64
	bytes  []byte
}

// BenchmarkExpression is decode and evaluation per record; BenchmarkGo the same by hand.
func BenchmarkExpression(b *testing.B) {
	s := mustSchema(b, benchLayout)
	run := func(name string, p *Program, eval func(*Row) error) {
		b.Run(name, func(b *testing.B) {
			r := mustRow(b, s, p)
			rec := &processor.Record{Key: []byte("k")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				rec.Value = benchRows[i%len(benchRows)]
				if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
					b.Fatal(err)
				}
				if err := eval(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	filter := mustCompile(b, s, `origin == "EWR" && coalesce(delay, 0.0) > 10.0`, Bool)
	run("filter", filter, func(r *Row) (err error) { sink.bool, err = filter.Bool(r); return err })
	equal := mustCompile(b, s, `origin == "EWR"`, Bool)
	run("equal", equal, func(r *Row) (err error) { sink.bool, err = equal.Bool(r); return err })
	column, err := CompileOutput(Source{Text: "origin"}, s, "string")
	if err != nil {
		b.Fatal(err)
	}
	run("column", column.Program, func(r *Row) (err error) { sink.bytes, err = column.Append(sink.bytes[:0], r); return err })
	key, err := CompileOutput(Source{Text: `joinKey(origin, carrier)`}, s, "string")
	if err != nil {
		b.Fatal(err)
	}
	run("key", key.Program, func(r *Row) (err error) { sink.bytes, err = key.Append(sink.bytes[:0], r); return err })
	computed := mustCompile(b, s, `coalesce(delay, 0.0) / 60.0`, Double)
	run("computed", computed, func(r *Row) (err error) { sink.double, _, err = computed.Double(r); return err })
	object, err := NewObject([]Field{{"hours", computed}})
	if err != nil {
		b.Fatal(err)
	}
	run("object", computed, func(r *Row) (err error) { sink.bytes, err = object.Append(sink.bytes[:0], r); return err })
	looped := mustCompile(b, s, `["EWR", "JFK"].exists(o, o == origin)`, Bool)
	run("loop", looped, func(r *Row) (err error) { sink.bool, err = looped.Bool(r); return err })
}

// BenchmarkRow is the part of the decoder and of the types.
func BenchmarkRow(b *testing.B) {
	s := mustSchema(b, benchLayout)
	r := mustRow(b, s, mustCompile(b, s, `origin + carrier + string(delay)`, String))
	rec := &processor.Record{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		rec.Value = benchRows[i%len(benchRows)]
		if err := r.Set(rec, processor.RecordMetadata{}); err != nil {
			b.Fatal(err)
		}
	}
}

// byHand is what somebody writes who needs no expressions: no quotes, no checks.
func byHand(row []byte) (carrier, origin []byte, delay float64, ok bool) {
	carrier, rest, _ := bytes.Cut(row, []byte(","))
	origin, last, _ := bytes.Cut(rest, []byte(","))
	if len(last) == 0 {
		return carrier, origin, 0, false
	}
	x, err := strconv.ParseFloat(string(last), 64)
	return carrier, origin, x, err == nil
}

func BenchmarkGo(b *testing.B) {
	run := func(name string, eval func(carrier, origin []byte, delay float64)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				carrier, origin, delay, _ := byHand(benchRows[i%len(benchRows)])
				eval(carrier, origin, delay)
			}
		})
	}
	run("filter", func(_, origin []byte, delay float64) { sink.bool = string(origin) == "EWR" && delay > 10 })
	run("key", func(carrier, origin []byte, _ float64) {
		sink.bytes = append(append(append(sink.bytes[:0], origin...), '/'), carrier...)
	})
	run("computed", func(_, _ []byte, delay float64) { sink.double = delay / 60 })
}
