package streams_test

import (
	"strconv"
	"testing"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// BenchmarkJoinTable joins a stream with a table of 1000 rows, beside what it costs to pass the stream on: the driver's own costs are in
// both.
func BenchmarkJoinTable(b *testing.B) {
	for name, build := range map[string]func(l *streams.Stream[string, string], r *streams.Table[string, string]){
		"pass": func(l *streams.Stream[string, string], _ *streams.Table[string, string]) { l.To("out") },
		"join": func(l *streams.Stream[string, string], r *streams.Table[string, string]) {
			streams.JoinTable(l, r, func(_, l, _ string) string { return l }).To("out")
		},
		"left": func(l *streams.Stream[string, string], r *streams.Table[string, string]) {
			streams.LeftJoinTable(l, r, func(_, l string, _ streams.Maybe[string]) string { return l }).To("out")
		},
	} {
		b.Run(name, func(b *testing.B) {
			builder := streams.NewBuilder()
			l := streams.From(builder, "left", serde.String(), serde.String())
			r := streams.TableFrom(builder, "right", serde.String(), serde.String(), "rights")
			build(l, r)
			topology, err := builder.Build()
			if err != nil {
				b.Fatal(err)
			}
			d := streamstest.NewT(b, topology, streamstest.Config{CommitInterval: streamstest.Never})
			left := streamstest.NewInput(d, "left", serde.String(), serde.String())
			right := streamstest.NewInput(d, "right", serde.String(), serde.String())
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
				right.Pipe(keys[i], "value of "+keys[i], int64(i))
			}
			d.Commit()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if left.Pipe(keys[i%1000], "value", int64(i)); i%1000 == 0 {
					d.Commit()
				}
				i++
			}
		})
	}
}
